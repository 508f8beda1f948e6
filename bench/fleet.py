"""An invented fleet: what its nodes would write, without one GPU, and what it adds up to. A seed gives the same bytes.

Readings have the names, scales and tiers of ``slurmgpu.node.readings`` and pass through the node's own block builder
and codec. Two sources of blocks: :func:`live` simulates every second of one GPU (about 500 blocks a second);
:class:`Library` simulates some runs of an hour once and gives their minutes again and again with new times, about
fifty times as fast. In the library's blocks counters run on within the hour and start again after it; all figures of
a block are its own, so totals are exact either way. Ownership changes within a minute, at one of a few seconds.

    python bench/fleet.py FOLDER --gpus 64 --days 0.1    # a spool for each node
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.patterns import Board, metrics
from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.wire.records import Allocation, Block, Event, GpuInfo, HeldGpu, NodeStart, Record
from slurmgpu.wire.segment import Head, pack

MINUTE_MS = 60_000
CYCLE = 60  # minutes of a run in the library
CHANGES_S = (5, 17, 29, 41, 53)  # seconds of a minute at which ownership may change, and 0.4 s more
START_MS = 1_767_225_600_000  # 2026-01-01
CLUSTER = "bench"
LOST = "lost"  # trains until the GPU falls off the bus
_WEIGHTS = {"training": 50, "inference": 25, "idle": 10, "starved": 8, "stuck": 4, LOST: 3}
_PARTITIONS = ((8,), (8,), (4, 4), (4, 2, 1, 1), (2, 2, 2, 2), (1,) * 8)


def live(pattern: str, seed: int, minutes: int, gpu: str = "GPU-live", owners: tuple[str, ...] = ()) -> Iterator[Block]:
    """Every second of one GPU: its minute blocks, the counters running on. Times begin at 0."""
    board = Board(pattern, random.Random(f"{pattern}/{seed}"))
    builder = BlockBuilder(gpu, metrics(), 1.0, 0.0)
    builder.causes = board.causes
    builder.change_owner(0.0, owners)
    builder.add(0.0, board.row(0))
    builder.take()
    for minute in range(minutes):
        for second in range(1, 61):
            t = 60 * minute + second
            builder.add(board.when(t), board.row(t))
        yield from builder.take()


def columns(pattern: str, seed: int, seconds: int) -> list[tuple[str, int, list[int | None]]]:
    """``(metric, scale, values)`` of one GPU, a value each second; ``t_ms`` is the first. Metrics that it lacks are
    left out.
    """
    board = Board(pattern, random.Random(f"{pattern}/{seed}"))
    times, rows = [], []
    for t in range(seconds):
        times.append(round(board.when(t) * 1000))
        rows.append(board.row(t))
    found: list[tuple[str, int, list[int | None]]] = [("t_ms", 1, list(times))]
    for metric, values in zip(metrics(), zip(*rows, strict=True), strict=True):
        if values.count(None) < len(values):
            found.append((metric.name, metric.scale, list(values)))
    return found


class Library:
    """Blocks that were made once, to be given again: whole minutes, and minutes in which the owner changes."""

    def __init__(self, seed: int, variants: int = 3) -> None:
        self._seed = seed
        self.variants = variants
        self._minutes: dict[tuple[str, int], list[Block]] = {}
        self._parts: dict[tuple[str, int], tuple[Block, Block]] = {}

    def minute(self, pattern: str, variant: int, number: int) -> Block:
        """A whole minute of a run."""
        key = (pattern, variant)
        if key not in self._minutes:
            self._minutes[key] = list(live(pattern, self._seed * 1000 + variant, CYCLE))
        return self._minutes[key][number % CYCLE]

    def before(self, pattern: str, second: int) -> Block:
        """A minute up to a change of owner."""
        return self._part(pattern, second)[0]

    def after(self, pattern: str, second: int) -> Block:
        """A minute from a change of owner on."""
        return self._part(pattern, second)[1]

    def _part(self, pattern: str, second: int) -> tuple[Block, Block]:
        key = (pattern, second)
        if key not in self._parts:
            board = Board(pattern, random.Random(f"{pattern}/{self._seed}/{second}"))
            builder = BlockBuilder("", metrics(), 1.0, 0.0)
            builder.causes = board.causes
            builder.add(0.0, board.row(0))
            builder.take()
            for t in range(1, 61):
                builder.add(board.when(t), board.row(t))
            builder.change_owner(second + 0.4, ("next",))
            first, last = builder.take()
            self._parts[key] = (first, last)
        return self._parts[key]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to invent. ``wide_nodes``: the first nodes run one job together, from the first minute to the last."""

    gpus: int
    days: float
    seed: int = 1
    gpus_per_node: int = 8
    wide_nodes: int = 0
    start_ms: int = START_MS
    job_minutes: float = 90.0  # the median
    idle_minutes: float = 8.0  # between two jobs, the mean

    @property
    def minutes(self) -> int:
        return round(self.days * 1440)

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)


