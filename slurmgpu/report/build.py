"""From the store to facts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row

from slurmgpu.report.facts import AllocationFacts, EventFacts, Gap, GpuFacts, RunFacts
from slurmgpu.slurm.jobid import JobRef
from slurmgpu.store import queries
from slurmgpu.store.queries import GpuTime, JobChoice
from slurmgpu.wire.samples import SamplesError

TIMELINE = 24  # figures of a GPU's timeline
_GAP_MS = 500  # shorter ones are the edges of sampling, not gaps
_MAX_GAPS = 200
_FIGURES = ("gpu_util_pct", "mem_used_bytes", "power_mw")
_FEW_BLOCKS = 3 * TIMELINE  # up to here samples are unpacked for the timeline


class NoSuchJobError(LookupError):
    """The database has nothing of this job."""


def job_runs(
    connection: Connection, ref: JobRef, cluster: str | None = None, *, all_runs: bool = True
) -> list[RunFacts]:
    """The facts of all runs of a job, or of each job's latest only. Raises :class:`NoSuchJobError`."""
    tasks = ref.tasks.ranges if ref.tasks else None if ref.task is None else (range(ref.task, ref.task + 1),)
    choice = JobChoice(ref.job_id, tasks, ref.het_offset, ref.sluid)
    rows = queries.runs(connection, choice, cluster)
    if not rows:
        where = f" of cluster {cluster}" if cluster else ""
        raise NoSuchJobError(
            f"nothing is known of job {ref}{where}: it has not started on a node that slurmgpu watches,"
            " or its data is still on the way"
        )
    found = []
    for _, group in groupby(rows, key=lambda row: (row.cluster_id, row.raw_job_id)):
        mine = list(group)
        numbered = list(enumerate(mine, start=1))
        found += [_run(connection, row, number, len(mine)) for number, row in numbered[0 if all_runs else -1 :]]
    return found


def _run(connection: Connection, row: Row[Any], number: int, count: int) -> RunFacts:
    held = queries.held_gpus(connection, row.id)
    places = queries.allocations(connection, row.id)
    seen_ms = _seen_ms(row, held)
    gpus = tuple(_gpu(connection, item, seen_ms) for item in held)
    energies = [gpu.energy_mj for gpu in gpus]
    known = [energy for energy in energies if energy is not None]
    allocated = sum(gpu.allocated_ms for gpu in gpus)
    peaks = [gpu.mem_used_max_bytes for gpu in gpus if gpu.mem_used_max_bytes is not None]
    wait_status = row.exit_code
    return RunFacts(
        cluster=row.cluster_name,
        job_id=row.raw_job_id,
        run=number,
        runs=count,
        user=row.user_name,
        account=row.account,
        partition=row.partition,
        nodes=tuple(dict.fromkeys(place.node_name for place in places)),
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        seen_ms=seen_ms,
        exit_code=None if wait_status is None else wait_status >> 8,
        signal=None if wait_status is None else wait_status & 0x7F,
        gpus=gpus,
        gpu_busy_pct=_mean(held, "gpu_util_pct"),
        power_mean_mw=_mean(held, "power_mw"),
        mem_used_max_bytes=max(peaks, default=None),
        energy_mj=sum(known) if known else None,
        energy_is_lower_bound=len(known) < len(gpus) or any(gpu.energy_is_lower_bound for gpu in gpus),
        coverage=min(1.0, sum(gpu.covered_ms for gpu in gpus) / allocated) if allocated > 0 else None,
        name=row.name,
        qos=row.qos,
        slurm_state=row.state,
        array_job_id=row.array_job_id,
        array_task=row.array_task,
        het_job_id=row.het_job_id,
        het_offset=row.het_offset,
        submit_ms=None if row.submit_s is None else row.submit_s * 1000,
        time_limit_s=row.time_limit_s,
        allocations=tuple(
            AllocationFacts(place.node_name, place.start_ms, place.end_ms, place.source, place.end_source)
            for place in places
        ),
        unresolved=tuple(word for place in places for word in json.loads(place.unresolved or "[]")),
        gaps=tuple(_gaps(connection, held, gpus)),
        events=tuple(_events(connection, row.start_ms, seen_ms, places, held)),
    )


