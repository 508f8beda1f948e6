"""Segments into the database, each exactly once: a segment's row, its blocks and all totals in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, case, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from slurmgpu.store import runs, schema
from slurmgpu.store.names import Names, row_id
from slurmgpu.store.names import insert as upsert
from slurmgpu.store.schema import block, event, gpu, gpu_placement, job_gpu, job_node, segment
from slurmgpu.wire.records import Allocation, Block, Event, GpuInfo, Record
from slurmgpu.wire.segment import Head


class Writer:
    """Writes segments. One writer, one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(slurmgpu_writing=True)
        self._names = Names()

    def write(self, head: Head, records: Sequence[Record]) -> bool:
        """Write a segment; False when it had been written before. Raises SQLAlchemyError, then nothing was kept."""
        try:
            with self._engine.begin() as connection:
                return self._write(connection, head, records)
        except BaseException:
            self._names.clear()
            raise

    def _write(self, connection: Connection, head: Head, records: Sequence[Record]) -> bool:
        _, node_id = self._names.node(connection, head.cluster, head.node)
        taken = (
            upsert(connection, segment)
            .values(
                node_id=node_id,
                stream=head.stream,
                seq=head.seq,
                created_ms=head.created_ms,
                taken_ms=time.time_ns() // 1_000_000,
            )
            .on_conflict_do_nothing()
            .returning(segment.c.id)
        )
        segment_id = connection.execute(taken).scalar()
        if segment_id is None:
            return False
        for info in (record for record in records if isinstance(record, GpuInfo)):
            self._gpu(connection, node_id, info)
        allocations = [record for record in records if isinstance(record, Allocation)]
        for allocation in sorted(allocations, key=lambda a: (a.job_id, a.start_ms, a.end_ms is not None)):
            self._allocation(connection, allocation)
        self._blocks(connection, node_id, segment_id, [record for record in records if isinstance(record, Block)])
        self._events(connection, node_id, [record for record in records if isinstance(record, Event)])
        return True

    # -- GPUs and events

    def _gpu(self, connection: Connection, node_id: int, info: GpuInfo) -> None:
        gpu_id = self._names.gpu(connection, info.uuid)
        facts = {
            "serial": info.serial,
            "name": info.name,
            "memory_bytes": info.memory_bytes,
            "compute_capability": info.compute_capability,
            "parent_uuid": info.parent,
        }
        there = {name: value for name, value in facts.items() if value is not None}
        if there:
            connection.execute(update(gpu).where(gpu.c.id == gpu_id).values(**there))
        place = {
            "node_id": node_id,
            "nvml_index": info.index,
            "minor": info.minor,
            "pci_address": info.pci_address,
        }
        now = {
            "numa_node": info.numa_node,
            "driver_version": info.driver_version,
            "cuda_version": info.cuda_version,
            "modes": json.dumps(info.modes),
            "nvlink_peers": json.dumps(info.nvlink_peers),
            "health": info.health,
        }
        latest = connection.execute(
            select(gpu_placement).where(gpu_placement.c.gpu_id == gpu_id).order_by(gpu_placement.c.last_ms.desc())
        ).first()
        if latest is not None and all(getattr(latest, name) == value for name, value in place.items()):
            span = {"first_ms": min(latest.first_ms, info.t_ms), "last_ms": max(latest.last_ms, info.t_ms)}
            span |= now if info.t_ms >= latest.last_ms else {}
            connection.execute(update(gpu_placement).where(gpu_placement.c.id == latest.id).values(**span))
        else:
            new = {"gpu_id": gpu_id, "first_ms": info.t_ms, "last_ms": info.t_ms, **place, **now}
            connection.execute(insert(gpu_placement).values(**new))

    def _events(self, connection: Connection, node_id: int, events: Sequence[Event]) -> None:
        rows = [
            {
                "node_id": node_id,
                "gpu_id": self._names.gpu(connection, item.gpu) if item.gpu else None,
                "t_ms": item.t_ms,
                "kind": item.kind,
                "text": item.text,
                "allocation": item.allocation,
            }
            for item in events
        ]
        if rows:
            connection.execute(insert(event), rows)

    # -- allocations

    def _allocation(self, connection: Connection, allocation: Allocation) -> None:
        cluster_id, node_id = self._names.node(connection, allocation.cluster, allocation.node)
        if allocation.source == "epilog" and _closed_before(connection, node_id, allocation):
            return
        job_node_id = _job_node_id(connection, node_id, allocation.id)
        known = connection.execute(select(job_node).where(job_node.c.id == job_node_id)).one()
        run_id = known.job_id or runs.run_of(connection, cluster_id, node_id, allocation)
        values: dict[str, Any] = {
            "job_id": run_id,
            "source": allocation.source,
            "start_ms": allocation.start_ms,
            "unresolved": json.dumps(allocation.unresolved) if allocation.unresolved else None,
        }
        if allocation.end_ms is not None:  # what opens an allocation may come after what closed it
            values |= {
                "end_ms": allocation.end_ms,
                "end_source": allocation.end_source,
                "exit_code": allocation.exit_code,
            }
        connection.execute(update(job_node).where(job_node.c.id == job_node_id).values(**values))
        for held in allocation.gpus:
            key = {"job_node_id": job_node_id, "gpu_id": self._names.gpu(connection, held.uuid)}
            job_gpu_id = row_id(connection, job_gpu, key, ordinal=held.ordinal)
            connection.execute(update(job_gpu).where(job_gpu.c.id == job_gpu_id).values(ordinal=held.ordinal))
        runs.refresh(connection, run_id, allocation)

    # -- blocks

    def _blocks(self, connection: Connection, node_id: int, segment_id: int, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        connection.execute(
            insert(block), [_block_row(item, self._names.gpu(connection, item.gpu), segment_id) for item in blocks]
        )
        totals: dict[tuple[str, str], Totals] = {}
        for item in blocks:
            for place, owner in enumerate(item.owners):
                totals.setdefault((owner, item.gpu), Totals()).add(item, place)
        for (owner, uuid), total in sorted(totals.items()):
            job_node_id = _job_node_id(connection, node_id, owner)
            key = {"job_node_id": job_node_id, "gpu_id": self._names.gpu(connection, uuid)}
            job_gpu_id = row_id(connection, job_gpu, key)
            connection.execute(update(job_gpu).where(job_gpu.c.id == job_gpu_id).values(**total.increments()))


class Totals:
    """What blocks add to a job's GPU. Sums, minima and maxima: the order of adding does not matter."""

    def __init__(self) -> None:
        self.samples = self.covered_ms = self.shared_ms = self.energy_ms = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.energy_mj: int | None = None
        self.sources: set[str] = set()
        self.sums: dict[str, float] = {}

    def add(self, item: Block, place: int) -> None:
        """Add a block of which this owner is number ``place``; a shared one's energy is divided evenly."""
        self.samples += item.samples
        self.covered_ms += _covered_ms(item)
        if len(item.owners) > 1:
            self.shared_ms += item.end_ms - item.start_ms
        self.first_ms = item.start_ms if self.first_ms is None else min(self.first_ms, item.start_ms)
        self.last_ms = item.end_ms if self.last_ms is None else max(self.last_ms, item.end_ms)
        if item.energy_mj is not None:
            share, rest = divmod(item.energy_mj, len(item.owners))
            self.energy_mj = (self.energy_mj or 0) + share + (place < rest)
            self.energy_ms += item.end_ms - item.start_ms
            self.sources.add(item.energy_source or "power")
        for column, value in _summary_values(item).items():
            if column.endswith("_max"):
                self.sums[column] = max(value, self.sums.get(column, value))
            else:
                self.sums[column] = self.sums.get(column, 0) + value

    def increments(self) -> dict[str, Any]:
        """Values for UPDATE job_gpu."""
        c = job_gpu.c
        values: dict[str, Any] = {
            "samples": c.samples + self.samples,
            "covered_ms": c.covered_ms + self.covered_ms,
            "shared_ms": c.shared_ms + self.shared_ms,
            "energy_ms": c.energy_ms + self.energy_ms,
            "first_block_ms": _less(c.first_block_ms, self.first_ms),
            "last_block_ms": _greater(c.last_block_ms, self.last_ms),
        }
        for column, value in self.sums.items():
            old = c[column]
            values[column] = _greater(old, value) if column.endswith("_max") else func.coalesce(old, 0) + value
        if self.energy_mj is not None:
            source = self.sources.pop() if len(self.sources) == 1 else "mixed"
            values["energy_mj"] = func.coalesce(c.energy_mj, 0) + self.energy_mj
            values["energy_source"] = case(
                (c.energy_source.is_(None), source), (c.energy_source == source, source), else_="mixed"
            )
        return values


def _greater(old: ColumnElement[Any], new: Any) -> ColumnElement[Any]:
    return case((old >= new, old), else_=new)


def _less(old: ColumnElement[Any], new: Any) -> ColumnElement[Any]:
    return case((old <= new, old), else_=new)


def _covered_ms(item: Block) -> int:
    return item.end_ms - item.start_ms if item.samples or item.stats else 0


def _summary_values(item: Block) -> dict[str, float]:
    """The plain columns of a block; what it has no reading of is left out."""
    return {
        column: getattr(item.stats[metric], part)
        for column, metric, part in schema.summary_columns()
        if metric in item.stats
    }


def _block_row(item: Block, gpu_id: int, segment_id: int) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    if item.missing:
        notes["missing"] = item.missing
    if item.dropped:
        notes["dropped"] = item.dropped
    sums = _summary_values(item)
    return {
        "gpu_id": gpu_id,
        "segment_id": segment_id,
        "start_ms": item.start_ms,
        "end_ms": item.end_ms,
        "owners": len(item.owners),
        "samples": item.samples,
        "covered_ms": _covered_ms(item),
        "energy_mj": item.energy_mj,
        "energy_source": item.energy_source,
        "notes": json.dumps(notes) if notes else None,
        "samples_z": item.body or None,
        **{column: sums.get(column) for column, _, _ in schema.summary_columns()},
    }


def _job_node_id(connection: Connection, node_id: int, allocation: str) -> int:
    """The allocation's row. Blocks may come before the record that opens it: then its id is all that is known."""
    start_ms = int(allocation.rpartition("@")[2])
    return row_id(connection, job_node, {"node_id": node_id, "allocation": allocation}, start_ms=start_ms)


def _closed_before(connection: Connection, node_id: int, allocation: Allocation) -> bool:
    """The epilog's mark outlived its prolog's, which had been handed over with it already."""
    same_end = select(job_node.c.id).where(
        job_node.c.node_id == node_id,
        job_node.c.end_ms == allocation.end_ms,
        job_node.c.allocation != allocation.id,
        job_node.c.allocation.startswith(f"{allocation.job_id}@", autoescape=True),
    )
    return connection.execute(same_end.limit(1)).first() is not None
