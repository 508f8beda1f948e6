"""Segments into tables: once, in any order, into the right run."""

import itertools
import random

import pytest
from sqlalchemy import Engine, func, select

from slurmgpu.store.schema import block, gpu_placement, job, job_gpu, job_node, segment
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import Record
from tests.store import making


def totals(engine: Engine) -> list[tuple[object, ...]]:
    """(job, node allocation, samples, covered, energy, source) of every GPU of every job."""
    query = (
        select(
            job.c.raw_job_id,
            job_node.c.allocation,
            job_gpu.c.samples,
            job_gpu.c.covered_ms,
            job_gpu.c.energy_mj,
            job_gpu.c.energy_source,
            job_gpu.c.gpu_util_pct_sum / job_gpu.c.gpu_util_pct_weight_ms,
            job_node.c.end_ms,
        )
        .join(job_node, job_node.c.job_id == job.c.id)
        .join(job_gpu, job_gpu.c.job_node_id == job_node.c.id)
        .order_by(job.c.raw_job_id, job_node.c.allocation, job_gpu.c.id)
    )
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(query)]


def count(engine: Engine, table: object) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]


STORY: list[list[Record]] = [
    [making.info("GPU-0"), making.block("GPU-0", 0, 1000)],
    [making.allocation(7, 1000, None), making.block("GPU-0", 1000, 61_000, ("7@1000",), busy=100)],
    [making.block("GPU-0", 61_000, 91_000, ("7@1000",), busy=10, energy_mj=300)],
    [making.allocation(7, 1000, 91_000), making.block("GPU-0", 91_000, 92_000)],
]
EXPECTED = [(7, "7@1000", 4, 90_000, 900, "counter", 70.0, 91_000)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_order_does_not_matter(engine: Engine, order: tuple[int, ...]) -> None:
    """Blocks before the allocation that they belong to, an end before its start: the same totals."""
    writer = Writer(engine)
    for number in order:
        assert writer.write(making.head(number), STORY[number])
    assert totals(engine) == EXPECTED


def test_a_segment_given_twice_counts_once(engine: Engine) -> None:
    first, second = Writer(engine), Writer(engine)
    for number, records in enumerate(STORY):
        assert first.write(making.head(number), records)
        assert not second.write(making.head(number), records)
    assert totals(engine) == EXPECTED
    assert (count(engine, segment), count(engine, block)) == (4, 4)


def test_a_segment_that_fails_leaves_nothing(engine: Engine) -> None:
    writer = Writer(engine)
    bad = making.block("GPU-1", 0, 1000, ("not an id",))
    with pytest.raises(ValueError, match="not an id"):
        writer.write(making.head(0, node="n9"), [making.info("GPU-1"), bad])
    assert (count(engine, segment), count(engine, block), count(engine, gpu_placement)) == (0, 0, 0)
    assert writer.write(making.head(0, node="n9"), [making.info("GPU-1"), making.block("GPU-1", 0, 1000)])


def test_two_nodes_are_one_run(engine: Engine) -> None:
    writer = Writer(engine)
    writer.write(making.head(0), [making.allocation(7, 1000, 90_000)])
    writer.write(making.head(0, "n2"), [making.allocation(7, 40_000, 90_100, ("GPU-8",), node="n2")])
    with engine.connect() as connection:
        (run,) = connection.execute(select(job))
    assert (run.start_ms, run.end_ms, run.user_name) == (1000, 90_100, "alice")


def test_a_run_ends_when_its_last_node_does(engine: Engine) -> None:
    writer = Writer(engine)
    writer.write(making.head(0), [making.allocation(7, 1000, 90_000)])
    writer.write(making.head(0, "n2"), [making.allocation(7, 2000, None, ("GPU-8",), node="n2")])
    with engine.connect() as connection:
        assert connection.execute(select(job.c.end_ms)).scalar() is None
    writer.write(making.head(1, "n2"), [making.allocation(7, 2000, 90_500, ("GPU-8",), node="n2")])
    with engine.connect() as connection:
        assert connection.execute(select(job.c.end_ms)).scalar() == 90_500


@pytest.mark.parametrize(
    ("second", "runs"),
    [
        ({"restart_count": 1}, 2),  # a requeue
        ({"restart_count": 0}, 2),  # the job id came round again: no overlap
        ({"restart_count": None}, 2),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_runs_of_one_job_id_stay_apart(engine: Engine, second: dict[str, object], runs: int, turned: bool) -> None:
    records = [
        making.allocation(7, 1000, 90_000),
        making.allocation(7, 200_000, 290_000, ("GPU-8",), node="n2", **second),
    ]
    for number, record in enumerate(reversed(records) if turned else records):
        Writer(engine).write(making.head(number, record.node), [record])
    assert count(engine, job) == runs


def test_start_time_of_slurm_joins_nodes_hours_apart(engine: Engine) -> None:
    """One node closed before the other opened (a job that was made smaller): Slurm's start time still joins them."""
    writer = Writer(engine)
    writer.write(making.head(0), [making.allocation(7, 1000, 90_000, slurm_start_s=1)])
    late = making.allocation(7, 7_200_000, None, ("GPU-8",), node="n2", slurm_start_s=1)
    other = making.allocation(7, 7_300_000, None, ("GPU-9",), node="n3", slurm_start_s=7300)
    writer.write(making.head(0, "n2"), [late])
    writer.write(making.head(0, "n3"), [other])
    assert count(engine, job) == 2


def test_one_node_sees_a_run_once(engine: Engine) -> None:
    """The epilog of run 1 was lost and closed by the prolog of run 2, in the same second and with the same count."""
    writer = Writer(engine)
    first = making.allocation(7, 1000, 5000, end_source="prolog")
    writer.write(making.head(0), [first, making.allocation(7, 5000, None)])
    assert count(engine, job) == 2


def test_epilog_that_outlived_its_prolog_mark_is_not_a_second_allocation(engine: Engine) -> None:
    writer = Writer(engine)
    writer.write(making.head(0), [making.allocation(7, 1000, 5000)])
    writer.write(making.head(1), [making.allocation(7, 5000, 5000, source="epilog")])
    assert count(engine, job_node) == 1
    writer.write(making.head(2), [making.allocation(77, 5000, 5000, source="epilog")])
    assert count(engine, job_node) == 2


def test_shared_energy_adds_up_to_the_device(engine: Engine) -> None:
    writer = Writer(engine)
    owners = ("1@0", "2@0", "3@0")
    records: list[Record] = [making.allocation(number, 0, None) for number in (1, 2, 3)]
    writer.write(making.head(0), [*records, making.block("GPU-0", 0, 1000, owners, energy_mj=1000)])
    assert sorted(row[4] for row in totals(engine)) == [333, 333, 334]  # type: ignore[type-var]


def test_energy_sources_mix(engine: Engine) -> None:
    writer = Writer(engine)
    by_power = making.block("GPU-0", 1000, 2000, ("7@0",))
    object.__setattr__(by_power, "energy_source", "power")
    writer.write(making.head(0), [making.allocation(7, 0, None), making.block("GPU-0", 0, 1000, ("7@0",))])
    assert totals(engine)[0][5] == "counter"
    writer.write(making.head(1), [by_power])
    assert totals(engine)[0][4:6] == (1200, "mixed")


def test_a_gpu_that_moved_has_two_places_and_one_identity(engine: Engine) -> None:
    writer = Writer(engine)
    writer.write(making.head(0), [making.info("GPU-0", 1, minor=0), making.info("GPU-0", 5, minor=0)])
    writer.write(making.head(0, "n2"), [making.info("GPU-0", 9, minor=3)])
    with engine.connect() as connection:
        rows = connection.execute(select(gpu_placement).order_by(gpu_placement.c.first_ms)).all()
    assert [(row.first_ms, row.last_ms, row.minor) for row in rows] == [(1, 5, 0), (9, 9, 3)]
    assert len({row.gpu_id for row in rows}) == 1


def test_random_order_of_many_jobs(engine: Engine) -> None:
    """Two hundred segments of two nodes in any order give the sums of the blocks."""
    rng = random.Random(7)
    segments = []
    for node, gpu in (("n1", "GPU-0"), ("n2", "GPU-1")):
        for number in range(50):
            start = number * 10_000
            owner = f"{number + 1}@{start}"
            segments.append((node, [making.allocation(number + 1, start, None, (gpu,), node=node)]))
            records = [making.allocation(number + 1, start, start + 10_000, (gpu,), node=node)]
            segments.append((node, [*records, making.block(gpu, start, start + 10_000, (owner,), energy_mj=number)]))
    order = list(enumerate(segments))
    rng.shuffle(order)
    writer = Writer(engine)
    for seq, (node, records) in order:
        writer.write(making.head(seq, node), list(records))
    found = totals(engine)
    assert count(engine, job) == 50
    assert [(row[0], row[4]) for row in found] == sorted((n + 1, n) for n in range(50) for _ in (1, 2))
    assert {row[3] for row in found} == {10_000}