def _seen_ms(row: Row[Any], held: Sequence[Row[Any]]) -> int:
    """The time up to which the figures go: the end, or while it runs the newest reading of the job."""
    if row.end_ms is not None:
        return int(row.end_ms)
    newest = max((item.last_block_ms for item in held if item.last_block_ms is not None), default=None)
    return int(max(row.start_ms, time.time_ns() // 1_000_000 if newest is None else newest))


def _gpu(connection: Connection, row: Row[Any], seen_ms: int) -> GpuFacts:
    end_ms = row.end_ms if row.end_ms is not None else max(row.start_ms, seen_ms)
    allocated_ms = end_ms - row.start_ms
    held = GpuTime(row.gpu_id, row.start_ms, end_ms)
    return GpuFacts(
        node=row.node_name,
        ordinal=row.ordinal,
        uuid=row.uuid,
        model=row.model,
        start_ms=row.start_ms,
        end_ms=end_ms,
        samples=row.samples,
        covered_ms=row.covered_ms,
        gpu_busy_pct=_mean([row], "gpu_util_pct"),
        gpu_busy_max_pct=row.gpu_util_pct_max,
        mem_busy_pct=_mean([row], "mem_util_pct"),
        mem_used_mean_bytes=_mean([row], "mem_used_bytes"),
        mem_used_max_bytes=None if row.mem_used_bytes_max is None else int(row.mem_used_bytes_max),
        mem_total_bytes=row.memory_bytes,
        power_mean_mw=_mean([row], "power_mw"),
        power_max_mw=row.power_mw_max,
        energy_mj=row.energy_mj,
        energy_source=row.energy_source,
        energy_is_lower_bound=row.energy_ms < allocated_ms - max(_GAP_MS, allocated_ms // 1000),
        sm_clock_mean_mhz=_mean([row], "sm_clock_mhz"),
        temperature_max_c=row.temperature_c_max,
        shared_ms=row.shared_ms,
        busy_timeline_pct=_timeline(connection, held),
        unavailable=_unavailable(connection, row, held),
    )


def _mean(rows: Iterable[Row[Any]], metric: str) -> float | None:
    """Σ(value·dt)/Σdt over all rows; None without a covered time."""
    weight = total = 0.0
    for row in rows:
        part = getattr(row, f"{metric}_weight_ms")
        if part:
            weight += part
            total += getattr(row, f"{metric}_sum")
    return total / weight if weight else None


def _timeline(connection: Connection, held: GpuTime) -> tuple[float | None, ...]:
    """GPU busy in %, averaged over equal parts of the time; None for a part without samples."""
    if held.end_ms <= held.start_ms:
        return ()
    if queries.count_blocks(connection, held) <= _FEW_BLOCKS:
        pieces = list(_sample_pieces(connection, held))
    else:
        pieces = queries.busy_by_block(connection, held)
    step = (held.end_ms - held.start_ms) / TIMELINE
    weights, sums = [0.0] * TIMELINE, [0.0] * TIMELINE
    for start, end, value in pieces:
        first = max(0, int((start - held.start_ms) / step))
        for part in range(first, TIMELINE):
            left = held.start_ms + part * step
            overlap = min(end, left + step) - max(start, left)
            if overlap > 0:
                weights[part] += overlap
                sums[part] += overlap * value
            elif left >= end:
                break
    return tuple(total / weight if weight else None for total, weight in zip(sums, weights, strict=True))


def _sample_pieces(connection: Connection, held: GpuTime) -> Iterable[tuple[int, int, float]]:
    try:
        for start, end, columns in queries.samples(connection, held):
            offsets = [int(offset or 0) for offset in columns["t_ms"]]
            values = columns.get("gpu_util_pct", [])
            before = 0
            for offset, value in zip([*offsets[:-1], end - start], values, strict=False):
                if value is not None:
                    yield start + before, start + offset, value
                before = offset
    except SamplesError:
        return  # the figures stand without the picture


def _gaps(connection: Connection, held: Sequence[Row[Any]], gpus: Sequence[GpuFacts]) -> Iterable[Gap]:
    found = 0
    for row, gpu in zip(held, gpus, strict=True):
        if gpu.covered_ms >= gpu.allocated_ms - _GAP_MS:
            continue
        at = gpu.start_ms
        spans = queries.block_spans(connection, GpuTime(row.gpu_id, gpu.start_ms, gpu.end_ms))
        for start, end in [*spans, (gpu.end_ms, gpu.end_ms)]:
            if start - at > _GAP_MS:
                yield Gap(gpu.node, gpu.uuid, at, start)
                found += 1
            at = max(at, end)
        if found >= _MAX_GAPS:
            return


def _events(
    connection: Connection, start_ms: int, end_ms: int, places: Sequence[Row[Any]], held: Sequence[Row[Any]]
) -> Iterable[EventFacts]:
    rows = queries.events_of(
        connection,
        [place.allocation for place in places],
        {place.node_id for place in places},
        {item.gpu_id for item in held},
        start_ms,
        end_ms,
    )
    return (EventFacts(row.t_ms, row.node_name, row.kind, row.text) for row in rows)


def _unavailable(connection: Connection, row: Row[Any], held: GpuTime) -> dict[str, str]:
    """Why a figure of the report is not there, by the driver's word. Asked only for GPUs that lack one."""
    lacking = [metric for metric in _FIGURES if not getattr(row, f"{metric}_weight_ms") and row.samples]
    if not lacking:
        return {}
    missing = queries.latest_notes(connection, held).get("missing", {})
    return {metric: missing[metric][0] for metric in lacking if metric in missing}
