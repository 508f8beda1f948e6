"""What reports ask of the database. Every query here goes through an index; none reads samples it does not return."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Label, Row, and_, case, cast, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from slurmgpu.store.schema import (
    block,
    cluster,
    event,
    gpu,
    gpu_placement,
    job,
    job_gpu,
    job_node,
    node,
    summary_columns,
)
from slurmgpu.wire.samples import decode

_CHUNK = 400  # parameters of one IN list


@dataclass(frozen=True, slots=True)
class GpuTime:
    """A GPU and the time for which a job held it."""

    gpu_id: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class JobChoice:
    """Which runs are meant: of one raw id with the tasks of its array and the components of its het job, or fewer."""

    job_id: int | None = None
    tasks: tuple[range, ...] | None = None
    het_offset: int | None = None
    sluid: str | None = None

    def condition(self) -> ColumnElement[bool]:
        """For WHERE."""
        if self.sluid is not None:
            return job.c.sluid == self.sluid
        if self.tasks is not None:
            parts = [_in_range(job.c.array_task, tasks) for tasks in self.tasks]
            return and_(job.c.array_job_id == self.job_id, or_(*parts))
        if self.het_offset is not None:
            return and_(job.c.het_job_id == self.job_id, job.c.het_offset == self.het_offset)
        return or_(*(column == self.job_id for column in (job.c.raw_job_id, job.c.array_job_id, job.c.het_job_id)))


def _in_range(column: Column[Any], numbers: range) -> ColumnElement[bool]:
    within = and_(column >= numbers.start, column < numbers.stop)
    return within if numbers.step == 1 else and_(within, (column - numbers.start) % numbers.step == 0)


def runs(connection: Connection, choice: JobChoice, cluster_name: str | None = None) -> list[Row[Any]]:
    """The runs that are meant, by job and oldest first, with the cluster's name."""
    query = (
        select(job, cluster.c.name.label("cluster_name"))
        .join(cluster)
        .where(choice.condition())
        .order_by(job.c.array_task, job.c.het_offset, job.c.raw_job_id, job.c.start_ms, job.c.id)
    )
    if cluster_name:
        query = query.where(cluster.c.name == cluster_name)
    return list(connection.execute(query))


def allocations(connection: Connection, run_id: int) -> list[Row[Any]]:
    """The run's time on its nodes, by node name."""
    query = (
        select(job_node, node.c.name.label("node_name"))
        .join(node)
        .where(job_node.c.job_id == run_id)
        .order_by(node.c.name, job_node.c.start_ms)
    )
    return list(connection.execute(query))


def held_gpus(connection: Connection, run_id: int) -> list[Row[Any]]:
    """The run's GPUs with their totals, by node and Slurm's ordinal.

    A node that lost sight of the job for a while has several allocations of it: they are one here.
    """
    c = job_gpu.c

    def total(name: str) -> Label[Any]:
        whole = func.max(c[name]) if name.endswith("_max") else func.sum(c[name])
        return cast(whole, c[name].type).label(name)  # PostgreSQL's sums are of another type

    sums = [total(name) for name, _, _ in summary_columns()]
    energy_source = case(
        (func.min(c.energy_source) == func.max(c.energy_source), func.min(c.energy_source)), else_="mixed"
    )
    query = (
        select(
            c.gpu_id,
            func.max(c.ordinal).label("ordinal"),
            total("samples"),
            total("covered_ms"),
            total("shared_ms"),
            func.min(c.first_block_ms).label("first_block_ms"),
            func.max(c.last_block_ms).label("last_block_ms"),
            total("energy_mj"),
            total("energy_ms"),
            case((func.count(c.energy_source) > 0, energy_source)).label("energy_source"),
            *sums,
            node.c.name.label("node_name"),
            func.min(job_node.c.start_ms).label("start_ms"),
            case((func.count() == func.count(job_node.c.end_ms), func.max(job_node.c.end_ms))).label("end_ms"),
            gpu.c.uuid,
            gpu.c.name.label("model"),
            gpu.c.memory_bytes.label("memory_bytes"),
        )
        .select_from(job_node)
        .join(job_gpu, job_gpu.c.job_node_id == job_node.c.id)
        .join(gpu, gpu.c.id == job_gpu.c.gpu_id)
        .join(node, node.c.id == job_node.c.node_id)
        .where(job_node.c.job_id == run_id)
        .group_by(c.gpu_id, node.c.name, gpu.c.uuid, gpu.c.name, gpu.c.memory_bytes)
        .order_by(node.c.name, func.min(job_node.c.start_ms), func.max(c.ordinal), gpu.c.uuid)
    )
    return list(connection.execute(query))


def block_spans(connection: Connection, held: GpuTime) -> list[tuple[int, int]]:
    """(start_ms, end_ms) of the covered blocks of a GPU in a time, oldest first."""
    query = select(block.c.start_ms, block.c.end_ms).where(_within(held), block.c.covered_ms > 0)
    return [(start, end) for start, end in connection.execute(query.order_by(block.c.start_ms))]


def busy_by_block(connection: Connection, held: GpuTime) -> list[tuple[int, int, float]]:
    """(start_ms, end_ms, mean GPU busy in %) of the blocks of a GPU in a time, oldest first."""
    mean = block.c.gpu_util_pct_sum / block.c.gpu_util_pct_weight_ms
    query = select(block.c.start_ms, block.c.end_ms, mean).where(_within(held), block.c.gpu_util_pct_weight_ms > 0)
    return [(start, end, value) for start, end, value in connection.execute(query.order_by(block.c.start_ms))]


