"""What is learnt late of owners: figures found anew from the blocks.

Two cases. A GPU whose owner was told after its readings had gone to nobody has the blocks that nobody owns. And an
allocation that Slurm says ended long ago, since its epilog never came, gives back the blocks after its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, or_, select, update

from slurmgpu.store import schema
from slurmgpu.store.schema import block, job_gpu, job_node, node
from slurmgpu.store.totals import Totals
from slurmgpu.wire.records import Block, Share, Stat
from slurmgpu.wire.samples import SamplesError, decode

GRACE_MS = 600_000
"""After its end a job's data may come this late from a node that says nothing at all."""
_MOST = 1000  # GPUs in one go
_FLUSH_MS = 120_000  # blocks of a time may come this much later
_LONGEST_MS = 3_700_000  # of a block, folded or not
_TO_NOBODY = ("epilog", "slurm")  # told: readings had gone to nobody


@dataclass(frozen=True, slots=True)
class _Held:
    """A GPU of an allocation, and its time."""

    job_gpu_id: int
    gpu_id: int
    allocation: str
    to_nobody: bool
    start_ms: int
    end_ms: int


def settle(connection: Connection, now_ms: int) -> int:
    """Find the figures anew of all that is not settled; how many GPUs that were."""
    query = (
        select(
            job_gpu.c.id,
            job_gpu.c.gpu_id,
            job_gpu.c.told,
            job_node.c.allocation,
            job_node.c.start_ms,
            job_node.c.end_ms,
            job_node.c.widened,
            node.c.newest_ms,
        )
        .join(job_node, job_node.c.id == job_gpu.c.job_node_id)
        .join(node, node.c.id == job_node.c.node_id)
        .where(job_gpu.c.settled.is_(False))
        .limit(_MOST)
    )
    rows = connection.execute(query).all()
    for row in rows:
        end_ms = row.end_ms if row.end_ms is not None else now_ms
        to_nobody = row.widened or row.told in _TO_NOBODY
        held = _Held(row.id, row.gpu_id, row.allocation, to_nobody, row.start_ms, end_ms)
        complete = (row.newest_ms or 0) > end_ms + _FLUSH_MS or now_ms > end_ms + GRACE_MS
        values = _totals(connection, held).values() | {"settled": row.end_ms is not None and complete}
        connection.execute(update(job_gpu).where(job_gpu.c.id == row.id).values(**values))
    return len(rows)


def give_back(connection: Connection, job_node_id: int, end_ms: int) -> None:
    """An allocation ended at ``end_ms``, and not when its last block did: later blocks are nobody's, or the others'."""
    row = connection.execute(select(job_node).where(job_node.c.id == job_node_id)).one()
    affected: set[str] = set()
    for gpu in connection.execute(select(job_gpu).where(job_gpu.c.job_node_id == job_node_id)).all():
        later = and_(block.c.gpu_id == gpu.gpu_id, block.c.start_ms >= end_ms)
        own = update(block).where(later, block.c.job_gpu_id == gpu.id)
        connection.execute(own.values(job_gpu_id=None, owners=0))
        for shared in connection.execute(select(block).where(later, block.c.owners > 1)).all():
            affected |= _leave(connection, shared, row.node_id, row.allocation)
    affected.add(row.allocation)
    ids = select(job_node.c.id).where(job_node.c.node_id == row.node_id, job_node.c.allocation.in_(affected))
    connection.execute(update(job_gpu).where(job_gpu.c.job_node_id.in_(ids)).values(settled=False))


def _leave(connection: Connection, shared: Row[Any], node_id: int, allocation: str) -> set[str]:
    """Take one owner out of a shared block; the others, who divide it among themselves now."""
    notes = json.loads(shared.notes)
    shares = notes.get("shares", {})
    if allocation not in shares:
        return set()
    del shares[allocation]
    total = sum(share[0] for share in shares.values())
    for share in shares.values():
        share[0] = share[0] / total if total else 1 / len(shares)
    values: dict[str, Any] = {"owners": len(shares)}
    if len(shares) == 1:
        (owner,) = shares
        held = (
            select(job_gpu.c.id)
            .join(job_node)
            .where(job_node.c.node_id == node_id, job_node.c.allocation == owner, job_gpu.c.gpu_id == shared.gpu_id)
        )
        values["job_gpu_id"] = connection.execute(held).scalar()
        del notes["shares"]
    values["notes"] = json.dumps(notes) if notes else None
    connection.execute(update(block).where(block.c.id == shared.id).values(**values))
    return set(shares)


