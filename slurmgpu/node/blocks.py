"""Consecutive readings of one GPU under one owner, and their sums.

A sample stands for the time since the sample before it, since NVML's readings are means over the time just past; the
last sample under an owner also stands for the time up to the end of ownership. A gap of more than three intervals is
not bridged: the block ends before it and a new one begins after it, so that a block is covered throughout.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from slurmgpu.node.readings import Kind, Metric
from slurmgpu.node.shares import Uses, divide
from slurmgpu.wire.records import Block, Stat
from slurmgpu.wire.samples import encode

GAP_INTERVALS = 3
_FROZEN_S = 2.0  # a counter that stands still this long under power is not believed

Sample = tuple[float, tuple[int | None, ...]]
"""Monotonic seconds, and the row."""


@dataclass(slots=True)
class _Open:
    """The block that is being filled.

    ``energy_mj``: the counter at ``start``, if it is known. ``held``: the owner's sample at ``start``, which stands for
    the time up to an end that comes before the next sample.
    """

    owners: tuple[str, ...]
    start: float
    energy_mj: float | None
    samples: list[Sample]
    held: Sample | None = None
    looks: list[tuple[float, Uses]] = field(default_factory=list)  # at the processes; where the GPU is shared


class BlockBuilder:
    """The blocks of one GPU. Times are monotonic seconds; ``wall_offset`` makes wall-clock time of them."""

    def __init__(self, uuid: str, metrics: Sequence[Metric], interval: float, wall_offset: float) -> None:
        self._uuid = uuid
        self._metrics = tuple(metrics)
        self._gap = GAP_INTERVALS * interval
        self._wall_offset = wall_offset
        names = [metric.name for metric in metrics]
        self._energy = names.index("energy_mj") if "energy_mj" in names else None
        self._power = names.index("power_mw") if "power_mw" in names else None
        self._open: _Open | None = None
        self._owners: tuple[str, ...] = ()
        self._done: list[Block] = []
        self.causes: dict[str, str] = {}

    @property
    def owners(self) -> tuple[str, ...]:
        """The allocations that hold the GPU now."""
        return self._owners

    def set_interval(self, interval: float) -> None:
        """Samples come this often from now on (seconds)."""
        self._gap = GAP_INTERVALS * interval

    def set_wall_offset(self, offset: float) -> None:
        """The wall clock was set: what has been read keeps the old time, what comes is labelled by the new."""
        self._roll()
        self._wall_offset = offset

    def add(self, t: float, row: tuple[int | None, ...], uses: Uses | None = None) -> None:
        """A sample taken at ``t``, on a shared GPU with what each owner's processes did."""
        current = self._open
        if current is not None and t - self._last(current) > self._gap:
            self._close(self._last(current), None)
            current = None
        if current is None:
            current = self._open = _Open(self._owners, t, self._counter(row), [])
        current.samples.append((t, row))
        if uses is not None:
            current.looks.append((t, uses))

    def change_owner(self, t: float, owners: tuple[str, ...]) -> None:
        """From ``t`` on the GPU belongs to ``owners``.

        ``t`` may lie before the latest sample, never before the start of the open block: what is closed is closed.
        """
        if owners == self._owners:
            return
        current = self._open
        self._owners = owners
        if current is None:
            return
        if t <= current.start:
            current.owners = owners
            return
        later = [sample for sample in current.samples if sample[0] > t]
        looks_later = [look for look in current.looks if look[0] > t]
        current.looks = current.looks[: len(current.looks) - len(looks_later)]
        current.samples = current.samples[: len(current.samples) - len(later)]
        after = later[0] if later else None
        if t - self._last(current) > self._gap:
            self._close(self._last(current), None)
            energy_at_t = None
        else:
            energy_at_t = self._counter_at(current, t, after)
            self._close(t, energy_at_t)
        if after is not None and after[0] - t > self._gap:
            t, energy_at_t = after[0], self._counter(after[1])
        self._open = _Open(owners, t, energy_at_t, later, looks=looks_later) if after is not None else None

    def take(self) -> list[Block]:
        """Close the open block at its latest sample and hand over all that is closed; sampling goes on."""
        self._roll()
        return self.take_closed()

    def take_closed(self) -> list[Block]:
        """Hand over the blocks that are closed; the open one goes on."""
        done, self._done = self._done, []
        return done

    def lose(self) -> None:
        """The GPU gives no more readings: what there is ends at the latest sample."""
        if self._open is not None:
            self._close(self._last(self._open), None)

    # -- inside

    def _roll(self) -> None:
        current = self._open
        if current is not None and current.samples:
            last, row = current.samples[-1]
            self._close(last, self._counter(row))
            self._open = _Open(current.owners, last, self._counter(row), [], (last, row))

    @staticmethod
    def _last(current: _Open) -> float:
        return current.samples[-1][0] if current.samples else current.start

    def _counter(self, row: tuple[int | None, ...]) -> float | None:
        return None if self._energy is None else row[self._energy]

    def _milliwatts(self, row: tuple[int | None, ...]) -> int | None:
        return None if self._power is None else row[self._power]

    def _counter_at(self, current: _Open, t: float, after: Sample | None) -> float | None:
        """The energy counter at ``t``, between the latest sample and the next one."""
        before_t = self._last(current)
        before = self._counter(current.samples[-1][1]) if current.samples else current.energy_mj
        if t == before_t or after is None or before is None:
            return before if t == before_t else None
        end = self._counter(after[1])
        if end is None or end < before or after[0] - before_t > self._gap:
            return None
        return before + (end - before) * (t - before_t) / (after[0] - before_t)

    def _close(self, end: float, energy_at_end: float | None) -> None:
        current, self._open = self._open, None
        if current is None or (end <= current.start and not current.samples):
            return
        self._done.append(self._block(current, end, energy_at_end))

    def _block(self, current: _Open, end: float, energy_at_end: float | None) -> Block:
        times = [t for t, _ in current.samples]
        standing = current.samples or ([current.held] if current.held else [])
        dts = _weights([t for t, _ in standing], current.start, end)
        stats: dict[str, Stat] = {}
        missing: dict[str, tuple[str, int]] = {}
        dropped: dict[str, int] = {}
        start_ms = self._wall_ms(current.start)
        offsets: list[int | None] = [round((t - current.start) * 1000) for t in times]
        columns: list[tuple[str, int, Sequence[int | None]]] = [("t_ms", 1, offsets)]
        rows: list[tuple[int | None, ...]] = [row for _, row in standing]
        for metric, column in zip(self._metrics, zip(*rows, strict=True), strict=True) if rows else ():
            absent = column.count(None)
            if absent:
                missing[metric.name] = (self.causes.get(metric.name, "UNKNOWN"), absent)
            if absent == len(column):
                continue
            values, out_of_range = _believed(column, absent, metric)
            if out_of_range:
                dropped[metric.name] = out_of_range
                if values.count(None) == len(values):
                    continue
            columns.append((metric.name, metric.scale, values))
            if metric.kind is Kind.GAUGE:
                stats[metric.name] = _stat(values, dts, metric.scale)
        energy_mj, source = self._block_energy(current, end, energy_at_end, dts)
        return Block(
            gpu=self._uuid,
            start_ms=start_ms,
            end_ms=self._wall_ms(end),
            samples=len(times),
            owners=current.owners,
            stats=stats,
            energy_mj=energy_mj,
            energy_source=source,
            shares=divide(current.owners, current.looks, current.start, end) if len(current.owners) > 1 else {},
            missing=missing,
            dropped=dropped,
            body=encode(columns) if times else b"",
        )

    def _wall_ms(self, t: float) -> int:
        return round((t + self._wall_offset) * 1000)

    def _block_energy(
        self, current: _Open, end: float, energy_at_end: float | None, dts: list[float]
    ) -> tuple[int | None, str | None]:
        """Energy of the block by the counter where it can be believed, else by the integral of power."""
        points = [(current.start, current.energy_mj), *((t, self._counter(row)) for t, row in current.samples)]
        powers = [self._milliwatts(row) for _, row in current.samples]
        if end > points[-1][0]:
            points.append((end, energy_at_end))
            powers.append(powers[-1] if powers else self._milliwatts(current.held[1]) if current.held else None)
        total, by_counter, by_power = 0.0, False, False
        frozen = _frozen(points, powers, dts)
        for (t1, e1), (t2, e2), power in zip(points, points[1:], powers, strict=False):
            if t2 <= t1:
                continue
            if e1 is not None and e2 is not None and e2 >= e1 and not frozen:
                total += e2 - e1
                by_counter = True
            elif power is not None:
                total += power * (t2 - t1)
                by_power = True
            else:
                return None, None
        if not (by_counter or by_power):
            return None, None
        return round(total), "mixed" if by_counter and by_power else "counter" if by_counter else "power"