@dataclass(slots=True)
class Truth:
    """What an allocation's GPU adds up to. ``busy_sum``: Σ(gpu_util_pct·dt) in %·ms."""

    samples: int = 0
    covered_ms: int = 0
    energy_mj: int = 0
    busy_sum: float = 0.0
    busy_weight_ms: int = 0

    def add(self, item: Block) -> None:
        """Count a block."""
        self.samples += item.samples
        self.covered_ms += item.end_ms - item.start_ms
        self.energy_mj += item.energy_mj or 0
        busy = item.stats.get("gpu_util_pct")
        if busy:
            self.busy_sum += busy.sum
            self.busy_weight_ms += busy.weight_ms


@dataclass(slots=True)
class _Slot:
    """GPUs of a node that go from job to job together."""

    gpus: list[int]
    rng: random.Random
    number: int
    step: int
    fixed: int | None = None  # the minute in which the wide job ends
    job_id: int = 0
    pattern: str = "idle"
    open: Allocation | None = None
    change: tuple[int, int] = (0, 0)  # minute and second of the next one
    lost_minute: int | None = None
    cursors: list[tuple[int, int]] = field(default_factory=list)  # of each GPU: variant, and where in it minute 0 is


class Fleet:
    """The segments of a plan, minute by minute over all nodes; memory is that of the library and the job list.

    ``truth``: (node, allocation, GPU's UUID) → what was given so far. A segment holds a node's minute; a real node
    would also write one at each change.
    """

    def __init__(self, plan: Plan, library: Library | None = None) -> None:
        self.plan = plan
        self.truth: dict[tuple[str, str, str], Truth] = {}
        self.samples = 0
        self._library = library or Library(plan.seed)
        self._slots = [self._slots_of(node) for node in range(plan.nodes)]
        self._uuids = [[self._uuid(node, gpu) for gpu in range(self._width(node))] for node in range(plan.nodes)]

    def segments(self) -> Iterator[tuple[Head, list[Record]]]:
        """All segments, in the order of time."""
        for minute in range(self.plan.minutes):
            for node in range(self.plan.nodes):
                yield self._head(node, minute), self._records(node, minute)

    def spool(self, folder: Path) -> Iterator[Path]:
        """Write the segments as files, a folder for each node."""
        for head, records in self.segments():
            path = folder / head.node / head.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pack(head, records))
            yield path

    # -- the plan

    def _width(self, node: int) -> int:
        return min(self.plan.gpus_per_node, self.plan.gpus - node * self.plan.gpus_per_node)

    def _uuid(self, node: int, gpu: int) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.plan.seed}/{node}/{gpu}')}"

    def _slots_of(self, node: int) -> list[_Slot]:
        plan, width = self.plan, self._width(node)
        rng = random.Random(f"slots/{plan.seed}/{node}")
        sizes: list[int] = [width] if node < plan.wide_nodes else list(rng.choice(_PARTITIONS))
        slots, first = [], 0
        for place, size in enumerate(sizes):
            gpus = list(range(first, min(first + size, width)))
            first += size
            if not gpus:
                break
            own = random.Random(f"slot/{plan.seed}/{node}/{place}")
            slot = _Slot(gpus, own, number=1000 + node * 8 + place, step=plan.nodes * 8)
            if node < plan.wide_nodes:
                slot.fixed = plan.minutes - 1
            slot.change = (0, CHANGES_S[0]) if slot.fixed else self._later(slot, 0, own.expovariate(0.2))
            slot.cursors = [(own.randrange(self._library.variants), own.randrange(CYCLE)) for _ in gpus]
            slots.append(slot)
        return slots

    @staticmethod
    def _later(slot: _Slot, minute: int, minutes: float) -> tuple[int, int]:
        return minute + 1 + int(minutes), slot.rng.choice(CHANGES_S)

    def _change(self, slot: _Slot, node: int, minute: int, t_ms: int) -> list[Record]:
        """A job ends or the next one begins; its record."""
        if slot.open is not None:
            ended = _closed(slot.open, t_ms)
            slot.open, slot.pattern, slot.lost_minute = None, "idle", None
            slot.change = self._later(slot, minute, slot.rng.expovariate(1 / self.plan.idle_minutes))
            if slot.fixed:
                slot.change = (self.plan.minutes, 0)
            return [ended]
        kind = slot.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0] if not slot.fixed else "training"
        minutes = min(1440.0, slot.rng.lognormvariate(0, 1.2) * self.plan.job_minutes)
        slot.change = (slot.fixed, CHANGES_S[2]) if slot.fixed else self._later(slot, minute, minutes)
        if kind == LOST:
            slot.lost_minute = minute + 1 + int(minutes * slot.rng.random())
        slot.pattern = "training" if kind == LOST else kind
        job_id = 1 if slot.fixed else slot.number + slot.step * slot.job_id
        slot.job_id += 1
        slot.open = self._allocation(slot, node, job_id, t_ms)
        return [slot.open]

    def _allocation(self, slot: _Slot, node: int, job_id: int, t_ms: int) -> Allocation:
        wide = f"n[0000-{self.plan.wide_nodes - 1:04d}]" if slot.fixed else f"n{node:04d}"
        return Allocation(
            id=f"{job_id}@{t_ms}",
            node=f"n{node:04d}",
            cluster=CLUSTER,
            job_id=job_id,
            start_ms=t_ms,
            end_ms=None,
            source="prolog",
            gpus=tuple(HeldGpu(self._uuids[node][gpu], gpu) for gpu in slot.gpus),
            restart_count=0,
            slurm_start_s=t_ms // 1000,
            user=f"user{job_id % 97:02d}",
            uid=10_000 + job_id % 97,
            account=f"account{job_id % 11}",
            partition="gpu",
            nodelist=wide,
        )

    # -- records

    def _head(self, node: int, minute: int) -> Head:
        end_ms = self.plan.start_ms + (minute + 1) * MINUTE_MS
        stream = f"{self.plan.start_ms:013d}-{self.plan.seed:08x}-1"
        return Head(CLUSTER, f"n{node:04d}", f"boot-{self.plan.seed}", stream, minute, end_ms)

    def _records(self, node: int, minute: int) -> list[Record]:
        t_ms = self.plan.start_ms + minute * MINUTE_MS
        records: list[Record] = []
        if minute == 0:
            records.append(NodeStart(t_ms, f"boot-{self.plan.seed}", "bench"))
            records += [_info(uuid, gpu, t_ms) for gpu, uuid in enumerate(self._uuids[node])]
        for slot in self._slots[node]:
            records += self._slot_records(slot, node, minute, t_ms)
        return records

    def _slot_records(self, slot: _Slot, node: int, minute: int, t_ms: int) -> list[Record]:
        uuids, library, owner = self._uuids[node], self._library, slot.open.id if slot.open else None
        changes = slot.change[0] == minute
        second, pattern, lost = slot.change[1], slot.pattern, slot.lost_minute
        changed = self._change(slot, node, minute, t_ms + second * 1000 + 400) if changes else []
        records = list(changed)
        for gpu, (variant, place) in zip(slot.gpus, slot.cursors, strict=True):
            gone = lost is not None and minute >= lost and gpu == slot.gpus[0]
            if gone and minute == lost:
                text = f"{uuids[gpu]} has fallen off the bus"
                records.append(Event(t_ms, "gpu.lost", text, uuids[gpu], owner))
            if not changes:
                if not gone:
                    item = library.minute(pattern, variant, minute + place)
                    records.append(self._placed(item, node, uuids[gpu], t_ms - item.start_ms, owner))
                continue
            if not gone:
                item = library.before(pattern, second)
                records.append(self._placed(item, node, uuids[gpu], t_ms, owner))
            item = library.after(slot.pattern, second)
            records.append(self._placed(item, node, uuids[gpu], t_ms, slot.open.id if slot.open else None))
        return records

    def _placed(self, item: Block, node: int, uuid: str, shift_ms: int, owner: str | None) -> Block:
        """A block of the library at its new time."""
        self.samples += item.samples
        placed = Block(
            gpu=uuid,
            start_ms=item.start_ms + shift_ms,
            end_ms=item.end_ms + shift_ms,
            samples=item.samples,
            owners=(owner,) if owner else (),
            stats=item.stats,
            energy_mj=item.energy_mj,
            energy_source=item.energy_source,
            missing=item.missing,
            body=item.body,
        )
        if owner:
            self.truth.setdefault((f"n{node:04d}", owner, uuid), Truth()).add(placed)
        return placed


