"""Blocks: what is covered, what it adds up to, and whose it is."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.node.readings import Kind, Metric
from slurmgpu.wire.records import Block
from slurmgpu.wire.samples import decode

METRICS = (
    Metric("gpu_util_pct", 0, 100),
    Metric("power_mw", 0, 1_000_000),
    Metric("energy_mj", 0, 1 << 60, Kind.COUNTER),
)
Row = tuple[int | None, int | None, int | None]


def builder(interval: float = 1.0) -> BlockBuilder:
    return BlockBuilder("GPU-1", METRICS, interval, wall_offset=0.0)


def fill(target: BlockBuilder, samples: list[tuple[float, Row]]) -> None:
    for t, row in samples:
        target.add(t, row)


def span(block: Block) -> tuple[int, int]:
    return block.start_ms, block.end_ms


def test_a_sample_stands_for_the_time_before_it() -> None:
    """Unequal intervals: 1 s at 10 %, 3 s at 50 % → (10 + 150) / 4 = 40 %."""
    target = builder()
    fill(target, [(0, (90, 0, 0)), (1, (10, 0, 0)), (4, (50, 0, 0))])
    (block,) = target.take()
    stat = block.stats["gpu_util_pct"]
    assert (span(block), block.samples) == ((0, 4000), 3)
    assert (stat.weight_ms, stat.sum / stat.weight_ms, stat.min, stat.max) == (4000, 40, 10, 90)


def test_blocks_join_without_a_seam() -> None:
    target = builder()
    fill(target, [(0, (1, 1000, 0)), (1, (2, 1000, 1000))])
    first = target.take()
    fill(target, [(2, (3, 1000, 2500))])
    second = target.take()
    assert [span(b) for b in first + second] == [(0, 1000), (1000, 2000)]
    assert [b.energy_mj for b in first + second] == [1000, 1500]
    assert target.take() == []


def test_a_long_gap_is_not_bridged() -> None:
    target = builder()
    fill(target, [(0, (1, 0, 0)), (1, (1, 0, 0)), (4.1, (1, 0, 0)), (5, (1, 0, 0))])
    assert [span(b) for b in target.take()] == [(0, 1000), (4100, 5000)]


def test_three_intervals_are_bridged() -> None:
    target = builder()
    fill(target, [(0, (1, 0, 0)), (3, (1, 0, 0))])
    assert [span(b) for b in target.take()] == [(0, 3000)]


def test_change_of_owner_splits_time_energy_and_busy() -> None:
    """A at 100 % ends, B starts idle within one interval: A keeps 100 %, B has 0 %, and the energy is cut there."""
    target = builder()
    target.change_owner(0, ("A",))
    fill(target, [(0, (100, 1000, 0)), (1, (100, 1000, 1000)), (2, (0, 1000, 2000))])
    target.change_owner(1.25, ("B",))
    fill(target, [(3, (0, 1000, 3000))])
    a, b = target.take()
    assert (a.owners, span(a), a.stats["gpu_util_pct"].sum / 1250, a.energy_mj) == (("A",), (0, 1250), 100, 1250)
    assert (b.owners, span(b), b.stats["gpu_util_pct"].max, b.energy_mj) == (("B",), (1250, 3000), 0, 1750)


def test_the_last_sample_holds_across_a_flush() -> None:
    """A flush, and then the end before the next sample: the time between is covered by the sample before the flush."""
    target = builder()
    target.change_owner(0, ("A",))
    fill(target, [(0, (80, 1000, 0)), (1, (80, 1000, 1000))])
    target.take()
    fill(target, [(2, (0, 1000, 2000))])
    target.change_owner(1.5, ())
    tail, after = target.take()
    assert (tail.owners, span(tail), tail.samples, tail.energy_mj) == (("A",), (1000, 1500), 0, 500)
    assert (tail.stats["gpu_util_pct"].sum, tail.stats["gpu_util_pct"].weight_ms) == (40_000, 500)
    assert (span(after), after.stats["gpu_util_pct"].max) == ((1500, 2000), 0)


def test_a_job_between_two_samples_has_energy_but_no_average() -> None:
    target = builder()
    fill(target, [(0, (50, 1000, 0)), (1, (50, 1000, 1000))])
    target.change_owner(0.25, ("A",))
    target.change_owner(0.75, ())
    before, job, after = target.take()
    assert (job.owners, span(job), job.samples, job.stats) == (("A",), (250, 750), 0, {})
    assert [b.energy_mj for b in (before, job, after)] == [250, 500, 250]


def test_a_mark_older_than_the_daemon_owns_from_the_first_sample() -> None:
    target = builder()
    fill(target, [(10, (50, 1000, 0))])
    target.change_owner(2, ("A",))
    fill(target, [(11, (50, 1000, 1000))])
    (block,) = target.take()
    assert (block.owners, span(block)) == (("A",), (10_000, 11_000))


def test_unavailable_is_not_zero() -> None:
    target = builder()
    target.causes = {"gpu_util_pct": "NOT_SUPPORTED"}
    fill(target, [(0, (None, 5, None)), (1, (None, 5, None)), (2, (40, 5, None))])
    (block,) = target.take()
    assert block.missing["gpu_util_pct"] == ("NOT_SUPPORTED", 2)
    stat = block.stats["gpu_util_pct"]
    assert (stat.weight_ms, stat.sum) == (1000, 40_000)
    assert decode(block.body)["gpu_util_pct"] == [None, None, 40]


def test_out_of_range_is_dropped_and_counted() -> None:
    target = builder()
    fill(target, [(0, (10, 5, 0)), (1, (2147483632, 5, 0)), (2, (10, 5, 0))])
    (block,) = target.take()
    assert block.dropped == {"gpu_util_pct": 1}
    assert block.stats["gpu_util_pct"].max == 10
    assert "gpu_util_pct" not in block.missing


@pytest.mark.parametrize(
    ("counter", "energy_mj", "source"),
    [
        ([0, 1000, 2000], 2000, "counter"),
        ([None, None, None], 4000, "power"),
        ([5000, 100, 1100], 3000, "mixed"),  # driver reload after the first sample: power for that second
        ([7, 7, 7], 4000, "power"),  # stands still although the board draws power
        ([0, None, 2000], 4000, "power"),
    ],
)
def test_energy_and_its_source(counter: list[int | None], energy_mj: int, source: str) -> None:
    target = builder()
    fill(target, [(t, (0, 2000, value)) for t, value in enumerate(counter)])
    (block,) = target.take()
    assert (block.energy_mj, block.energy_source) == (energy_mj, source)


def test_no_energy_without_counter_and_power() -> None:
    target = builder()
    fill(target, [(0, (0, None, None)), (1, (0, None, None))])
    (block,) = target.take()
    assert (block.energy_mj, block.energy_source) == (None, None)


def test_a_clock_that_was_set_relabels_what_comes() -> None:
    target = builder()
    fill(target, [(0, (1, 0, 0)), (1, (1, 0, 0))])
    target.set_wall_offset(3600.0)
    fill(target, [(2, (1, 0, 0))])
    assert [span(b) for b in target.take()] == [(0, 1000), (3601_000, 3602_000)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, float]]:
    """Samples, changes of owner and flushes at growing times; a change lies up to a second back."""
    now, steps = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from(["sample", "sample", "sample", "change", "flush"]))
        now += draw(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]))
        steps.append((kind, now - (draw(st.sampled_from([0.0, 0.125, 1.0])) if kind == "change" else 0)))
        if kind == "change":
            steps.append(("sample", now))
    return steps


@given(histories())
def test_every_moment_counts_once(steps: list[tuple[str, float]]) -> None:
    """Whatever happens: blocks never overlap, cover no gap, and their energy is the counter's own difference."""
    target = builder()
    rate_mw = 3000
    blocks: list[Block] = []
    taken = 0
    for number, (kind, t) in enumerate(steps):
        if kind == "sample":
            target.add(t, (number % 101, rate_mw, round(t * rate_mw)))
            taken += 1
        elif kind == "change":
            # As the daemon does: what changed is read first, then cut where it changed.
            target.add(steps[number + 1][1], (0, rate_mw, round(steps[number + 1][1] * rate_mw)))
            target.change_owner(t, (str(number),))
            taken += 1
        else:
            blocks += target.take()
    blocks += target.take()
    assert sum(block.samples for block in blocks) == taken
    for before, after in itertools.pairwise(blocks):
        assert before.end_ms <= after.start_ms
    for block in blocks:
        length_s = (block.end_ms - block.start_ms) / 1000
        assert block.energy_mj is None or abs(block.energy_mj - length_s * rate_mw) <= 2
        for stat in block.stats.values():
            assert abs(stat.weight_ms - (block.end_ms - block.start_ms)) <= 1
        if block.samples:
            offsets = [int(offset or 0) for offset in decode(block.body)["t_ms"]]
            assert offsets == sorted(offsets)
            steps_ms = [b - a for a, b in zip([0, *offsets], [*offsets, block.end_ms - block.start_ms], strict=True)]
            assert max(steps_ms) <= 3001
