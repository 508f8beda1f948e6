"""Every way a job holds GPUs, and every way marks go wrong: the right GPUs and the right times, on a real Slurm.

What no test cluster can do is shown elsewhere: clocks that are set and histories at random in
tests/node/test_histories.py, GPUs that Slurm names by UUID and MIG instances from recorded hooks in
tests/node/test_ownership.py, two clusters on one machine in tests/node/test_witness.py.
"""

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from processes import wait_for
from settings import Settings
from simgpu import uuid

from tests.slurm.scenarios import Job, Row, Table, check, gpus_of, near, put, seconds, site_hooks, time_of

Check = Callable[..., None]
LENGTH_S = 4


@pytest.fixture
def right(table: Table, request: pytest.FixtureRequest) -> Check:
    """``right(way, run, gpus, start, end)``: checks a run and writes the row of this test."""

    def checked(way: str, *arguments: object, **more: object) -> None:
        check(table, way, request.node.name, *arguments, **more)  # type: ignore[arg-type]

    return checked


def plain(cluster: Cluster, right: Check, way: str, *options: str, script: str = f"sleep {LENGTH_S}") -> Job:
    job = Job.submit(cluster, script, *options).running()
    job.done()
    (run,) = job.ended()
    right(way, run, job.gpus, job.start_s, job.end_s)
    return job


