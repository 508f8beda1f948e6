"""Owners that were told late, ends that no epilog told, nodes that started anew: figures follow the last word."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, Row, select

from slurmgpu.store import correct, facts, late
from slurmgpu.store.schema import block, job, job_gpu, job_node
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import HeldGpu, NodeStart, Record, Share
from slurmgpu.wire.segment import Head
from tests.store import making

FAR_MS = 10_000_000  # long after everything: nothing more can come


def write(engine: Engine, seq: int, *records: Record, stream: str = "s", boot: str = "b") -> None:
    Writer(engine).write(Head("c", "n1", boot, stream, seq, 1_000 * seq), records)


def rows(engine: Engine, table: Any) -> list[Row[Any]]:
    with engine.connect() as connection:
        return list(connection.execute(select(table).order_by(table.c.id)))


def settle(engine: Engine, now_ms: int = FAR_MS) -> None:
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        late.settle(connection, now_ms)


def slurm_says(engine: Engine, start_ms: int, end_ms: int, *, may_widen: bool = True) -> bool:
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        run_id = connection.execute(select(job.c.id)).scalar_one()
        done = correct.by_slurm(connection, run_id, (start_ms, end_ms), FAR_MS, may_widen=may_widen)
        late.settle(connection, FAR_MS)
        return done


def minutes(owners: tuple[str, ...], first: int, last: int, **more: Any) -> list[Record]:
    return [making.block("GPU-0", t * 60_000, (t + 1) * 60_000, owners, **more) for t in range(first, last)]


def told_by_epilog(job_id: int, start_ms: int, end_ms: int) -> Record:
    return replace(making.allocation(job_id, start_ms, end_ms), gpus=(HeldGpu("GPU-0", 0, "epilog"),))


def test_gpu_that_the_epilog_named_has_the_readings_of_nobody(engine: Engine) -> None:
    """Whole blocks, and of those at the edges the part by their samples."""
    write(engine, 0, making.allocation(7, 30_000, None, gpus=()), *minutes((), 0, 3))
    write(engine, 1, *minutes((), 3, 5), told_by_epilog(7, 30_000, 270_000))
    settle(engine)
    (row,) = rows(engine, job_gpu)
    assert (row.settled, row.told, row.covered_ms) == (True, "epilog", 240_000)
    assert row.gpu_util_pct_sum == 50 * 240_000
    assert row.energy_mj == 600 * 4


def test_others_keep_what_is_theirs(engine: Engine) -> None:
    blocks = [*minutes((), 0, 1), *minutes(("8@60000",), 1, 2), *minutes((), 2, 5)]
    write(engine, 0, making.allocation(8, 60_000, 120_000), *blocks, told_by_epilog(7, 0, 300_000))
    settle(engine)
    assert {row.covered_ms for row in rows(engine, job_gpu)} == {60_000, 240_000}


def test_end_by_slurm_gives_back_what_was_read_after_it(engine: Engine) -> None:
    write(engine, 0, making.allocation(7, 0, None), *minutes(("7@0",), 0, 10))
    assert rows(engine, job_gpu)[0].energy_mj == 6_000
    assert slurm_says(engine, 0, 150_000)
    (place,), (held,), (run,) = rows(engine, job_node), rows(engine, job_gpu), rows(engine, job)
    assert (place.end_ms, place.end_source, run.end_ms) == (150_000, "slurm", 150_000)
    assert (held.covered_ms, held.energy_mj, held.gpu_util_pct_sum) == (150_000, 1_500, 50 * 150_000)
    free = [row for row in rows(engine, block) if row.job_gpu_id is None]
    assert [(row.start_ms, row.owners) for row in free] == [(t * 60_000, 0) for t in range(3, 10)]


def test_end_by_slurm_leaves_a_shared_gpu_to_the_other(engine: Engine) -> None:
    """Job 7's epilog was lost at minute 2; job 8 has the GPU since minute 4 and shared it with nobody in truth."""
    owners = ("7@0", "8@240000")
    shares = {"7@0": Share(0.25, "sm"), "8@240000": Share(0.75, "sm")}
    shared = [replace(item, shares=shares) for item in minutes(owners, 4, 6)]  # type: ignore[type-var]
    write(engine, 0, making.allocation(7, 0, None), making.allocation(8, 240_000, 360_000))
    write(engine, 1, *minutes(("7@0",), 0, 4), *shared)
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        run_id = connection.execute(select(job.c.id).where(job.c.raw_job_id == 7)).scalar_one()
        correct.by_slurm(connection, run_id, (0, 120_000), FAR_MS, may_widen=True)
        late.settle(connection, FAR_MS)
    first, second = rows(engine, job_gpu)
    assert (first.energy_mj, first.covered_ms, first.shared_ms) == (1_200, 120_000, 0)
    assert (second.energy_mj, second.covered_ms, second.shared_ms) == (1_200, 120_000, 0)