def _closed(opened: Allocation, t_ms: int) -> Allocation:
    values = {name: getattr(opened, name) for name in opened.__dataclass_fields__ if name != "RECORD"}
    return Allocation(**values | {"end_ms": t_ms, "end_source": "epilog", "exit_code": 0})


def _info(uuid: str, gpu: int, t_ms: int) -> GpuInfo:
    return GpuInfo(
        uuid=uuid,
        t_ms=t_ms,
        index=gpu,
        minor=gpu,
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=85_520_809_984,
        compute_capability="9.0",
        pci_address=f"00000000:{0x18 + gpu:02x}:00.0",
        ordinal=gpu,
        numa_node=gpu // 4,
        driver_version="570.86.15",
        cuda_version="12.8",
        health="ok",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write spools; print what they hold."""
    parser = argparse.ArgumentParser(description="Write the segments of an invented fleet.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--days", type=float, default=0.1)
    parser.add_argument("--wide-nodes", type=int, default=0, help="the first nodes run one job together")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    fleet = Fleet(Plan(given.gpus, given.days, given.seed, wide_nodes=given.wide_nodes))
    start, size, files = time.monotonic(), 0, 0
    for path in fleet.spool(given.folder):
        size += path.stat().st_size
        files += 1
    took = time.monotonic() - start
    print(f"{files} segments, {size / 1e6:.1f} MB, {fleet.samples} samples of {given.gpus} GPUs, {took:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