class TestWays:
    """Marks at both ends; the GPUs as the hooks name them."""

    def test_plain(self, cluster: Cluster, right: Check) -> None:
        job = plain(cluster, right, "two GPUs of a node", "--gres=gpu:2", "-w", "n1", "-J", "a name", "--time=5")
        (run,) = job.runs()
        assert (run["name"], run["slurm_state"], run["time_limit_s"], run["qos"]) == (
            "a name",
            "COMPLETED",
            300,
            "normal",
        )

    def test_type(self, cluster: Cluster, right: Check) -> None:
        plain(cluster, right, "a GRES type", "--gres=gpu:h100:3", "-w", "n2")

    def test_exclusive(self, cluster: Cluster, right: Check) -> None:
        plain(cluster, right, "`--exclusive`, no GPU asked for", "--exclusive", "-w", "n2")

    def test_no_gpu(self, cluster: Cluster, right: Check) -> None:
        plain(cluster, right, "no GPU", "-w", "n1")

    def test_mps(self, cluster: Cluster, right: Check) -> None:
        """A part of GPU 0, which Slurm calls (IDX:0)."""
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=mps:50", "-w", "n3").running().done()
        (run,) = job.ended()
        right("MPS", run, {"n3": [0]}, job.start_s, job.end_s)

    def test_steps(self, cluster: Cluster, right: Check) -> None:
        script = "srun --gres=gpu:1 sleep 2; srun --gres=gpu:2 sleep 2"
        plain(cluster, right, "steps with some of the GPUs", "--gres=gpu:2", "-w", "n1", script=script)

    def test_two_nodes(self, cluster: Cluster, right: Check) -> None:
        script = f"srun sleep {LENGTH_S}"
        plain(cluster, right, "two nodes", "-N2", "--gres=gpu:2", "-w", "n1,n2", script=script)

    def test_two_jobs_on_a_node(self, cluster: Cluster, right: Check) -> None:
        jobs = [Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:2", "-w", "n3", user=u) for u in ("alice", "bob")]
        for job in [job.running() for job in jobs]:
            job.done()
            right("two jobs on one node", job.ended()[0], job.gpus, job.start_s, job.end_s)

    def test_array(self, cluster: Cluster, right: Check) -> None:
        """The node knows raw ids only; the task is found by its array's id."""
        first = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:1", "-w", "n1", "--array=3-4")
        wait_for("both tasks", 30, lambda: len(_raw_ids(cluster, first.id)) == 2)
        jobs = {task: Job(cluster, raw).running() for task, raw in _raw_ids(cluster, first.id).items()}
        for task, job in jobs.items():
            job.done()
            (run,) = job.ended()
            right("array tasks", run, job.gpus, job.start_s, job.end_s)
            text = cluster.slurmgpu.command("report", f"{first.id}_{task}").stdout
            assert f"Job {first.id}_{task}" in text

    def test_het(self, cluster: Cluster, right: Check) -> None:
        options = ["--gres=gpu:1", "-w", "n1", ":", "--gres=gpu:2", "-w", "n2"]
        script = Path("/tmp") / f"het-{cluster.settings.instance}.sh"
        script.write_text(f"#!/bin/sh\nsleep {LENGTH_S}\n")
        script.chmod(0o755)
        leader = int(cluster.run("sbatch", "--parsable", "-o", "/dev/null", *options, str(script)).stdout.split(";")[0])
        for job in [Job(cluster, leader + offset).running() for offset in (0, 1)]:
            job.done()
            (run,) = job.ended()
            right("het job", run, job.gpus, job.start_s, job.end_s, source=_source(run))
        script.unlink()

    def test_srun(self, cluster: Cluster, right: Check) -> None:
        before = Job.submit(cluster, "true", "--hold").id
        cluster.run("srun", "--gres=gpu:2", "-w", "n1", "sleep", str(LENGTH_S))
        job = Job(cluster, before + 1, {"n1": [0, 1]}).done()
        (run,) = job.ended()
        right("interactive srun", run, job.gpus, job.start_s, job.end_s)
        cluster.run("scancel", str(before))

    def test_salloc(self, cluster: Cluster, right: Check) -> None:
        before = Job.submit(cluster, "true", "--hold").id
        cluster.run("salloc", "--gres=gpu:2", "-w", "n1", "sleep", str(LENGTH_S))
        job = Job(cluster, before + 1, {"n1": [0, 1]}).done()
        (run,) = job.ended()
        right("salloc that starts no step", run, job.gpus, job.start_s, job.end_s)
        cluster.run("scancel", str(before))

    def test_shards(self, cluster: Cluster, right: Check) -> None:
        """Two jobs on one GPU: energy is divided by what their processes do, and adds up."""
        names = cluster.slurmgpu
        jobs = [Job.submit(cluster, _with_pid(cluster, f"shard{n}", 8), "--gres=shard:1", "-w", "n4") for n in (1, 2)]
        for job in jobs:
            job.running()
        pids = [_pid(cluster, "n4", f"shard{n}") for n in (1, 2)]
        text = names.scenario("n4").read_text()
        shares = [f"process 0 pid={pid} sm={sm} mem_bytes={sm}e9" for pid, sm in zip(pids, (60, 20), strict=True)]
        names.set_scenario("n4", "\n".join([text, *shares, ""]))
        for job in jobs:
            job.done()
        names.set_scenario("n4", text)
        first, second = (job.ended()[0] for job in jobs)
        for job, run in zip(jobs, (first, second), strict=True):
            assert gpus_of(run) == {"n4": [0]}
            right("shards of one GPU", run, {"n4": [0]}, job.start_s, job.end_s)
        assert first["energy_mj"] > 1.5 * second["energy_mj"] > 0
        assert first["gpus"][0]["mem_used_max_bytes"] == 60 * 10**9

    def test_suspended(self, cluster: Cluster, right: Check) -> None:
        job = Job.submit(cluster, "sleep 3", "--gres=gpu:1", "-w", "n2").running()
        cluster.services.run("scontrol", "suspend", str(job.id))
        cluster.wait_state(job.id, "SUSPENDED")
        time.sleep(2)  # the suspension's own length
        cluster.services.run("scontrol", "resume", str(job.id))
        job.done()
        (run,) = job.ended()
        right("suspended and resumed: the GPU stays the job's", run, job.gpus, job.start_s, job.end_s)

    def test_shrunk(self, cluster: Cluster, table: Table, request: pytest.FixtureRequest) -> None:
        job = Job.submit(cluster, "sleep 12", "-N2", "--gres=gpu:1", "-w", "n1,n2").running()
        time.sleep(3)  # the time with both nodes
        shrunk_s = time.time()
        cluster.run("scontrol", "update", f"jobid={job.id}", "NumNodes=1")
        job.done()
        wait_for("its end", 30, lambda: job.runs() and all(run["end"] for run in job.runs()))
        (run,) = job.ended(len(job.runs()))[:1]
        ends = {item["node"]: seconds(item["end"]) for item in run["allocations"]}
        assert set(gpus_of(run)) == {"n1", "n2"}
        assert near(ends["n1"], job.end_s)
        assert abs(ends["n2"] - shrunk_s) < 2
        table.add(Row("resized to fewer nodes", "right", "right", "prolog, epilog", request.node.name))

    def test_requeued(self, cluster: Cluster, right: Check) -> None:
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:2", "-w", "n2", "--requeue").running()
        first, started = job.gpus, _start(cluster, job.id)
        time.sleep(2)  # the first run's own length
        requeued_s = time.time()
        cluster.services.run("scontrol", "requeue", str(job.id))
        wait_for("the second run", 60, lambda: "Restarts=1" in cluster.show_job(job.id))
        job.running().done()
        runs = job.ended(2, final=False)
        right("requeued: first run", runs[0], first, started, requeued_s)
        right("requeued: second run", runs[1], job.gpus, job.start_s, job.end_s)

    def test_site_hook_that_fails(self, cluster: Cluster, right: Check) -> None:
        """Slurm requeues and holds the job and drains the node; the next run is another one."""
        site_hooks(cluster, prolog={"aa-fails": "exit 1"})
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:1", "-w", "n1")
        try:
            wait_for("the requeue", 30, lambda: "Restarts=1" in cluster.show_job(job.id))
        finally:
            site_hooks(cluster)

        def undrained() -> bool:
            state = cluster.services.run("sinfo", "-h", "-n", "n1", "-o", "%T").stdout.strip()
            if state.startswith("drain"):  # not again and again: after each the node has to answer first
                cluster.services.run("scontrol", "update", "nodename=n1", "state=undrain", check=False)
            return state == "idle"

        wait_for("n1 idle", 120, undrained)
        cluster.services.run("scontrol", "release", str(job.id))
        job.running().done()
        runs = job.ended(len(job.runs()) or 1, final=False)
        right("a site's prolog fails: the run after it", runs[-1], job.gpus, job.start_s, job.end_s)

    def test_among_other_hooks(self, cluster: Cluster, right: Check) -> None:
        site_hooks(cluster, prolog={"zz-slow": "sleep 0.3", "aa-slow": "sleep 0.3"}, epilog={"aa-slow": "sleep 0.3"})
        try:
            plain(cluster, right, "among a site's other hooks, slow ones", "--gres=gpu:1", "-w", "n1")
        finally:
            site_hooks(cluster)


class TestMarksGoWrong:
    """Hooks that did not run, daemons that were away, nodes that died."""

    @pytest.fixture
    def hooks(self, cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
        """Put something before the real hook: ``hooks("prolog", "exit 0")`` is a prolog that never ran."""
        saved = {name: (cluster.slurmgpu.hooks / name).read_text() for name in ("prolog", "epilog")}

        def before(name: str, lines: str) -> None:
            put(cluster.slurmgpu.hooks / name, "#!/bin/sh\n" + lines + "\n" + saved[name].partition("\n")[2])

        yield before
        for name, text in saved.items():
            put(cluster.slurmgpu.hooks / name, text)

    def test_no_epilog(self, cluster: Cluster, right: Check, hooks: Callable[[str, str], None]) -> None:
        """Slurm's word closes it, and what was read after its end is given back."""
        hooks("epilog", "exit 0")
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:2", "-w", "n1").running().done()
        run = job.settled("prolog, slurm")
        right("the epilog never ran", run, job.gpus, job.start_s, job.end_s, source="prolog, slurm")
        wait_for("its figures", 30, lambda: job.runs()[0]["gpus"][0]["covered_s"] <= LENGTH_S + 3)

    def test_no_prolog(self, cluster: Cluster, right: Check, hooks: Callable[[str, str], None]) -> None:
        """Without a process on the GPU: Slurm tells while it runs, the epilog at its end."""
        hooks("prolog", "exit 0")
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:2", "-w", "n2").running().done()
        run = job.begun()
        right("the prolog never ran", run, job.gpus, job.start_s, job.end_s, source=_source(run))
        wait_for("its figures", 90, lambda: (job.runs()[0]["coverage"] or 0) > 0.5)

    def test_no_hooks_and_a_process(self, cluster: Cluster, right: Check, hooks: Callable[[str, str], None]) -> None:
        hooks("prolog", "exit 0")
        hooks("epilog", "exit 0")
        job = Job.submit(cluster, _with_pid(cluster, "nohooks", 8), "--gres=gpu:1", "-w", "n2").running()
        text = cluster.slurmgpu.scenario("n2").read_text()
        pid = _pid(cluster, "n2", "nohooks")
        cluster.slurmgpu.set_scenario("n2", f"{text}\nprocess {job.gpus['n2'][0]} pid={pid} sm=50\n")
        job.done()
        cluster.slurmgpu.set_scenario("n2", text)
        source = (
            "cgroup, slurm" if "cgroup" in cluster.services.run("scontrol", "show", "config").stdout else "stepd, slurm"
        )
        run = job.settled(source)
        right("no hooks, a process on the GPU", run, job.gpus, job.start_s, job.end_s, source=source)

    def test_prolog_without_gpus(self, cluster: Cluster, right: Check, hooks: Callable[[str, str], None]) -> None:
        """What slurmd 24.11 does while it restarts itself: the epilog names them."""
        hooks("prolog", _without_gpus(cluster))
        job = Job.submit(cluster, f"sleep {LENGTH_S}", "--gres=gpu:2", "-w", "n3").running().done()
        (run,) = job.ended()
        right("a prolog without GPU variables", run, job.gpus, job.start_s, job.end_s)
        wait_for("its figures", 90, lambda: (job.runs()[0]["coverage"] or 0) > 0.5)

    def test_half_a_mark(self, cluster: Cluster, right: Check) -> None:
        half = ["sh", "-c", "printf 'SLURM_JOB_ID=1' > /run/slurmgpu/jobs/.1.prolog.1; : > /run/slurmgpu/jobs/junk"]
        cluster.node_exec("n1", *half)
        plain(cluster, right, "beside half a mark and junk", "--gres=gpu:1", "-w", "n1")
        cluster.node_exec("n1", "rm", "/run/slurmgpu/jobs/junk")

    def test_daemon_away_at_the_start(self, cluster: Cluster, right: Check) -> None:
        cluster.slurmgpu.stop_daemon("n3")
        job = Job.submit(cluster, "sleep 6", "--gres=gpu:1", "-w", "n3").running()
        time.sleep(1)  # the time without slurmgpud
        cluster.slurmgpu.start_daemon("n3")
        job.done()
        right("slurmgpud away at the start", job.ended()[0], job.gpus, job.start_s, job.end_s)

    def test_daemon_away_at_the_end(self, cluster: Cluster, right: Check) -> None:
        job = Job.submit(cluster, "sleep 5", "--gres=gpu:1", "-w", "n3").running()
        cluster.slurmgpu.stop_daemon("n3", signal.SIGKILL)
        job.done()
        cluster.slurmgpu.start_daemon("n3")
        right("slurmgpud away at the end", job.ended()[0], job.gpus, job.start_s, job.end_s)

    def test_run_cleared(self, cluster: Cluster, right: Check) -> None:
        """The marks are removed and slurmgpud starts anew: the epilog still closes the right run."""
        job = Job.submit(cluster, "sleep 8", "--gres=gpu:2", "-w", "n1").running()
        time.sleep(3)  # until a block of it is safe
        cluster.slurmgpu.stop_daemon("n1", signal.SIGKILL)
        cluster.node_exec("n1", "sh", "-c", "rm -rf /run/slurmgpu")
        cluster.slurmgpu.start_daemon("n1")
        job.done()
        right("/run cleared under a job", job.ended()[0], job.gpus, job.start_s, job.end_s)

    def test_node_dies(self, cluster: Cluster, table: Table, request: pytest.FixtureRequest) -> None:
        """Power fails: the first run ends with its last reading; the job starts again when the node is back."""
        job = Job.submit(cluster, "sleep 8", "--gres=gpu:2", "-w", "n4", "--requeue").running()
        first, started = job.gpus, _start(cluster, job.id)
        time.sleep(4)  # until a block of it is safe
        died_s = time.time()
        cluster.stop_node("n4")
        wait_for("slurmctld to notice", 90, lambda: "Restarts=1" in cluster.show_job(job.id))
        cluster.start_node("n4", "-b")
        job.running().done(90)
        runs = job.ended(2, final=False)
        (crashed,) = runs[0]["allocations"]
        assert gpus_of(runs[0]) == first
        assert near(seconds(crashed["start"]), started)
        # Either nothing is known of it after its last reading, or Slurm runs the epilog when the node is back.
        by_boot = died_s - cluster.settings.flush_s - 1 <= seconds(crashed["end"]) <= died_s + 1
        assert by_boot if crashed["end_source"] == "boot" else near(seconds(crashed["end"]), _slurms_end(cluster, job))
        source = f"prolog, {crashed['end_source']}"
        table.add(Row("the node dies: first run", "right", "right", source, request.node.name))
        check(table, "the node dies: second run", request.node.name, runs[1], job.gpus, job.start_s, job.end_s)

    def test_leftover_process(self, cluster: Cluster, table: Table, request: pytest.FixtureRequest) -> None:
        """A process that its job left behind is told with pid, user and job, and charged to nobody."""
        job = Job.submit(cluster, _with_pid(cluster, "left", 4), "--gres=gpu:1", "-w", "n2").running()
        pid = _pid(cluster, "n2", "left")
        outside = _survivor(cluster, "n2", job.id)
        text = cluster.slurmgpu.scenario("n2").read_text()
        lines = [f"process {job.gpus['n2'][0]} pid={number} sm=50" for number in (pid, outside)]
        cluster.slurmgpu.set_scenario("n2", "\n".join([text, *lines, ""]))
        job.done()
        (run,) = job.ended()

        def told() -> bool:
            return any(event["kind"] == "process.leftover" for event in job.runs()[0]["events"])

        wait_for("the event", 40, told)
        cluster.slurmgpu.set_scenario("n2", text)
        cluster.node_exec("n2", "kill", str(outside))
        (event,) = (event for event in job.runs()[0]["events"] if event["kind"] == "process.leftover")
        assert f"process {outside} of alice" in event["text"]
        assert gpus_of(run) == job.gpus
        table.add(Row("a process outlives its job", "right", "right", "prolog, epilog", request.node.name))


@pytest.fixture(scope="module")
def second(usable: None, other_instance: int) -> Iterator[Cluster]:
    """One node whose gres.conf names the last four of eight device files, and no PrologFlags."""
    settings = Settings(
        instance=other_instance,
        nodes=1,
        gres_files="/dev/nvidia[6,4-5,7]",
        gres_gpus=4,
        prolog_flags="",
        slurmgpu=True,
        flush_s=3.0,
    )
    made = Cluster(settings)
    try:
        made.up()
        yield made
    finally:
        made.down()


class TestOtherSettings:
    """A cluster that numbers its GPUs otherwise, and runs its prolog at the first step."""

    def test_gres_conf_skips(self, second: Cluster, right: Check) -> None:
        """Slurm's 0 is /dev/nvidia6: the report's UUIDs are those of the devices that the job could open."""
        seen = Path(f"/tmp/{second.settings.name}-opened")
        probe = "for g in 4 5 6 7; do (: </dev/nvidia$g) 2>&1; done"
        job = plain(
            second,
            right,
            "gres.conf names some of the devices, in its own order",
            *("--gres=gpu:2", "-w", "n1", "-o", str(seen)),
            script=f"{probe}; sleep {LENGTH_S}",
        )
        (run,) = job.runs()
        assert [gpu["gpu_uuid"] for gpu in run["gpus"]] == [uuid("n1", number) for number in (6, 4)]
        if "proctrack/cgroup" in second.services.run("scontrol", "show", "config").stdout:
            refused = set(re.findall(r"/dev/nvidia(\d): Operation not permitted", seen.read_text()))
            assert refused == {"5", "7"}
        seen.unlink()

    def test_prolog_at_the_first_step(self, second: Cluster, right: Check) -> None:
        """Hours after the start in life, seconds here: Slurm's start counts."""
        before = Job.submit(second, "true", "--hold").id
        second.run("salloc", "--gres=gpu:1", "-w", "n1", "sh", "-c", "sleep 8; srun sleep 2")
        job = Job(second, before + 1, {"n1": [0]}).done()
        run = job.begun()
        right("the prolog runs at the first step, late", run, job.gpus, job.start_s, job.end_s)

    def test_epilog_only(self, second: Cluster, right: Check) -> None:
        """Without PrologFlags=Alloc, a salloc without a step has an epilog and no prolog."""
        before = Job.submit(second, "true", "--hold").id
        second.run("salloc", "--gres=gpu:3", "-w", "n1", "sleep", str(LENGTH_S))
        job = Job(second, before + 1, {"n1": [0, 1, 2]}).done()
        run = job.begun()
        right("an epilog without a prolog", run, job.gpus, job.start_s, job.end_s, source="epilog, epilog")


# -- inside


def _source(run: dict[str, object]) -> str:
    (first, *_) = run["allocations"]  # type: ignore[misc]
    return f"{first['source']}, {first['end_source']}"  # type: ignore[index]


def _slurms_end(cluster: Cluster, job: Job) -> float:
    """The end of its first run, by the accounting."""
    command = ["sacct", "-n", "-P", "-X", "-D", "-j", str(job.id), "-S", "now-1hours", "-o", "End"]
    return seconds(cluster.services.run(*command).stdout.split()[0])


def _raw_ids(cluster: Cluster, array: int) -> dict[int, int]:
    """Task → raw id of an array's tasks that started."""
    text = cluster.services.run("squeue", "-h", "-r", "-t", "all", "-j", str(array), "-o", "%K %A %T").stdout
    rows = [line.split() for line in text.splitlines()]
    return {int(task): int(raw) for task, raw, state in rows if state != "PENDING"}


def _start(cluster: Cluster, job: int) -> float:
    return time_of(cluster.show_job(job), "StartTime")


def _without_gpus(cluster: Cluster) -> str:
    """The real hook with an environment that lacks the GPU variables."""
    real = cluster.settings.root / "libexec" / "real-prolog"
    put(real, (cluster.slurmgpu.hooks / "prolog").read_text())
    names = ("SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
    removed = " ".join(f"-u {name}" for name in names)
    return f"exec env {removed} {real}"


def _with_pid(cluster: Cluster, name: str, length_s: int) -> str:
    """A script that says its pid, as the node has it, and lives for a while."""
    return f"echo $$ > /tmp/{cluster.settings.name}-{name}; exec sleep {length_s}"


def _pid(cluster: Cluster, node: str, name: str) -> int:
    path = Path(f"/tmp/{cluster.settings.name}-{name}")
    wait_for(f"the pid of {name}", 20, lambda: path.exists() and path.read_text().strip())
    pid = int(path.read_text())
    path.unlink()
    return pid


def _survivor(cluster: Cluster, node: str, job: int) -> int:
    """A process of alice's with the job's environment that Slurm does not kill: it left the job's control groups."""
    command = f"SLURM_JOB_ID={job} setsid setpriv --reuid alice --clear-groups sleep 120 >/dev/null 2>&1 & echo $!"
    return int(cluster.node_exec(node, "sh", "-c", command).stdout)