def test_witnessed_pieces_become_one_with_slurms_times(engine: Engine) -> None:
    """Steps with pauses between them: the node saw the job twice, Slurm knows that it was one."""
    pieces = [(60_000, 120_000), (180_000, 240_000)]
    for start, end in pieces:
        seen = making.allocation(7, start, end, source="cgroup", end_source="processes")
        write(engine, start, seen, *minutes((f"7@{start}",), start // 60_000, end // 60_000))
    write(engine, 7, *minutes((), 0, 1), *minutes((), 2, 3), *minutes((), 4, 6), stream="t")
    assert len(rows(engine, job)) == 1
    assert slurm_says(engine, 0, 270_000)
    (place,), (held,) = rows(engine, job_node), rows(engine, job_gpu)
    assert (place.start_ms, place.end_ms, place.source, place.end_source) == (0, 270_000, "cgroup", "slurm")
    assert (held.covered_ms, held.energy_mj) == (270_000, 600 * 4 + 300)


def test_hooks_stand_against_slurms_times(engine: Engine) -> None:
    write(engine, 0, making.allocation(7, 1_000, 61_000), *minutes(("7@1000",), 0, 1))
    slurm_says(engine, 0, 60_000)
    (place,) = rows(engine, job_node)
    assert (place.start_ms, place.end_ms, place.end_source) == (1_000, 61_000, "epilog")


def test_late_prolog_begins_with_slurms_start_unless_the_job_was_resized(engine: Engine) -> None:
    write(engine, 0, making.allocation(7, 120_000, 180_000), *minutes((), 0, 2), *minutes(("7@120000",), 2, 3))
    slurm_says(engine, 0, 180_000, may_widen=False)
    assert rows(engine, job_node)[0].start_ms == 120_000
    slurm_says(engine, 0, 180_000)
    (place,), (held,) = rows(engine, job_node), rows(engine, job_gpu)
    assert (place.start_ms, held.covered_ms, held.energy_mj) == (0, 180_000, 1_800)


def test_too_early_while_the_node_may_still_speak(engine: Engine) -> None:
    write(engine, 60, making.allocation(7, 0, None), *minutes(("7@0",), 0, 1))
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        run_id = connection.execute(select(job.c.id)).scalar_one()
        assert not correct.by_slurm(connection, run_id, (0, 59_000), 70_000, may_widen=True)
    assert rows(engine, job_node)[0].end_ms is None
    write(engine, 61, making.allocation(7, 0, 59_500))
    (place,) = rows(engine, job_node)
    assert (place.end_ms, place.end_source) == (59_500, "epilog")


class TestNodeStarts:
    """What was open when slurmgpud, or the node, came back."""

    def start(self, engine: Engine, seq: int, boot: str, *still_open: str) -> None:
        write(engine, seq, NodeStart(1_000 * seq, boot, "1", still_open), stream=f"{seq}", boot=boot)

    def test_reboot_ends_at_the_last_reading(self, engine: Engine) -> None:
        self.start(engine, 1, "b")
        write(engine, 70, making.allocation(7, 5_000, None), *minutes(("7@5000",), 0, 1))
        self.start(engine, 90, "other")
        (place,) = rows(engine, job_node)
        assert (place.end_ms, place.end_source) == (60_000, "boot")

    def test_epilog_of_the_next_boot_ends_nothing(self, engine: Engine) -> None:
        """Slurm runs it when the node is back, in the same segment as the start."""
        self.start(engine, 1, "b")
        write(engine, 70, making.allocation(7, 5_000, None), *minutes(("7@5000",), 0, 1))
        epilog = making.allocation(7, 90_500, 90_500, source="epilog", restart_count=None)
        write(engine, 91, NodeStart(90_000, "other", "1", ()), epilog, stream="later", boot="other")
        (place,), (run,) = rows(engine, job_node), rows(engine, job)
        assert (place.end_ms, place.end_source, run.end_ms) == (60_000, "boot", 60_000)

    def test_marks_are_gone(self, engine: Engine) -> None:
        """The same boot: the epilog still closes it, and it is one run."""
        self.start(engine, 1, "b")
        write(engine, 70, making.allocation(7, 5_000, None), *minutes(("7@5000",), 0, 1))
        self.start(engine, 90, "b")
        assert rows(engine, job_node)[0].end_source == "lost"
        epilog = making.allocation(7, 100_000, 100_000, source="epilog", restart_count=None)
        write(engine, 101, epilog, stream="later")
        (place,), (run,) = rows(engine, job_node), rows(engine, job)
        assert (place.start_ms, place.end_ms, place.end_source) == (5_000, 100_000, "epilog")
        assert run.end_ms == 100_000

    def test_what_is_open_stays_open(self, engine: Engine) -> None:
        write(engine, 70, making.allocation(7, 5_000, None))
        self.start(engine, 90, "b", "7@5000")
        assert rows(engine, job_node)[0].end_ms is None

    @pytest.mark.parametrize("late_blocks", [False, True])
    def test_segments_out_of_order(self, engine: Engine, late_blocks: bool) -> None:
        """The start comes first, the segments from before it later: the end grows with them."""
        self.start(engine, 90, "other")
        write(engine, 70, making.allocation(7, 5_000, None), *minutes(("7@5000",), 0, 1))
        if late_blocks:
            write(engine, 71, *minutes(("7@5000",), 1, 2))
        (place,) = rows(engine, job_node)
        assert (place.end_ms, place.end_source) == (120_000 if late_blocks else 60_000, "boot")

    def test_requeue_after_the_crash_is_a_second_run(self, engine: Engine) -> None:
        write(engine, 70, making.allocation(7, 5_000, None), *minutes(("7@5000",), 0, 1))
        self.start(engine, 90, "other")
        write(engine, 100, making.allocation(7, 95_000, None, restart_count=1), stream="later", boot="other")
        assert [row.restart_count for row in rows(engine, job)] == [0, 1]


def test_two_runs_that_slurm_calls_one_are_joined(engine: Engine) -> None:
    """Before 23.11 two nodes that saw the job at different times look like two runs."""
    Writer(engine).write(making.head(0, "n1"), [making.allocation(7, 0, 10_000)])
    Writer(engine).write(making.head(0, "n2"), [making.allocation(7, 90_000, 100_000, node="n2")])
    ids = [row.id for row in rows(engine, job)]
    assert len(ids) == 2
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        for run_id in ids:
            facts.learn(connection, run_id, FAR_MS, {"slurm_start_s": 1, "name": "x"})
    (run,) = rows(engine, job)
    assert (run.start_ms, run.end_ms, run.name) == (0, 100_000, "x")


def test_whom_to_ask(engine: Engine) -> None:
    """New ones first, then those that ended; those that run seldom; nobody twice in a row; not what is long over."""
    write(engine, 0, *(making.allocation(n, 0, end) for n, end in ((1, None), (2, 50_000), (3, None), (4, 60_000))))

    def wanted(now_ms: int, look_back_ms: int = 10**9) -> list[int]:
        with engine.execution_options(slurmgpu_writing=True).begin() as connection:
            found = facts.wanted(connection, 1, now_ms, look_back_ms, 10)
            for row in found:
                facts.learn(connection, row.id, now_ms, {})
            return sorted(row.raw_job_id for row in found)

    assert wanted(100_000) == [1, 2, 3, 4]
    assert wanted(100_001) == []
    assert wanted(160_000) == [2, 4]
    assert wanted(800_000) == [1, 2, 3, 4]
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        facts.ask_again(connection, 1, {3}, 800_100)
    assert wanted(800_200) == [1]
    assert wanted(80_000_000, look_back_ms=1000) == [1, 3]
