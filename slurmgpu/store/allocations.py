"""Allocations into ``job``, ``job_node`` and ``job_gpu``, in whatever order their records come.

An end that a hook told stands. One that was inferred (the node started anew, Slurm's word, no process left) gives way
to a hook's, and grows with blocks that come later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, case, func, or_, select, update

from slurmgpu.store import runs
from slurmgpu.store.names import Names, row_id
from slurmgpu.store.runs import INFERRED
from slurmgpu.store.schema import job_gpu, job_node, node
from slurmgpu.wire.records import Allocation, HeldGpu, NodeStart

_LATE = ("epilog", "slurm")  # of a GPU: told when its readings had gone to nobody


def put(connection: Connection, names: Names, allocation: Allocation) -> None:
    """Take in an allocation as it opens, changes or closes."""
    cluster_id, node_id = names.node(connection, allocation.cluster, allocation.node)
    if allocation.source == "epilog":
        if _closed_before(connection, node_id, allocation):
            return
        earlier = _awaiting_its_epilog(connection, node_id, allocation)
        if earlier is not None and earlier.end_source == "boot":
            return  # it ended when the node died, whenever Slurm cleans up
        if earlier is not None:
            _end(connection, earlier.id, allocation)
            _hold(connection, names, earlier.id, allocation.gpus)
            runs.refresh(connection, earlier.job_id, allocation)
            return
    job_node_id = row_of(connection, node_id, allocation.id)
    known = connection.execute(select(job_node).where(job_node.c.id == job_node_id)).one()
    run_id = known.job_id or runs.run_of(connection, cluster_id, node_id, allocation)
    values: dict[str, Any] = {
        "job_id": run_id,
        "source": allocation.source,
        "start_ms": allocation.start_ms,
        "unresolved": json.dumps(allocation.unresolved) if allocation.unresolved else None,
    }
    connection.execute(update(job_node).where(job_node.c.id == job_node_id).values(**values))
    if allocation.end_ms is not None and (known.end_ms is None or known.end_source in INFERRED):
        _end(connection, job_node_id, allocation)  # what opens an allocation may come after what closed it
    _hold(connection, names, job_node_id, allocation.gpus)
    _end_slurms_word(connection, run_id, node_id, allocation)
    runs.refresh(connection, run_id, allocation)


def row_of(connection: Connection, node_id: int, allocation: str) -> int:
    """The allocation's row. Blocks may come before the record that opens it: then its id is all that is known."""
    start_ms = int(allocation.rpartition("@")[2])
    return row_id(connection, job_node, {"node_id": node_id, "allocation": allocation}, start_ms=start_ms)


def node_of(connection: Connection, names: Names, node_id: int, allocation: str) -> int:
    """The node of an allocation: where two clusters share a machine, its id names them."""
    cluster, _, rest = allocation.partition("/")
    return names.node(connection, cluster, rest.rpartition("/")[0])[1] if rest else node_id


def started(connection: Connection, node_id: int, start: NodeStart) -> None:
    """slurmgpud of the node started: what was open then is remembered."""
    known = connection.execute(select(node.c.started_ms).where(node.c.id == node_id)).scalar()
    if known is None or start.t_ms >= known:
        values = {"boot_id": start.boot_id, "started_ms": start.t_ms, "open_then": json.dumps(start.open)}
        connection.execute(update(node).where(node.c.id == node_id).values(**values))


def end_what_is_lost(connection: Connection, node_id: int, boot_id: str | None) -> None:
    """End what began before the node's latest start and was not open then. ``boot_id``: of what is being written."""
    state = connection.execute(select(node).where(node.c.id == node_id)).one()
    if state.started_ms is None:
        return
    still_open = set(json.loads(state.open_then))
    lost = (
        select(job_node)
        .where(job_node.c.node_id == node_id, job_node.c.source.is_not(None), job_node.c.source != "slurm")
        .where(job_node.c.start_ms < state.started_ms)
        .where(or_(job_node.c.end_ms.is_(None), job_node.c.end_source.in_(("boot", "lost"))))
    )
    for row in connection.execute(lost).all():
        if row.allocation in still_open:
            continue
        last = select(func.max(job_gpu.c.last_block_ms)).where(job_gpu.c.job_node_id == row.id)
        end_ms = max(row.start_ms, connection.execute(last).scalar() or row.start_ms)
        if end_ms == row.end_ms:
            continue
        source = row.end_source or ("lost" if boot_id in (None, state.boot_id) else "boot")
        connection.execute(update(job_node).where(job_node.c.id == row.id).values(end_ms=end_ms, end_source=source))
        if row.job_id is not None:
            runs.refresh_times(connection, row.job_id)


def _hold(connection: Connection, names: Names, job_node_id: int, gpus: Sequence[HeldGpu]) -> None:
    for held in gpus:
        key = {"job_node_id": job_node_id, "gpu_id": names.gpu(connection, held.uuid)}
        values = {"ordinal": held.ordinal, "told": held.told}
        job_gpu_id = row_id(connection, job_gpu, key)
        if held.told in _LATE:
            values["settled"] = False
        connection.execute(update(job_gpu).where(job_gpu.c.id == job_gpu_id).values(**values))


def _end(connection: Connection, job_node_id: int, allocation: Allocation) -> None:
    values = {
        "end_ms": allocation.end_ms,
        "end_source": allocation.end_source,
        "exit_code": allocation.exit_code,
    }
    connection.execute(update(job_node).where(job_node.c.id == job_node_id).values(**values))


def _of_job(node_id: int, allocation: Allocation) -> Any:
    """Rows of the node's allocations of this raw job id."""
    prefix = allocation.id.rpartition("@")[0]
    return and_(
        job_node.c.node_id == node_id,
        job_node.c.allocation != allocation.id,
        job_node.c.allocation.startswith(f"{prefix}@", autoescape=True),
    )


def _closed_before(connection: Connection, node_id: int, allocation: Allocation) -> bool:
    """The epilog's mark outlived its prolog's, which had been handed over with it already."""
    same_end = select(job_node.c.id).where(_of_job(node_id, allocation), job_node.c.end_ms == allocation.end_ms)
    return connection.execute(same_end.limit(1)).first() is not None


def _awaiting_its_epilog(connection: Connection, node_id: int, allocation: Allocation) -> Row[Any] | None:
    """The node's latest allocation of this job, where no hook has told its end: this epilog is its own."""
    latest = (
        select(job_node)
        .where(_of_job(node_id, allocation), job_node.c.start_ms <= allocation.end_ms, job_node.c.job_id.is_not(None))
        .order_by(job_node.c.start_ms.desc())
        .limit(1)
    )
    row = connection.execute(latest).first()
    if row is None or (row.end_ms is not None and row.end_source not in INFERRED):
        return None
    return row if runs.may_be_of(connection, row.job_id, allocation) else None


def _end_slurms_word(connection: Connection, run_id: int, node_id: int, allocation: Allocation) -> None:
    """The node itself speaks now: what was known from Slurm only ends where the node's word begins."""
    c, start_ms = job_node.c, allocation.start_ms
    if allocation.source == "slurm":
        return
    connection.execute(
        update(job_node)
        .where(c.job_id == run_id, c.node_id == node_id, c.source == "slurm")
        .where(or_(c.end_ms.is_(None), c.end_ms > start_ms))
        .values(end_ms=case((c.start_ms > start_ms, c.start_ms), else_=start_ms), end_source="slurm")
    )
