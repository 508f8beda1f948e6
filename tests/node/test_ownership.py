"""GPU → job from recorded and from invented marks."""

from pathlib import Path

import pytest

from slurmgpu.node.gpunames import tokens
from slurmgpu.node.identity import Identity
from slurmgpu.node.marks import Mark, parse_environment
from slurmgpu.node.nvml import Device
from slurmgpu.node.ownership import News, Ownership
from slurmgpu.wire.records import Allocation
from tests.node.test_marks import RECORDED, block


def devices(minors: list[int | None], prefix: str = "GPU-") -> list[Device]:
    return [Device(None, index, f"{prefix}{index}", minor, None, None, None) for index, minor in enumerate(minors)]


def ownership(minors: list[int | None] | None = None) -> Ownership:
    made = Ownership(Identity("cluster", "host"))
    made.set_devices(devices(list(range(8)) if minors is None else minors))
    return made


def mark(job: int, hook: str, t: float, **environment: str) -> Mark:
    return Mark(Path(f"/m/{job}.{hook}.{t}"), job, hook, t, environment)


def allocations(news: News) -> list[Allocation]:
    return [record for record in news.records if isinstance(record, Allocation)]


def changes(news: News) -> list[tuple[float, str, tuple[str, ...]]]:
    return [(change.t, change.gpu, change.owners) for change in news.changes]


def recorded(name: str, t: float) -> Mark:
    (file,) = RECORDED.glob(name)
    raw = dict(entry.split(b"=", 1) for entry in block(file).split(b"\0")[:-1])
    hook = file.name.split(".")[2]
    return Mark(file, int(raw[b"SLURM_JOB_ID"]), hook, t, parse_environment(block(file)))


@pytest.mark.parametrize(
    ("case", "gpus"),
    [
        ("prolog.plain.n1.env", ["GPU-0", "GPU-1"]),
        ("prolog.gap.n1.env", None),
        ("prolog.nogpu.n2.env", []),
        ("prolog.exclusive_nogres.n4.env", [f"GPU-{i}" for i in range(8)]),
        ("prolog.shard3.n4.env", ["GPU-0"]),
    ],
)
@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
def test_recorded_prologs(release: str, case: str, gpus: list[str] | None) -> None:
    item = recorded(f"{release}.{case}", 100.0)
    (allocation,) = allocations(ownership().take([item]))
    held = [gpu.uuid for gpu in allocation.gpus]
    if gpus is None:  # two GPUs that are not neighbours
        first, second = (int(uuid.removeprefix("GPU-")) for uuid in held)
        assert second - first > 1
    else:
        assert held == gpus
    assert allocation.unresolved == ()
    assert (allocation.cluster, allocation.node) == ("simcluster", case.split(".")[2])
    assert allocation.user == "alice"


@pytest.mark.parametrize("release", ["25.11", "26.05"])
def test_uuids_in_the_hook_win(release: str) -> None:
    item = recorded(f"{release}.prolog.uuid.n1.env", 1.0)
    named = item.environment["CUDA_VISIBLE_DEVICES"].split(",")
    made = Ownership(Identity("c", "h"))
    # The driver lists them the other way round and with other minors: only the UUID can be right.
    made.set_devices([Device(None, i, uuid, 7 - i, None, None, None) for i, uuid in enumerate(reversed(named))])
    (allocation,) = allocations(made.take([item]))
    assert [gpu.uuid for gpu in allocation.gpus] == named
    assert [gpu.ordinal for gpu in allocation.gpus] == [int(n) for n in item.environment["SLURM_JOB_GPUS"].split(",")]


def test_lists_that_disagree_in_count_are_said() -> None:
    item = mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0,1,2", CUDA_VISIBLE_DEVICES="GPU-4,GPU-5")
    (allocation,) = allocations(ownership().take([item]))
    assert [(gpu.uuid, gpu.ordinal) for gpu in allocation.gpus] == [("GPU-4", None), ("GPU-5", None)]
    assert allocation.unresolved == ("SLURM_JOB_GPUS=0,1,2 beside 2 UUIDs",)


