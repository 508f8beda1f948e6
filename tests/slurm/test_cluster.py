"""The test cluster itself: nodes that are apart, Slurm that does what it does elsewhere, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from processes import wait_for
from settings import ClusterError, Settings

CLUSTER_PY = Path(__file__).parents[2] / "contrib" / "testcluster" / "cluster.py"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
OPEN_ALL = """
until [ -e {go} ]; do sleep 0.1; done
for g in 0 1 2 3 4 5 6 7; do (: </dev/nvidia$g) 2>&1; done
exit 0
"""


def inside(cluster: Cluster, node: str, script: str) -> str:
    result = cluster.node_exec(node, "sh", "-ec", script)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def boot_ids(cluster: Cluster) -> dict[str, str]:
    return {node: inside(cluster, node, f"cat {BOOT_ID}") for node in cluster.settings.node_names}


def limits_devices(cluster: Cluster) -> bool:
    return "proctrack/cgroup" in cluster.services.run("scontrol", "show", "config").stdout


def gpus_opened(output: Path) -> list[int]:
    """Of which GPUs OPEN_ALL was not refused the device file; what a driver would say then is another thing."""
    refused = re.findall(r"/dev/nvidia(\d): Operation not permitted", output.read_text())
    return [number for number in range(8) if str(number) not in refused]


def traces(settings: Settings) -> list[str]:
    """What is on this machine of a cluster: processes, links and cgroups."""
    found = [path.name for path in Path("/sys/class/net").glob(f"{settings.bridge}*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{settings.name}")]
    mark = f"{settings.root}/".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "cmdline").read_bytes() or mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # gone meanwhile
            continue
    return found


class TestNodes:
    def test_each_has_what_a_machine_has(self, cluster: Cluster) -> None:
        """Its own host name, address, /run, eight GPUs and processes; numbers that no other node has."""
        for number, node in enumerate(cluster.settings.node_names, start=1):
            assert inside(cluster, node, "hostname") == node
            assert f"{cluster.settings.address(10 + number)}/24" in inside(cluster, node, "ip -br addr show eth0")
            inside(cluster, node, f"touch /run/{node} /var/lib/slurmgpu/{node}")
            assert len(inside(cluster, node, "ls -d /dev/nvidia[0-9]").split()) == 8
            assert inside(cluster, node, "cat /proc/1/comm") == "node-init.sh"
        for node in cluster.settings.node_names:
            seen = inside(cluster, node, "cd /run; ls -d n?; cd /var/lib/slurmgpu; ls -d n?")
            assert seen.split() == [node, node]
        boots = boot_ids(cluster)
        assert len({*boots.values(), Path(BOOT_ID).read_text().strip()}) == len(boots) + 1

    def test_reboot(self, cluster: Cluster) -> None:
        """Another boot id, an empty /run, the disk as it was; the other nodes go on; slurmd and slurmgpud are back."""
        before = boot_ids(cluster)
        inside(cluster, "n2", "touch /run/lost /var/lib/slurmgpu/kept")
        cluster.reboot_node("n2")
        cluster.wait_idle("n2")
        after = boot_ids(cluster)
        assert [node for node in before if before[node] != after[node]] == ["n2"]
        inside(cluster, "n2", "test ! -e /run/lost; test -e /var/lib/slurmgpu/kept")
        assert cluster.run("srun", "-w", "n2", "--gres=gpu:1", "hostname").stdout.split() == ["n2"]
        assert cluster.processes.pid("slurmgpud.n2")


class TestJobs:
    def test_two_nodes_get_their_gpus(self, cluster: Cluster) -> None:
        """Numbers are each node's own; nodes with the same numbers are one line of scontrol's."""
        same = cluster.sbatch("sleep 600", "-N2", "--gres=gpu:2", "-w", "n1,n2")
        cluster.wait_state(same, "RUNNING")
        assert cluster.gpu_indices(same) == {"n1": [0, 1], "n2": [0, 1]}
        one = cluster.sbatch("sleep 600", "--gres=gpu:1", "-w", "n1", user="bob")
        cluster.wait_state(one, "RUNNING")
        tell = "echo $(hostname) $SLURM_STEP_GPUS"
        rows = cluster.run("srun", "-N2", "--gres=gpu:3", "-w", "n1,n2", "sh", "-c", tell).stdout.split("\n")
        assert sorted(filter(None, rows)) == ["n1 3,4,5", "n2 2,3,4"]
        for job, user in ((same, "alice"), (one, "bob")):
            cluster.run("scancel", str(job), user=user)
            assert cluster.wait_done(job) == "CANCELLED"

    def test_requeue(self, cluster: Cluster) -> None:
        job = cluster.sbatch('[ "$SLURM_RESTART_COUNT" = 1 ] || sleep 600', "--gres=gpu:1", "--requeue")
        cluster.wait_state(job, "RUNNING")
        cluster.services.run("scontrol", "requeue", str(job))
        assert cluster.wait_done(job) == "COMPLETED"
        assert "Restarts=1 " in cluster.show_job(job)

    def test_second_gres(self, cluster: Cluster) -> None:
        """n3 has MPS, n4 has shards: two jobs share a GPU there."""
        jobs = [cluster.sbatch("sleep 600", "--gres=shard:2") for _ in range(2)]
        for job in jobs:
            cluster.wait_state(job, "RUNNING")
            assert "Nodes=n4 " in cluster.show_job(job)
            cluster.run("scancel", str(job))
        assert cluster.run("srun", "--gres=mps:50", "hostname").stdout.split() == ["n3"]


class TestController:
    def test_restart_keeps_jobs(self, cluster: Cluster) -> None:
        job = cluster.sbatch("sleep 600", "--gres=gpu:1", "-w", "n1")
        cluster.wait_state(job, "RUNNING")
        before = cluster.processes.pid("slurmctld")
        cluster.restart_slurmctld()
        assert cluster.processes.pid("slurmctld") != before
        assert (cluster.state(job), cluster.gpu_indices(job)) == ("RUNNING", {"n1": [0]})
        cluster.run("scancel", str(job))
        assert cluster.wait_done(job) == "CANCELLED"
        cluster.wait_idle()

    def test_parts_of_slurmgpu_stop_and_start(self, cluster: Cluster) -> None:
        cluster.slurmgpu.stop_daemon("n4", signal.SIGKILL)
        assert cluster.processes.pid("slurmgpud.n4") is None
        cluster.slurmgpu.stop_collector()
        assert cluster.processes.pid("collect") is None
        cluster.slurmgpu.start_collector()
        cluster.slurmgpu.start_daemon("n4")
        with pytest.raises(ClusterError, match="slurmgpud runs on n4"):
            cluster.slurmgpu.start_daemon("n4")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hook") / "record"


@pytest.fixture(scope="module")
def second(cluster: Cluster, other_instance: int, record: Path) -> Iterator[Cluster]:
    hook = record.with_name("hook.sh")
    hook.write_text(f'#!/bin/sh\necho "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_GPUS" >>{record}\n')
    hook.chmod(0o755)
    hooks = (f"Prolog={hook}", f"Epilog={hook}")
    made = Cluster(Settings(instance=other_instance, nodes=2, slurm_conf=hooks))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users can write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


class TestTwoClusters:
    """A small one beside that of the session, with a hook of its own. The last test takes it down."""

    def command(self, second: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(CLUSTER_PY), "--instance", str(second.settings.instance), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_hooks_run(self, second: Cluster, record: Path) -> None:
        job = second.sbatch("true", "--gres=gpu:2")
        assert second.wait_done(job) == "COMPLETED"
        assert record.read_text().split("\n")[:2] == [f"prolog_slurmd {job} 0,1", f"epilog_slurmd {job} 0,1"]

    def test_jobs_of_one_number_have_their_own_gpus(self, cluster: Cluster, second: Cluster, shared: Path) -> None:
        """Two clusters have a node n1 and come to the same job numbers; what a job may open is its own affair."""
        blocker = cluster.sbatch("sleep 600", "--gres=gpu:1", "-w", "n1", user="bob")
        cluster.wait_state(blocker, "RUNNING")
        last = {cluster: 0, second: 0}
        while last[cluster] != last[second] or not last[cluster]:
            behind = min(last, key=lambda which: last[which])
            last[behind] = behind.sbatch("true", "--hold", user="bob")
        script, outputs, expected = OPEN_ALL.format(go=shared / "go"), {}, {cluster: [1], second: [0]}
        for which, gpus in expected.items():
            outputs[which] = shared / which.settings.name
            job = which.sbatch(script, "-o", str(outputs[which]), "--gres=gpu:1", "-w", "n1")
            assert job == last[cluster] + 1
            which.wait_state(job, "RUNNING")
            assert which.gpu_indices(job) == {"n1": gpus}
        (shared / "go").touch()
        for which, gpus in expected.items():
            assert which.wait_done(last[cluster] + 1) == "COMPLETED"
            assert gpus_opened(outputs[which]) == (gpus if limits_devices(which) else list(range(8)))
            which.run("scancel", "-u", "bob", user="bob")
        assert cluster.wait_done(blocker) == "CANCELLED"

    def test_command_line(self, second: Cluster) -> None:
        settings = second.settings
        assert self.command(second, "up").stdout == f"it is up in {settings.root}\n"
        assert self.command(second, "env").stdout == f"export SLURM_CONF={settings.slurm_conf_path}\n"
        assert self.command(second, "exec", "n2", "hostname").stdout == "n2\n"
        assert self.command(second, "exec", "n2", "sh", "-c", "exit 7").returncode == 7
        assert "==> slurmctld.log <==" in self.command(second, "logs").stdout
        assert "slurmd version" in self.command(second, "logs", "slurmd.n1.log").stdout
        assert "slurmd.n1 " in self.command(second, "status").stdout
        assert self.command(second, "stop-node", "n9").stderr == "cluster.py: no node n9: there are n1, n2\n"
        assert "there is no slurmgpu in it" in self.command(second, "collector", "stop").stderr

    def test_down_leaves_nothing(self, cluster: Cluster, second: Cluster) -> None:
        """A job runs, and another process than the one that brought it up takes it down. The other cluster stays."""
        job = second.sbatch("sleep 600", "-N2")
        second.wait_state(job, "RUNNING")
        assert len(traces(second.settings)) > 10
        result = self.command(second, "down")
        assert (result.returncode, result.stderr) == (0, "")
        wait_for("the end of all traces", 5, lambda: not traces(second.settings))
        assert not second.settings.root.exists()
        cluster.wait_idle()


class TestFailures:
    def test_failed_up_leaves_nothing_running(self, other_instance: int) -> None:
        """It says why at once and keeps the logs; down removes them."""
        failing = Cluster(Settings(instance=other_instance, nodes=1, slurm_conf=("SlurmdSpoolDir=/dev/null/no",)))
        try:
            with pytest.raises(ClusterError, match=r"slurmd\.n1 ended(.|\n)*/dev/null/no"):
                failing.up()
            assert traces(failing.settings) == []
            assert "/dev/null/no" in failing.logs_text()
            assert not failing.is_up()
        finally:
            failing.down()
        assert not failing.settings.root.exists()

    def test_folder_of_somebody_else_stays(self, other_instance: int, tmp_path: Path) -> None:
        (tmp_path / "thesis").write_text("years")
        foreign = Cluster(Settings(instance=other_instance, folder=str(tmp_path)))
        with pytest.raises(ClusterError, match="is something else"):
            foreign.up()
        foreign.down()
        assert [path.name for path in tmp_path.iterdir()] == ["thesis"]
        os.chown(tmp_path, 1, 1)
        (tmp_path / "settings.json").write_text("{}")
        with pytest.raises(ClusterError, match="is somebody else's"):
            Settings.load(other_instance, str(tmp_path))

    def test_one_instance_once(self, cluster: Cluster, tmp_path: Path) -> None:
        """Another folder with the same number would take the running cluster's network."""
        with pytest.raises(ClusterError, match="give another --instance"):
            Cluster(Settings(instance=cluster.settings.instance, folder=str(tmp_path / "c"))).up()
        assert not (tmp_path / "c").exists()
        cluster.wait_idle()
