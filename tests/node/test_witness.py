"""What processes say of owners, beside and against the marks."""

from pathlib import Path

import pytest

from slurmgpu.node.ownership import News, Ownership
from slurmgpu.node.processes import GpuProcess
from slurmgpu.node.witness import Witness
from slurmgpu.wire.records import Allocation, Event
from tests.node.test_ownership import allocations, changes, mark, ownership
from tests.node.test_pids import SLUID, Proc

NOW = 5000.0


class Node:
    """Marks, processes and GPUs of an invented node. Processes began 100 s ago, see :class:`Proc`."""

    def __init__(self, folder: Path) -> None:
        self.proc = Proc(folder)
        self.ownership: Ownership = ownership()
        self.on_gpu: dict[str, list[GpuProcess]] = {f"GPU-{i}": [] for i in range(8)}
        self.now = NOW

    def stepd(self, job: int, group: str | None = None) -> None:
        group = group or f"job_{job}"
        self.proc.add(
            10_000 + job, f"slurmstepd: [{job}.0]", f"0::/system.slice/slurmstepd.scope/{group}/step_0", uid=0
        )

    def run(self, pid: int, job: int, gpu: int, group: str | None = None) -> None:
        group = group or f"job_{job}"
        self.proc.add(pid, "python train.py", f"0::/system.slice/slurmstepd.scope/{group}/step_0/user/task_0")
        self.on_gpu[f"GPU-{gpu}"].append(GpuProcess(pid, "compute", None))

    def end(self, pid: int) -> None:
        for listed in self.on_gpu.values():
            listed[:] = [process for process in listed if process.pid != pid]
        folder = self.proc.root / str(pid)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def look(self, after_s: float = 30) -> News:
        self.now += after_s
        witness, owners = Witness(self.proc, lambda: self.now), self.ownership
        look = witness.look(self.on_gpu, owners.knows, owners.job_of_sluid, count_jobs=bool(owners.witnessed()))
        return owners.witness(self.now, look)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def events(news: News) -> list[tuple[str, str | None]]:
    return [(record.kind, record.gpu) for record in news.records if isinstance(record, Event)]


def test_processes_that_the_marks_explain_are_not_looked_into(node: Node) -> None:
    node.ownership.take([mark(7, "prolog", 4900.0, SLURM_JOB_GPUS="2")])
    node.run(100, 7, gpu=2)
    node.proc.stepds = None  # type: ignore[assignment] - any use of it fails
    assert node.look() == News()


def test_job_without_marks_owns_what_it_runs_on_until_it_is_gone(node: Node) -> None:
    node.stepd(7)
    node.run(100, 7, gpu=2)
    news = node.look()
    began = NOW + 30 - 100
    (opened,) = allocations(news)
    assert (opened.job_id, opened.source, opened.start_ms, opened.end_ms) == (7, "cgroup", began * 1000, None)
    assert [(gpu.uuid, gpu.ordinal, gpu.told) for gpu in opened.gpus] == [("GPU-2", 2, "processes")]
    assert changes(news) == [(began, "GPU-2", (opened.id,))]
    node.run(101, 7, gpu=3)
    assert [gpu.uuid for gpu in allocations(node.look())[0].gpus] == ["GPU-2", "GPU-3"]
    node.end(100)  # no process on GPU 2 now: the job still has it
    assert node.look() == News()
    last_seen = node.now
    node.end(101)
    node.end(10_007)
    (closed,) = allocations(node.look())
    assert (closed.id, closed.end_ms, closed.end_source) == (opened.id, last_seen * 1000, "processes")


def test_prolog_at_the_first_step_takes_over(node: Node) -> None:
    node.stepd(7)
    node.run(100, 7, gpu=2)
    (opened,) = allocations(node.look())
    news = node.ownership.take([mark(7, "prolog", node.now + 1, SLURM_JOB_GPUS="2,4", SLURM_JOB_USER="alice")])
    (adopted,) = allocations(news)
    assert (adopted.id, adopted.start_ms, adopted.user) == (opened.id, opened.start_ms, "alice")
    assert changes(news) == [(node.now + 1, "GPU-4", (opened.id,))]
    (closed,) = allocations(node.ownership.take([mark(7, "epilog", node.now + 9, SLURM_JOB_GPUS="2,4")]))
    assert (closed.id, closed.end_source) == (opened.id, "epilog")


def test_marks_win_and_a_disagreement_is_told_once(node: Node) -> None:
    node.ownership.take([mark(7, "prolog", 4900.0, SLURM_JOB_GPUS="2"), mark(8, "prolog", 4900.0, SLURM_JOB_GPUS="3")])
    node.stepd(7)
    node.stepd(9)
    node.run(100, 7, gpu=3)  # by its marks it has another
    node.run(101, 9, gpu=2)  # no mark at all
    news = node.look()
    assert sorted(events(news)) == [("owner.disagrees", "GPU-2"), ("owner.disagrees", "GPU-3")]
    assert news.changes == []
    assert node.look() == News()


def test_leftover_is_told_at_the_second_look(node: Node) -> None:
    marks = [mark(7, "prolog", 4900.0, SLURM_JOB_GPUS="2", SLURM_JOB_USER="alice")]
    node.ownership.take([*marks, mark(7, "epilog", 5001.0)])
    node.run(100, 7, gpu=2)  # its slurmstepd is gone
    assert events(node.look()) == []
    news = node.look()
    assert events(news) == [("process.leftover", "GPU-2")]
    (event,) = news.records
    assert isinstance(event, Event)
    assert "process 100 of alice" in event.text
    assert (event.allocation, "job 7 has ended" in event.text) == ("7@4900000", True)
    assert node.look() == News()
    node.ownership.take([mark(8, "prolog", node.now, SLURM_JOB_GPUS="2")])
    assert node.ownership.owners("GPU-2") == (f"8@{round(node.now * 1000)}",)


