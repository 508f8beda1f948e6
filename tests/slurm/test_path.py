"""Real jobs on a real Slurm, from prolog to report: the right GPUs, and the figures that the scenario makes true."""

import json
import random
import signal
import time
from typing import Any

import pytest
from cluster import Cluster
from processes import wait_for
from simgpu import Scenario, uuid

INTERVAL_S = 1.0
STEP_S = 4
LENGTH_S = 1800


def marks_left(cluster: Cluster) -> str:
    return "".join(cluster.node_exec(node, "ls", "/run/slurmgpu/jobs").stdout for node in cluster.settings.node_names)


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> dict[str, Scenario]:
    """For each node a scenario in which every GPU takes steps of its own, every four seconds."""
    epoch = time.time() - 10
    worlds = {}
    for seed, node in enumerate(cluster.settings.node_names):
        rng = random.Random(seed)
        scenario = Scenario(["gpus 8"], epoch)
        for gpu in range(8):
            for t in range(0, LENGTH_S, STEP_S):
                busy = rng.randrange(101)
                memory = rng.randrange(1, 80) * 10**9
                scenario.add(
                    f"gpu {gpu} @{t} gpu_util_pct={busy} mem_used_bytes={memory} power_mw={70_000 + 6_000 * busy}"
                )
        cluster.slurmgpu.set_scenario(node, scenario.text())
        worlds[node] = scenario
    # Energy counters jump with the scenario. Once slurmgpud has dealt with a job on all GPUs it has read the new ones.
    cluster.run("srun", "-N4", "--gres=gpu:8", "true")
    wait_for("readings of the new world", 20, lambda: not marks_left(cluster))
    return worlds


def reports(cluster: Cluster, job: int) -> list[dict[str, Any]]:
    result = cluster.slurmgpu.command("report", str(job), "-D", "--format", "json")
    return json.loads(result.stdout)["runs"] if result.returncode in (0, 4) else []  # 4: too short for a sample


def ended(cluster: Cluster, job: int, runs: int = 1) -> list[dict[str, Any]]:
    """All runs of a job, once the database knows their ends."""

    def there() -> bool:
        found = reports(cluster, job)
        return len(found) == runs and all(run["end"] for run in found)

    wait_for(f"the report of job {job}", 30, there)
    return reports(cluster, job)