def _weights(times: list[float], start: float, end: float) -> list[float]:
    """Seconds that each sample stands for; they add up to ``end - start``."""
    if not times:
        return []
    dts = [t - before for before, t in zip([start, *times], times, strict=False)]
    dts[-1] += end - times[-1]
    return dts


def _believed(column: Sequence[int | None], absent: int, metric: Metric) -> tuple[Sequence[int | None], int]:
    """The column without values that are out of range, and how many were."""
    low, high = metric.low * metric.scale, metric.high * metric.scale
    there = column if not absent else [value for value in column if value is not None]
    if low <= min(there) and max(there) <= high:  # type: ignore[type-var, operator]
        return column, 0
    values = [value if value is not None and low <= value <= high else None for value in column]
    return values, values.count(None) - absent


def _stat(values: Sequence[int | None], dts: list[float], scale: int) -> Stat:
    if None in values:
        pairs = [(value, dt) for value, dt in zip(values, dts, strict=True) if value is not None]
        there, dts = [value for value, _ in pairs], [dt for _, dt in pairs]
    else:
        there = list(values)  # type: ignore[arg-type]
    area = sum(map(operator.mul, there, dts))
    return Stat(round(sum(dts) * 1000), round(area * 1000 / scale, 3), min(there) / scale, max(there) / scale)


def _frozen(points: list[tuple[float, float | None]], powers: list[int | None], dts: list[float]) -> bool:
    """The counter stands still for seconds although the board draws power."""
    counters = [energy for _, energy in points if energy is not None]
    known = [power for power in powers if power is not None]
    return (
        len(counters) > 1 and counters[0] == counters[-1] and sum(dts) >= _FROZEN_S and bool(known) and min(known) > 0
    )