def test_leftover_that_was_there_before_the_daemon_is_no_job(node: Node) -> None:
    node.run(100, 7, gpu=2)
    assert [events(node.look()), events(node.look())] == [[], [("process.leftover", "GPU-2")]]
    assert node.ownership.owners("GPU-2") == ()


def test_prolog_without_gpus_is_completed_by_the_processes_and_the_epilog(node: Node) -> None:
    """Slurm 24.11, while slurmd restarts itself: the prolog has no GPU variable, the epilog has them."""
    node.ownership.take([mark(7, "prolog", 4990.0)])
    node.stepd(7)
    node.run(100, 7, gpu=5)
    news = node.look()
    (grown,) = allocations(news)
    assert changes(news) == [(4990.0, "GPU-5", (grown.id,))]
    closing = node.ownership.take([mark(7, "epilog", 5040.0, SLURM_JOB_GPUS="5,6")])
    closed = allocations(closing)[-1]
    assert [(gpu.uuid, gpu.told) for gpu in closed.gpus] == [("GPU-5", "processes"), ("GPU-6", "epilog")]
    assert (closed.id, closed.end_ms) == (grown.id, 5_040_000)


def test_groups_named_by_sluid(node: Node) -> None:
    node.stepd(7, SLUID)
    node.run(100, 7, gpu=1, group=SLUID)
    (opened,) = allocations(node.look())
    assert (opened.job_id, opened.source) == (7, "cgroup")
    node.ownership.take([mark(8, "prolog", 4999.0, SLURM_JOB_GPUS="2", SLURM_JOB_SLUID="s0000000000008")])
    node.run(101, 8, gpu=2, group="s0000000000008")
    assert node.look() == News()


def test_environment_counts_only_without_control_groups(node: Node) -> None:
    node.proc.add(100, "python", "0::/", SLURM_JOB_ID="7")
    node.on_gpu["GPU-0"].append(GpuProcess(100, "compute", None))
    node.proc.add(50, "slurmstepd: [7.0]", "0::/", uid=0)
    (opened,) = allocations(node.look())
    assert (opened.job_id, opened.source) == (7, "environment")
    node.stepd(8)  # control groups are in use: the environment is no witness
    node.proc.add(101, "python", "0::/", SLURM_JOB_ID="8")
    node.on_gpu["GPU-1"].append(GpuProcess(101, "compute", None))
    assert allocations(node.look()) == []


def test_two_jobs_without_marks_share(node: Node) -> None:
    node.stepd(7)
    node.stepd(8)
    node.run(100, 7, gpu=1)
    node.run(101, 8, gpu=1)
    assert len(allocations(node.look())) == 2
    assert len(node.ownership.owners("GPU-1")) == 2


def test_job_id_that_comes_back_begins_after_its_first_end(node: Node) -> None:
    node.ownership.take([mark(7, "prolog", 4900.0, SLURM_JOB_GPUS="2"), mark(7, "epilog", 4990.0)])
    node.stepd(7)
    node.run(100, 7, gpu=2)  # began at 4930: it cannot be the ended run's
    (opened,) = allocations(node.look())
    assert opened.start_ms == 4_990_000


def test_a_restart_takes_up_what_has_no_marks(node: Node) -> None:
    node.stepd(7)
    node.run(100, 7, gpu=2)
    (opened,) = allocations(node.look())
    node.ownership = ownership()
    news = node.ownership.go_on([opened], node.now)
    assert changes(news) == [(node.now, "GPU-2", (opened.id,))]
    assert node.look() == News()


def test_resolved_when_the_gpus_are_there() -> None:
    made = ownership([])
    (opened,) = allocations(made.take([mark(7, "prolog", 100.0, SLURM_JOB_GPUS="0,1")]))
    assert opened.unresolved == ("0", "1")
    made.set_devices(ownership_devices())
    news = made.resolve_again()
    (found,) = allocations(news)
    assert ([gpu.uuid for gpu in found.gpus], found.unresolved) == (["GPU-0", "GPU-1"], ())
    assert changes(news) == [(100.0, f"GPU-{i}", (opened.id,)) for i in (0, 1)]
    assert made.resolve_again() == News()


def ownership_devices() -> list:  # type: ignore[type-arg]
    from tests.node.test_ownership import devices

    return devices([0, 1])


def test_length_stays_true_when_the_clock_is_set() -> None:
    for by_s in (3600.0, -3600.0):
        made = ownership()
        made.take([mark(7, "prolog", 10_000.0, SLURM_JOB_GPUS="0")])
        made.clock_was_set(by_s)
        (closed,) = allocations(made.take([mark(7, "epilog", 10_060.0 + by_s)]))
        assert (closed.start_ms, closed.end_ms) == (10_000_000, 10_060_000)


def test_two_clusters_on_one_machine() -> None:
    made = ownership()
    ours = {"SLURM_CLUSTER_NAME": "cluster", "SLURMD_NODENAME": "host"}
    theirs = {"SLURM_CLUSTER_NAME": "other", "SLURMD_NODENAME": "host"}
    marks = [mark(7, "prolog", 1.0, SLURM_JOB_GPUS="0", **ours), mark(7, "prolog", 2.0, SLURM_JOB_GPUS="1", **theirs)]
    first, second = allocations(made.take(marks))
    assert (first.id, second.id, second.cluster) == ("7@1000", "other/host/7@2000", "other")
    (closed,) = allocations(made.take([mark(7, "epilog", 3.0, **ours)]))
    assert closed.id == first.id
    assert made.owners("GPU-1") == (second.id,)
    assert isinstance(closed, Allocation)
