"""Jobs that run on nodes which said nothing of them, and nodes whose word differs from Slurm's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from slurmgpu.slurm.live import LiveJob
from slurmgpu.store import allocations, queries
from slurmgpu.store.names import Names
from slurmgpu.store.schema import cluster, event
from slurmgpu.wire.records import Allocation, HeldGpu

_PATIENCE_MS = 60_000  # a mark of a job that started may still be on its way


@dataclass(frozen=True, slots=True)
class _Place:
    node: str
    node_id: int
    newest_ms: int
    gpus: dict[int, str]  # Slurm's ordinal → UUID


def take(connection: Connection, cluster_id: int, jobs: Iterable[LiveJob], now_ms: int) -> None:
    """What slurmctld says of running jobs, for nodes that slurmgpu watches. Marks win; a disagreement is an event."""
    name = connection.execute(select(cluster.c.name).where(cluster.c.id == cluster_id)).scalar_one()
    names = Names()
    places = {place.node: place for place in _places(connection, cluster_id)}
    for job in jobs:
        for node, ordinals in job.gpus.items():
            place = places.get(node)
            if place is None or not ordinals or job.start_s is None:
                continue
            known = queries.allocations_at(connection, place.node_id, job.job_id, job.start_s * 1000)
            if known:
                _compare(connection, place, job, ordinals, known, now_ms)
            elif now_ms > job.start_s * 1000 + _PATIENCE_MS and place.newest_ms > job.start_s * 1000 + _PATIENCE_MS:
                allocations.put(connection, names, _allocation(name, place, job, ordinals))


def _places(connection: Connection, cluster_id: int) -> Iterable[_Place]:
    gpus: dict[int, dict[int, str]] = {}
    nodes: dict[int, tuple[str, int]] = {}
    for row in queries.numbered_gpus(connection, cluster_id):
        gpus.setdefault(row.node_id, {})[row.ordinal] = row.uuid
        nodes[row.node_id] = (row.node_name, row.newest_ms or 0)
    return (_Place(name, node_id, newest_ms, gpus[node_id]) for node_id, (name, newest_ms) in nodes.items())


def _allocation(cluster_name: str, place: _Place, job: LiveJob, ordinals: Sequence[int]) -> Allocation:
    start_ms = (job.start_s or 0) * 1000
    return Allocation(
        id=f"{job.job_id}@{start_ms}",
        node=place.node,
        cluster=cluster_name,
        job_id=job.job_id,
        start_ms=start_ms,
        end_ms=None,
        source="slurm",
        gpus=tuple(HeldGpu(place.gpus[n], n, "slurm") for n in ordinals if n in place.gpus),
        unresolved=tuple(str(n) for n in ordinals if n not in place.gpus),
        slurm_start_s=job.start_s,
        sluid=job.sluid or None,
        user=job.user or None,
    )


def _compare(
    connection: Connection,
    place: _Place,
    job: LiveJob,
    ordinals: Sequence[int],
    known: Sequence[Row[Any]],
    now_ms: int,
) -> None:
    """The GPUs by the node's marks beside those by Slurm."""
    marked = {row.ordinal for row in known if row.told == "mark" and row.ordinal is not None}
    allocation = known[0].allocation
    if not marked or marked == set(ordinals) or queries.has_event(connection, "owner.disagrees", allocation):
        return
    text = f"job {job.job_id}: the prolog named GPUs {sorted(marked)}, Slurm says {sorted(ordinals)}"
    values = {"node_id": place.node_id, "t_ms": now_ms, "kind": "owner.disagrees", "text": text}
    connection.execute(insert(event).values(**values, allocation=allocation))