def gpus_of(run: dict[str, Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for gpu in run["gpus"]:
        found.setdefault(gpu["node"], []).append(gpu["gpu_ordinal"])
    return found


def held_when_running(cluster: Cluster, job: int) -> dict[str, list[int]]:
    cluster.wait_state(job, "RUNNING")
    return cluster.gpu_indices(job)


def seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def check_figures(run: dict[str, Any], world: dict[str, Scenario]) -> None:
    """Energy, busy and memory peak of each GPU against the scenario: 1 % and an interval's worth at each end."""
    assert run["gpus"]
    for gpu in run["gpus"]:
        scenario, index = world[gpu["node"]], gpu["gpu_ordinal"]
        assert gpu["gpu_uuid"] == uuid(gpu["node"], index)
        start, end = seconds(gpu["start"]), seconds(gpu["end"])
        assert gpu["coverage"] == pytest.approx(1, abs=0.001), gpu
        energy = scenario.energy_mj(index, start, end)
        most_mw = scenario.peak(index, "power_mw", start - 1, end + 1)
        assert gpu["energy_source"] == "counter"
        assert abs(gpu["energy_mj"] - energy) <= 0.01 * energy + 2 * INTERVAL_S * most_mw
        busy = scenario.mean(index, "gpu_util_pct", start, end)
        assert abs(gpu["gpu_busy_pct"] - busy) <= 0.01 * busy + 2 * INTERVAL_S / (end - start) * 100
        inner = scenario.peak(index, "mem_used_bytes", start + INTERVAL_S, end - INTERVAL_S)
        outer = scenario.peak(index, "mem_used_bytes", start, end + INTERVAL_S)
        assert inner <= gpu["mem_used_max_bytes"] <= outer
    total = sum(gpu["energy_mj"] for gpu in run["gpus"])
    assert (run["energy_mj"], run["energy_is_lower_bound"]) == (total, False)


class TestJobs:
    """The kinds of jobs that the first path must carry."""

    def test_one_node_two_gpus(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        job = cluster.sbatch("sleep 7", "--gres=gpu:2", "-w", "n1")
        held = held_when_running(cluster, job)
        cluster.wait_done(job)
        (run,) = ended(cluster, job)
        assert (gpus_of(run), len(held["n1"])) == (held, 2)
        assert (run["user"], run["account"], run["partition"]) == ("alice", "research", "gpu")
        assert (run["exit_code"], run["signal"]) == (0, 0)
        check_figures(run, world)

    def test_two_nodes_three_gpus_each(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        """On one of the nodes another job holds a GPU, so that the numbers differ."""
        other = cluster.sbatch("sleep 9", "--gres=gpu:1", "-w", "n2", user="bob")
        cluster.wait_state(other, "RUNNING")
        job = cluster.sbatch("srun sleep 6", "-N2", "--gres=gpu:3", "-w", "n1,n2")
        held = held_when_running(cluster, job)
        assert held["n1"] != held["n2"]
        cluster.wait_done(job)
        cluster.wait_done(other)
        (run,) = ended(cluster, job)
        assert gpus_of(run) == held
        check_figures(run, world)
        (beside,) = ended(cluster, other)
        assert beside["user"] == "bob"
        check_figures(beside, world)

    def test_two_jobs_at_once_on_one_node(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        jobs = [cluster.sbatch(f"sleep {6 + n}", f"--gres=gpu:{n + 2}", "-w", "n3") for n in (0, 1)]
        held = [held_when_running(cluster, job) for job in jobs]
        for job in jobs:
            cluster.wait_done(job)
        runs = [ended(cluster, job)[0] for job in jobs]
        assert [gpus_of(run) for run in runs] == held
        assert not set(held[0]["n3"]) & set(held[1]["n3"])
        for run in runs:
            check_figures(run, world)

    def test_two_jobs_back_to_back_on_the_same_gpus(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        """The second waits for the first: no moment belongs to both, and none of the first's load to the second."""
        jobs = [cluster.sbatch("sleep 5", "--gres=gpu:8", "-w", "n4") for _ in (0, 1)]
        for job in jobs:
            cluster.wait_done(job)
        first, second = (ended(cluster, job)[0] for job in jobs)
        assert gpus_of(first) == gpus_of(second) == {"n4": list(range(8))}
        assert max(gpu["end"] for gpu in first["gpus"]) <= min(gpu["start"] for gpu in second["gpus"])
        check_figures(first, world)
        check_figures(second, world)

    def test_cpu_only(self, cluster: Cluster) -> None:
        job = cluster.sbatch("sleep 1", "-w", "n1")
        cluster.wait_done(job)
        (run,) = ended(cluster, job)
        assert (run["gpus"], run["nodes"], run["energy_mj"]) == ([], ["n1"], None)
        assert "The job held no GPU." in cluster.slurmgpu.command("report", str(job)).stdout

    def test_cancelled(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        job = cluster.sbatch("sleep 600", "--gres=gpu:1", "-w", "n1")
        held = held_when_running(cluster, job)
        time.sleep(4)  # the job's own length
        cluster.run("scancel", str(job))
        cluster.wait_done(job)
        (run,) = ended(cluster, job)
        assert gpus_of(run) == held
        check_figures(run, world)

    def test_requeued(self, cluster: Cluster, world: dict[str, Scenario]) -> None:
        """Two runs, each with its own GPUs and its own time: another job takes the first run's GPUs meanwhile."""
        job = cluster.sbatch("sleep 6", "--gres=gpu:2", "-w", "n2", "--requeue")
        first = held_when_running(cluster, job)
        time.sleep(4)  # the first run's own length
        cluster.services.run("scontrol", "requeuehold", str(job))
        cluster.wait_idle("n2")
        blocker = cluster.sbatch("sleep 600", "--gres=gpu:2", "-w", "n2")
        assert held_when_running(cluster, blocker) == first
        cluster.services.run("scontrol", "release", str(job))
        second = held_when_running(cluster, job)
        cluster.wait_done(job)
        cluster.run("scancel", str(blocker))
        cluster.wait_done(blocker)
        runs = ended(cluster, job, runs=2)
        assert [gpus_of(run) for run in runs] == [first, second]
        assert first != second
        assert runs[0]["end"] <= runs[1]["start"]
        for run in runs:
            check_figures(run, world)

    def test_failed_job_shows_its_exit_code(self, cluster: Cluster) -> None:
        job = cluster.sbatch("exit 3", "--gres=gpu:1", "-w", "n1")
        cluster.wait_done(job)
        (run,) = ended(cluster, job)
        assert run["exit_code"] == 3

    def test_hostile_names_reach_nobody(self, cluster: Cluster) -> None:
        comment = "x\nSLURM_JOB_GPUS=7\nSLURM_JOB_ID=1\x1b[31m"
        job = cluster.sbatch("sleep 2", "--gres=gpu:1", "-w", "n1", "--comment", comment, "-J", "a\nb")
        held = held_when_running(cluster, job)
        cluster.wait_done(job)
        (run,) = ended(cluster, job)
        assert gpus_of(run) == held


def test_daemon_killed_in_mid_job(cluster: Cluster, world: dict[str, Scenario]) -> None:
    """SIGKILL and a start again: the report covers the job but for a flush period and the time it was away."""
    job = cluster.sbatch("sleep 16", "--gres=gpu:2", "-w", "n3")
    held = held_when_running(cluster, job)
    time.sleep(6.5)  # into the job, and into a flush period
    killed = time.time()
    cluster.slurmgpu.stop_daemon("n3", signal.SIGKILL)
    cluster.slurmgpu.start_daemon("n3")
    away_s = time.time() - killed
    cluster.wait_done(job)
    (run,) = ended(cluster, job)
    assert gpus_of(run) == held
    for gpu in run["gpus"]:
        missing_s = gpu["allocated_s"] - gpu["covered_s"]
        assert 0 < missing_s <= cluster.settings.flush_s + away_s + INTERVAL_S
        assert gpu["energy_is_lower_bound"]
    assert run["coverage"] < 1
    text = cluster.slurmgpu.command("report", str(job)).stdout
    assert "No readings on n3 for 2 GPUs from" in text
    assert "lower bound" in text


def test_marks_are_gone_and_nodes_are_well(cluster: Cluster) -> None:
    """After all those jobs no mark is left, no node is drained, nothing was set aside."""
    wait_for("the end of all marks", 20, lambda: not marks_left(cluster))
    states = cluster.services.run("sinfo", "-h", "-N", "-o", "%T").stdout.split()
    assert set(states) == {"idle"}
    assert not list(cluster.settings.root.glob("spool-slurmgpu/*/bad"))
