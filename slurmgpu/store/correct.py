"""A run that Slurm calls ended: times that the node could not know are set right, and the blocks with them.

What hooks told stands. An end that no epilog told is Slurm's, and so is a start that was seen only late: by its
processes, or by a prolog that ran at the first step, long after the job had got its GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from slurmgpu.store import late, runs
from slurmgpu.store.names import row_id
from slurmgpu.store.runs import INFERRED
from slurmgpu.store.schema import block, job_gpu, job_node, node

_NODE_LAG_MS = 5_000
_LATE_START_MS = 5_000  # a prolog takes its time; later than this, it ran at the first step
_KNOWS_ITS_START = "prolog"  # an epilog only since Slurm 23.11
_STANDS = "boot"  # Slurm notices a dead node later than its last reading


def by_slurm(connection: Connection, run_id: int, span_ms: tuple[int, int], now_ms: int, *, may_widen: bool) -> bool:
    """Set the run's times right by Slurm's ``span_ms``. False: it is too early on some node, ask again.

    An epilog's mark may still be on its way: not before the node has sent something that is younger than the end.
    ``may_widen``: the job had all its nodes from its start.
    """
    query = (
        select(job_node, node.c.newest_ms)
        .join(node)
        .where(job_node.c.job_id == run_id)
        .order_by(job_node.c.node_id, job_node.c.start_ms)
    )
    done = True
    for _, rows in groupby(connection.execute(query).all(), key=lambda row: row.node_id):
        mine = list(rows)
        heard = (mine[0].newest_ms or 0) > span_ms[1] + _NODE_LAG_MS or now_ms > span_ms[1] + late.GRACE_MS
        if heard or all(row.source == "slurm" for row in mine):
            _correct(connection, mine, span_ms, may_widen=may_widen)
        else:
            done = False
    runs.refresh_times(connection, run_id)
    return done


def _correct(connection: Connection, rows: Sequence[Row[Any]], span_ms: tuple[int, int], *, may_widen: bool) -> None:
    """One node of the run: its allocations become one, from the true start to the true end."""
    first, last = rows[0], rows[-1]
    start_ms = first.start_ms
    if may_widen and (first.source != _KNOWS_ITS_START or start_ms > span_ms[0] + _LATE_START_MS):
        start_ms = min(span_ms[0], start_ms)
    by_hook = [row for row in rows if row.end_ms is not None and row.end_source not in INFERRED]
    if by_hook:
        end_ms, end_source, exit_code = by_hook[-1].end_ms, by_hook[-1].end_source, by_hook[-1].exit_code
    elif last.end_source == _STANDS:
        end_ms, end_source, exit_code = last.end_ms, _STANDS, None
    else:
        end_ms, end_source, exit_code = max(start_ms, span_ms[1]), "slurm", None
    if len(rows) == 1 and (first.start_ms, first.end_ms) == (start_ms, end_ms):
        return
    for other in rows[1:]:
        _unite(connection, first.id, other.id)
    widened = start_ms < first.start_ms or end_ms > max(row.end_ms or row.start_ms for row in rows) or len(rows) > 1
    values = {"start_ms": start_ms, "end_ms": end_ms, "end_source": end_source, "exit_code": exit_code}
    connection.execute(update(job_node).where(job_node.c.id == first.id).values(**values, widened=widened))
    late.give_back(connection, first.id, end_ms)


def _unite(connection: Connection, into: int, other: int) -> None:
    """What the other allocation has is the first one's."""
    for held in connection.execute(select(job_gpu).where(job_gpu.c.job_node_id == other)).all():
        key = {"job_node_id": into, "gpu_id": held.gpu_id}
        target = row_id(connection, job_gpu, key, ordinal=held.ordinal, told=held.told)
        own = update(block).where(block.c.gpu_id == held.gpu_id, block.c.job_gpu_id == held.id)
        connection.execute(own.where(block.c.start_ms >= (held.first_block_ms or 0)).values(job_gpu_id=target))
    connection.execute(delete(job_gpu).where(job_gpu.c.job_node_id == other))
    connection.execute(delete(job_node).where(job_node.c.id == other))
