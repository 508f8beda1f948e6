"""Process → job, from recorded control groups of four releases and from what a user may try."""

import csv
from pathlib import Path

import pytest

from slurmgpu.config import NodeConfig
from slurmgpu.node.pids import Pids, ProcessJob

RECORDED = Path(__file__).parents[1] / "data" / "slurm" / "proc_cgroup.tsv"
SLUID = "sBTXM8R2NDRK00"


class Proc(Pids):
    """An invented /proc. Whose a process is stands in a file, since not every test runs as root."""

    def __init__(self, root: Path, roots: tuple[str, ...] = NodeConfig().cgroup_roots) -> None:
        super().__init__(roots, root)
        self.root = root
        (root / "uptime").write_text("1000.50 1.00\n")

    def add(self, pid: int, command: str, *cgroup: str, parent: int = 1, uid: int = 1000, **environment: str) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        words = command.split(" ") if not command.startswith("slurmstepd:") else [command]
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
        (folder / "comm").write_text(Path(words[0].split(":")[0]).name[:15] + "\n")
        (folder / "cgroup").write_text("".join(f"{line}\n" for line in cgroup))
        (folder / "stat").write_text(f"{pid} (a) b ({words[0]}) S {parent} " + "0 " * 17 + "90050 0\n")
        (folder / "environ").write_bytes(b"".join(f"{k}={v}".encode() + b"\0" for k, v in environment.items()))
        (folder / "uid").write_text(str(uid))

    def uid_of(self, pid: int) -> int | None:
        file = self.root / str(pid) / "uid"
        return int(file.read_text()) if file.exists() else None


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def rows() -> list[dict[str, str]]:
    with RECORDED.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_recorded(proc: Proc, release: str, version: str) -> None:
    recorded = [row for row in rows() if (row["release"], row["cgroup"]) == (release, version)]
    assert recorded
    for pid, row in enumerate(recorded, start=100):
        is_roots = row["command line"].startswith("slurm")
        proc.add(pid, row["command line"], row["line of /proc/PID/cgroup"], uid=0 if is_roots else 1000)
    job_id = 15 if version == "v1" else 1
    by_sluid = version == "v2" and release == "26.05"
    expected = ProcessJob("cgroup", None, SLUID) if by_sluid else ProcessJob("cgroup", job_id)
    for pid, row in enumerate(recorded, start=100):
        assert proc.job_of(pid) == (None if row["command line"] == "slurmd -D -N n1" else expected)
    stepds = proc.stepds()
    assert (stepds.jobs, stepds.in_cgroups) == ({job_id}, True)
    assert stepds.by_sluid == ({SLUID: 1} if by_sluid else {})


def test_without_control_groups_the_parents_tell(proc: Proc) -> None:
    proc.add(10, "slurmstepd: [77.batch]", "0::/", uid=0)
    proc.add(11, "/bin/sh script", "0::/", parent=10, SLURM_JOB_ID="1")
    proc.add(12, "python train.py", "0::/", parent=11)
    proc.add(13, "setsid python", "0::/", parent=1, SLURM_JOB_ID="78")
    assert proc.job_of(12) == ProcessJob("stepd", 77)
    assert proc.job_of(13) is None
    assert proc.by_environment(13) == ProcessJob("environment", 78)
    assert not proc.stepds().in_cgroups


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1000.slice/job_9/step_0",
        "0::/user.slice/slurm/uid_1000/job_9/step_0",
        "0::/user.slice/user-1000.slice/slurmstepd.scope/job_9/step_0/user",
        "0::/system.slice/evil/n1_slurmstepd.scope/job_9/step_0",
        "1:name=/slurm/job_9:/user.slice",
        "4:memory:/slurmx/uid_1000/job_9",
    ],
)
def test_groups_that_are_not_slurms_say_nothing(proc: Proc, cgroup: str) -> None:
    proc.add(10, "python", cgroup)
    assert proc.job_of(10) is None


def test_a_process_that_calls_itself_slurmstepd_is_none(proc: Proc) -> None:
    proc.add(10, "slurmstepd: [9.0]", "0::/", uid=1000)
    proc.add(11, "python", "0::/", parent=10)
    assert proc.job_of(11) is None
    assert proc.stepds().jobs == set()


@pytest.mark.parametrize("value", ["", "x", "9" * 40, "-1", "٣"])
def test_environment_that_makes_no_sense(proc: Proc, value: str) -> None:
    proc.add(10, "python", "0::/", SLURM_JOB_ID=value, MY_SLURM_JOB_ID="7")
    assert proc.by_environment(10) is None


def test_roots_of_ones_own(tmp_path: Path) -> None:
    proc = Proc(tmp_path, ("/slurm_a1",))
    proc.add(10, "python", "6:freezer:/slurm_a1/uid_1/job_5/step_0")
    proc.add(11, "python", "6:freezer:/slurm_b1/uid_1/job_5/step_0")
    proc.add(12, "python", "6:freezer:/../../slurm_a1/uid_1/job_6/step_0")  # from another namespace
    assert [proc.job_of(pid) for pid in (10, 11, 12)] == [ProcessJob("cgroup", 5), None, ProcessJob("cgroup", 6)]


def test_age_and_processes_that_are_gone(proc: Proc) -> None:
    proc.add(10, "python", "0::/")
    assert proc.age_s(10) == pytest.approx(1000.50 - 900.50)
    assert (proc.job_of(99), proc.age_s(99), proc.by_environment(99)) == (None, None, None)