def test_ordinals_are_minors_not_nvml_indices() -> None:
    made = ownership([3, 2, 1, 0])
    (allocation,) = allocations(made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0,2")]))
    assert [gpu.uuid for gpu in allocation.gpus] == ["GPU-3", "GPU-1"]


class TestGresConf:
    """gres.conf gives the device files that Slurm's numbers count."""

    @staticmethod
    def held(tmp_path: Path, text: str, numbers: str, devices: list[Device]) -> list[str]:
        (tmp_path / "gres.conf").write_text(text)
        made = Ownership(Identity("cluster", "n2"))
        made.set_devices(devices)
        item = mark(1, "prolog", 1.0, SLURM_JOB_GPUS=numbers, SLURM_CONF=str(tmp_path / "slurm.conf"))
        (allocation,) = allocations(made.take([item]))
        return [gpu.uuid for gpu in allocation.gpus] + list(allocation.unresolved)

    @pytest.mark.parametrize(
        ("text", "numbers", "expected"),
        [
            ("Name=gpu File=/dev/nvidia[4-7]", "0,1", ["GPU-4", "GPU-5"]),
            ("NodeName=n[1-3] Name=gpu Type=h100 File=/dev/nvidia[0,2,5]", "1,2", ["GPU-2", "GPU-5"]),
            ("NodeName=n1 Name=gpu File=/dev/nvidia[4-7]", "0", ["GPU-0"]),  # of another node
            ("NodeName=n01,n2 Name=gpu File=/dev/nvidia3", "0", ["GPU-3"]),
            ("# all\nName=gpu Type=a File=/dev/nvidia[6-7] # two\nName=gpu Type=b \\\n File=/dev/nvidia1", "0,2",
             ["GPU-6", "GPU-1"]),
            ("Name=gpu File=/dev/nvidia[6,4-5,7]", "0,1,3", ["GPU-6", "GPU-4", "GPU-7"]),
            ("Name=gpu File=/dev/nvidia[4-5]\nName=mps Count=200\nName=shard Count=8", "0,2", ["GPU-4", "2"]),
            ("AutoDetect=off\nName=gpu File=/dev/nvidia[0-7]", "3", ["GPU-3"]),
            ("Name=gpu File=/dev/dri/card[0-3]", "3", ["GPU-3"]),  # not NVIDIA's: the numbers are taken as they are
            ("Name=gpu File=/dev/nvidia[4-", "0", ["GPU-0"]),
            ("", "2", ["GPU-2"]),
        ],
    )  # fmt: skip
    def test_files(self, tmp_path: Path, text: str, numbers: str, expected: list[str]) -> None:
        assert self.held(tmp_path, text, numbers, devices(list(range(8)))) == expected

    def test_autodetect_counts_by_pci_address(self, tmp_path: Path) -> None:
        found = [Device(None, i, f"GPU-{i}", i, None, None, f"0000000{1 - i // 2}:0{9 - i}:00.0") for i in range(4)]
        by_address = [d.uuid for d in sorted(found, key=lambda d: d.pci_address or "")]
        assert self.held(tmp_path, "AutoDetect=nvml", "0,3", found) == [by_address[0], by_address[3]]

    def test_a_file_that_changes_is_read_again(self, tmp_path: Path) -> None:
        made = Ownership(Identity("cluster", "n2"))
        made.set_devices(devices(list(range(8))))
        held = []
        for job, text in ((1, "Name=gpu File=/dev/nvidia[4-7]"), (2, "Name=gpu File=/dev/nvidia[2-3]")):
            (tmp_path / "gres.conf").write_text(text)
            item = mark(job, "prolog", job, SLURM_JOB_GPUS="0", SLURM_CONF=str(tmp_path / "slurm.conf"))
            held += [gpu.uuid for gpu in allocations(made.take([item]))[0].gpus]
        assert held == ["GPU-4", "GPU-2"]


def test_what_no_gpu_answers_to_is_said_and_not_guessed() -> None:
    made = ownership([0, 1, None])
    news = made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="1,2,x")])
    (allocation,) = allocations(news)
    assert [gpu.uuid for gpu in allocation.gpus] == ["GPU-1"]
    assert allocation.unresolved == ("2", "x")
    assert [r.kind for r in news.records if not isinstance(r, Allocation)] == ["gpu.unresolved"]