def samples(connection: Connection, held: GpuTime) -> Iterator[tuple[int, int, dict[str, list[float | int | None]]]]:
    """(start_ms, end_ms, samples by metric) of the blocks of a GPU in a time, oldest first.

    Raises SamplesError for a block that cannot be read.
    """
    query = select(block.c.start_ms, block.c.end_ms, block.c.samples_z).where(
        _within(held), block.c.samples_z.is_not(None)
    )
    for start, end, packed in connection.execute(query.order_by(block.c.start_ms)):
        yield start, end, decode(packed)


def count_blocks(connection: Connection, held: GpuTime) -> int:
    """How many blocks a GPU has in a time."""
    return connection.execute(select(func.count()).where(_within(held))).scalar_one()


def events_of(
    connection: Connection,
    allocation_ids: Iterable[str],
    node_ids: Iterable[int],
    gpu_ids: Iterable[int],
    start_ms: int,
    end_ms: int,
) -> list[Row[Any]]:
    """Events of these nodes that name one of these allocations, or one of these GPUs in the time; oldest first."""
    ids, nodes, gpus = list(allocation_ids)[:_CHUNK], list(node_ids)[:_CHUNK], list(gpu_ids)[:_CHUNK]
    within = and_(event.c.gpu_id.in_(gpus), event.c.t_ms >= start_ms, event.c.t_ms < end_ms)
    query = (
        select(event, node.c.name.label("node_name"))
        .join(node)
        .where(event.c.node_id.in_(nodes), or_(event.c.allocation.in_(ids), within))
    )
    return list(connection.execute(query.order_by(event.c.t_ms)))


def latest_notes(connection: Connection, held: GpuTime) -> dict[str, Any]:
    """What the latest block of a GPU in a time says of readings that it lacks, as :class:`slurmgpu.wire` has it."""
    query = select(block.c.notes).where(_within(held), block.c.notes.is_not(None))
    notes = connection.execute(query.order_by(block.c.start_ms.desc()).limit(1)).scalar()
    return json.loads(notes) if notes else {}


def allocations_at(connection: Connection, node_id: int, raw_job_id: int, t_ms: int) -> list[Row[Any]]:
    """A job's allocations on a node that go on at ``t_ms`` or begin later, newest first, a row for each GPU."""
    going_on = or_(job_node.c.end_ms.is_(None), job_node.c.end_ms > t_ms)
    query = (
        select(job_node.c.allocation, job_node.c.source, job_gpu.c.ordinal, job_gpu.c.told)
        .join(job_gpu, job_gpu.c.job_node_id == job_node.c.id, isouter=True)
        .where(job_node.c.node_id == node_id, job_node.c.allocation.startswith(f"{raw_job_id}@"), going_on)
        .order_by(job_node.c.start_ms.desc())
    )
    return list(connection.execute(query))


def has_event(connection: Connection, kind: str, allocation: str) -> bool:
    """Whether an event of this kind is known of an allocation."""
    query = select(event.c.id).where(event.c.kind == kind, event.c.allocation == allocation)
    return connection.execute(query.limit(1)).first() is not None


def numbered_gpus(connection: Connection, cluster_id: int) -> list[Row[Any]]:
    """The GPUs of a cluster's nodes that have a number of Slurm's, where they are now."""
    newest = func.max(gpu_placement.c.last_ms).over(partition_by=gpu_placement.c.gpu_id)
    ranked = select(gpu_placement, newest.label("newest_place_ms")).subquery()
    query = (
        select(ranked.c.node_id, ranked.c.ordinal, gpu.c.uuid, node.c.name.label("node_name"), node.c.newest_ms)
        .join(gpu, gpu.c.id == ranked.c.gpu_id)
        .join(node, node.c.id == ranked.c.node_id)
        .where(node.c.cluster_id == cluster_id, ranked.c.ordinal.is_not(None))
        .where(ranked.c.last_ms == ranked.c.newest_place_ms)
    )
    return list(connection.execute(query))


def gpu_places(connection: Connection, *, history: bool = False) -> list[Row[Any]]:
    """Where each GPU is: its latest place, or with ``history`` all of them; by cluster, node and NVML's index."""
    newest = func.row_number().over(partition_by=gpu_placement.c.gpu_id, order_by=gpu_placement.c.last_ms.desc())
    ranked = select(gpu_placement, newest.label("place_rank")).subquery()
    query = (
        select(
            ranked,
            gpu.c.uuid,
            gpu.c.serial,
            gpu.c.name,
            gpu.c.memory_bytes,
            gpu.c.compute_capability,
            gpu.c.parent_uuid,
            node.c.name.label("node_name"),
            cluster.c.name.label("cluster_name"),
        )
        .select_from(ranked)
        .join(gpu, gpu.c.id == ranked.c.gpu_id)
        .join(node, node.c.id == ranked.c.node_id)
        .join(cluster, cluster.c.id == node.c.cluster_id)
        .order_by(cluster.c.name, node.c.name, ranked.c.first_ms if history else ranked.c.nvml_index, gpu.c.uuid)
    )
    if not history:
        query = query.where(ranked.c.place_rank == 1)
    return list(connection.execute(query))


def _within(held: GpuTime) -> Any:
    return and_(block.c.gpu_id == held.gpu_id, block.c.start_ms >= held.start_ms, block.c.start_ms < held.end_ms)