def _totals(connection: Connection, held: _Held) -> Totals:
    mine = or_(block.c.job_gpu_id == held.job_gpu_id, block.c.owners > 1)
    query = select(block).where(
        block.c.gpu_id == held.gpu_id,
        block.c.start_ms < held.end_ms,
        block.c.start_ms > held.start_ms - _LONGEST_MS,  # for the index
        block.c.end_ms > held.start_ms,
        or_(mine, block.c.owners == 0) if held.to_nobody else mine,
    )
    totals = Totals()
    for row in connection.execute(query.order_by(block.c.start_ms)):
        shares = json.loads(row.notes).get("shares", {}) if row.owners > 1 and row.notes else {}
        if row.owners > 1 and held.allocation not in shares:
            continue
        item = _block(row, held, shares)
        totals.add(cut(item, held.start_ms, held.end_ms), held.allocation)
    return totals


def _block(row: Row[Any], held: _Held, shares: Mapping[str, list[Any]]) -> Block:
    """A row as the record that it was, as far as totals go."""
    stats = {
        metric: Stat(
            getattr(row, f"{metric}_weight_ms", None) or 0,
            getattr(row, f"{metric}_sum", None) or 0.0,
            0.0,
            getattr(row, f"{metric}_max", None) or 0.0,
        )
        for metric, parts in schema.SUMMARY.items()
        if getattr(row, f"{metric}_{parts[0]}") is not None
    }
    return Block(
        gpu="",
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        samples=row.samples,
        owners=tuple(shares) or (held.allocation,),
        stats=stats if row.covered_ms else {},
        energy_mj=row.energy_mj,
        energy_source=row.energy_source,
        shares={owner: Share(*parts) for owner, parts in shares.items()},
        body=row.samples_z or b"",
    )


def cut(item: Block, start_ms: int, end_ms: int) -> Block:
    """The part of a block that lies in a time: by its samples, each for the time since the one before."""
    start_ms, end_ms = max(start_ms, item.start_ms), min(end_ms, item.end_ms)
    if (start_ms, end_ms) == (item.start_ms, item.end_ms):
        return item
    try:
        samples = decode(item.body) if item.body else {}
    except SamplesError:
        samples = {}
    ends = [item.start_ms + int(offset or 0) for offset in samples.get("t_ms", [])]
    if ends:
        ends[-1] = item.end_ms
    starts = [item.start_ms, *ends[:-1]]
    weights = [max(0, min(end, end_ms) - max(start, start_ms)) for start, end in zip(starts, ends, strict=False)]
    stats = {metric: _stat(samples.get(metric, []), weights) for metric in item.stats}
    energy_mj = None
    if item.energy_mj is not None and item.end_ms > item.start_ms:
        part = _energy_part(item, samples.get("power_mw", []), weights)
        energy_mj = round(
            item.energy_mj * ((end_ms - start_ms) / (item.end_ms - item.start_ms) if part is None else part)
        )
    return Block(
        gpu=item.gpu,
        start_ms=start_ms,
        end_ms=end_ms,
        samples=sum(start_ms < end <= end_ms for end in ends),
        owners=item.owners,
        stats={metric: stat for metric, stat in stats.items() if stat is not None},
        energy_mj=energy_mj,
        energy_source=item.energy_source,
        shares=item.shares,
    )


def _stat(values: Iterable[float | None], weights: list[int]) -> Stat | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=False) if value is not None and weight]
    if not pairs:
        return None
    area = sum(value * weight for value, weight in pairs)
    there = [value for value, _ in pairs]
    return Stat(sum(weight for _, weight in pairs), area, min(there), max(there))


def _energy_part(item: Block, powers: list[float | int | None], weights: list[int]) -> float | None:
    """The part of a block's energy in a time, by power; None where that is not known throughout."""
    whole = item.stats.get("power_mw")
    if not whole or not whole.sum or len(powers) != len(weights) or None in powers:
        return None
    return min(1.0, sum((power or 0) * weight for power, weight in zip(powers, weights, strict=True)) / whole.sum)
