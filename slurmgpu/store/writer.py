"""Segments into the database, each exactly once: a segment's row, its blocks and all totals in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, update

from slurmgpu.store import allocations, schema
from slurmgpu.store.names import Names, row_id
from slurmgpu.store.names import insert as upsert
from slurmgpu.store.schema import block, event, gpu, gpu_placement, job_gpu, node, segment
from slurmgpu.store.totals import Totals, covered_ms, share_of, summary_values
from slurmgpu.wire.records import Allocation, Block, Event, GpuInfo, NodeStart, Record
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
        starts = [record for record in records if isinstance(record, NodeStart)]
        for start in starts:
            self._started(connection, node_id, start)
        for info in (record for record in records if isinstance(record, GpuInfo)):
            self._gpu(connection, node_id, info)
        changes = [record for record in records if isinstance(record, Allocation)]
        for allocation in sorted(changes, key=lambda a: (a.job_id, a.start_ms, a.end_ms is not None)):
            allocations.put(connection, self._names, allocation)
        self._blocks(connection, node_id, segment_id, [record for record in records if isinstance(record, Block)])
        self._events(connection, node_id, [record for record in records if isinstance(record, Event)])
        self._heard(connection, node_id, head)
        return True

    @staticmethod
    def _started(connection: Connection, node_id: int, start: NodeStart) -> None:
        """Before all else of its segment: an epilog that a new boot runs for a job of the old one ends nothing."""
        boot_id = connection.execute(select(node.c.boot_id).where(node.c.id == node_id)).scalar()
        allocations.started(connection, node_id, start)
        allocations.end_what_is_lost(connection, node_id, boot_id)

    @staticmethod
    def _heard(connection: Connection, node_id: int, head: Head) -> None:
        state = connection.execute(select(node).where(node.c.id == node_id)).one()
        if state.newest_ms is None or head.created_ms > state.newest_ms:
            connection.execute(update(node).where(node.c.id == node_id).values(newest_ms=head.created_ms))
        if state.started_ms is not None and head.created_ms < state.started_ms:  # late, from before the latest start
            allocations.end_what_is_lost(connection, node_id, head.boot_id)

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
            "ordinal": info.ordinal,
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

    # -- blocks

    def _blocks(self, connection: Connection, node_id: int, segment_id: int, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        totals: dict[tuple[str, str], Totals] = {}
        for item in blocks:
            for owner in item.owners:
                totals.setdefault((owner, item.gpu), Totals()).add(item, owner)
        held: dict[tuple[str, str], int] = {}
        for (owner, uuid), total in sorted(totals.items()):
            owner_node_id = allocations.node_of(connection, self._names, node_id, owner)
            job_node_id = allocations.row_of(connection, owner_node_id, owner)
            key = {"job_node_id": job_node_id, "gpu_id": self._names.gpu(connection, uuid)}
            job_gpu_id = held[owner, uuid] = row_id(connection, job_gpu, key)
            connection.execute(update(job_gpu).where(job_gpu.c.id == job_gpu_id).values(**total.increments()))
        rows = []
        for item in blocks:
            owner_id = held[item.owners[0], item.gpu] if len(item.owners) == 1 else None
            rows.append(_block_row(item, self._names.gpu(connection, item.gpu), owner_id, segment_id))
        connection.execute(insert(block), rows)


def _block_row(item: Block, gpu_id: int, owner_id: int | None, segment_id: int) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    if item.missing:
        notes["missing"] = item.missing
    if item.dropped:
        notes["dropped"] = item.dropped
    if len(item.owners) > 1:
        notes["shares"] = {owner: share_of(item, owner).as_list() for owner in item.owners}
    sums = summary_values(item)
    return {
        "gpu_id": gpu_id,
        "segment_id": segment_id,
        "start_ms": item.start_ms,
        "end_ms": item.end_ms,
        "owners": len(item.owners),
        "job_gpu_id": owner_id,
        "samples": item.samples,
        "covered_ms": covered_ms(item),
        "energy_mj": item.energy_mj,
        "energy_source": item.energy_source,
        "notes": json.dumps(notes) if notes else None,
        "samples_z": item.body or None,
        **{column: sums.get(column) for column, _, _ in schema.summary_columns()},
    }