@pytest.mark.parametrize(("text", "expected"), [(None, []), ("", []), (",", []), ("1", ["1"]), ("0,3-5", list("0345"))])
def test_device_lists(text: str | None, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_device_list_that_is_hostile_stays_small() -> None:
    assert len(tokens("0-999999")) == 1
    assert len(tokens(",".join("1" for _ in range(100_000)))) <= 4096


def test_half_open_and_handed_over() -> None:
    """Job 2 starts in the very moment in which job 1 ends: one owner at any time."""
    made = ownership()
    made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0")])
    news = made.take([mark(1, "epilog", 5.0), mark(2, "prolog", 5.0, SLURM_JOB_GPUS="0")])
    assert changes(news) == [(5.0, "GPU-0", ()), (5.0, "GPU-0", ("2@5000",))]
    assert [(a.job_id, a.start_ms, a.end_ms) for a in allocations(news)] == [(1, 1000, 5000), (2, 5000, None)]


@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
def test_requeue_is_two_runs(release: str) -> None:
    """The epilog of run 1 carries the restart count of run 2, and closes run 1 all the same."""
    made = ownership()
    files = ["prolog.requeue.n2.r1", "epilog.requeue.n2.r1", "prolog.requeue.n2.r2", "epilog.requeue.n2.r2"]
    marks = [recorded(f"{release}.{name}.env", float(t)) for t, name in enumerate(files, start=1)]
    assert marks[1].number("SLURM_JOB_RESTART_COUNT") == 1
    ended = [a for a in allocations(made.take(marks)) if a.end_ms is not None]
    assert [(a.start_ms, a.end_ms, a.restart_count) for a in ended] == [(1000, 2000, 0), (3000, 4000, 1)]


def test_lost_epilog_ends_with_the_next_prolog_of_the_job() -> None:
    made = ownership()
    made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0")])
    news = made.take([mark(1, "prolog", 9.0, SLURM_JOB_GPUS="1")])
    first, second = allocations(news)
    assert (first.end_ms, first.end_source, second.start_ms) == (9000, "prolog", 9000)
    assert changes(news) == [(9.0, "GPU-0", ()), (9.0, "GPU-1", ("1@9000",))]


def test_epilog_without_prolog_is_recorded_as_such() -> None:
    news = ownership().take([recorded("25.11.epilog.salloc_nostep.n1.env", 2_000_000_000.0)])
    (allocation,) = allocations(news)
    assert (allocation.source, allocation.end_source, allocation.end_ms) == ("epilog", "epilog", 2_000_000_000_000)
    assert allocation.start_ms == (allocation.slurm_start_s or 0) * 1000
    assert news.changes == []
    assert len(news.finished) == 1


def test_shared_gpu_has_both_owners() -> None:
    made = ownership()
    news = made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0"), mark(2, "prolog", 2.0, SLURM_JOB_GPUS="0")])
    assert changes(news)[-1] == (2.0, "GPU-0", ("1@1000", "2@2000"))
    assert changes(made.take([mark(1, "epilog", 3.0)])) == [(3.0, "GPU-0", ("2@2000",))]


def test_marks_are_followed_once_and_kept_until_they_end() -> None:
    made = ownership()
    start, end = mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0"), mark(1, "epilog", 2.0)
    assert made.take([start]).finished == []
    assert made.take([start]).records == []
    news = made.take([start, end])
    assert news.finished == [start, end]
    assert made.take([start, end]).records == []


def test_exit_status_comes_from_the_epilog() -> None:
    made = ownership()
    news = made.take([mark(1, "prolog", 1.0), mark(1, "epilog", 2.0, SLURM_JOB_EXIT_CODE="768")])
    assert allocations(news)[-1].exit_code == 768


def test_hooks_that_slurm_conf_names_twice() -> None:
    """Prolog and epilog run twice, seconds apart: one allocation. A requeue seconds later is another one."""
    made = ownership()
    first = made.take([mark(1, "prolog", 1.0, SLURM_JOB_GPUS="0", SLURM_JOB_RESTART_COUNT="0")])
    again = made.take([mark(1, "prolog", 3.0, SLURM_JOB_GPUS="0", SLURM_JOB_RESTART_COUNT="0")])
    assert (len(first.records), again.records, again.changes) == (1, [], [])
    ends = [mark(1, "epilog", t, SLURM_JOB_GPUS="0", SLURM_JOB_RESTART_COUNT="1") for t in (9.0, 10.0)]
    news = made.take(ends)
    (closed,) = allocations(news)
    assert (closed.start_ms, closed.end_ms) == (1_000, 9_000)
    assert len(news.finished) == 4
    (next_run,) = allocations(made.take([mark(1, "prolog", 12.0, SLURM_JOB_GPUS="1", SLURM_JOB_RESTART_COUNT="1")]))
    assert next_run.start_ms == 12_000
