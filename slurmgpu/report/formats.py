"""The report for programs: JSON (everything), CSV and NDJSON (a row for each GPU of each run)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from slurmgpu.report import listing, units
from slurmgpu.report.facts import GpuFacts, RunFacts

SCHEMA = "slurmgpu.report/1"

COLUMNS: tuple[str, ...] = (
    "cluster",
    "job_id",
    "run",
    "user",
    "account",
    "partition",
    "node",
    "gpu_ordinal",
    "gpu_uuid",
    "gpu_model",
    "start",
    "end",
    "allocated_s",
    "covered_s",
    "coverage",
    "samples",
    "gpu_busy_pct",
    "gpu_busy_max_pct",
    "mem_busy_pct",
    "mem_used_mean_bytes",
    "mem_used_max_bytes",
    "mem_total_bytes",
    "power_mean_mw",
    "power_max_mw",
    "energy_mj",
    "energy_source",
    "energy_is_lower_bound",
    "sm_clock_mean_mhz",
    "temperature_max_c",
    "shared_s",
)
"""The columns of CSV and NDJSON, in their order. New ones are added at the end."""


def to_json(runs: Sequence[RunFacts]) -> str:
    """One document: ``{"schema": …, "runs": […]}``."""
    return listing.to_json(SCHEMA, "runs", [_run(run) for run in runs])


def to_ndjson(runs: Sequence[RunFacts]) -> str:
    """One object a line, null for what is not known."""
    return listing.to_ndjson(_rows(runs))


def to_csv(runs: Sequence[RunFacts]) -> str:
    """RFC 4180 with one header line; an empty cell for what is not known."""
    return listing.to_csv(COLUMNS, _rows(runs))


def _rows(runs: Iterable[RunFacts]) -> Iterable[dict[str, Any]]:
    for run in runs:
        head = {
            "cluster": run.cluster,
            "job_id": run.job_id,
            "run": run.run,
            "user": run.user,
            "account": run.account,
            "partition": run.partition,
        }
        for gpu in run.gpus:
            yield head | _gpu(gpu, ended=run.end_ms is not None)


def _gpu(gpu: GpuFacts, *, ended: bool) -> dict[str, Any]:
    trusted = gpu.enough_samples
    return {
        "node": gpu.node,
        "gpu_ordinal": gpu.ordinal,
        "gpu_uuid": gpu.uuid,
        "gpu_model": gpu.model,
        "start": units.iso_time(gpu.start_ms),
        "end": units.iso_time(gpu.end_ms) if ended else None,
        "allocated_s": gpu.allocated_ms / 1000,
        "covered_s": gpu.covered_ms / 1000,
        "coverage": _round(gpu.coverage, 6),
        "samples": gpu.samples,
        "gpu_busy_pct": _round(gpu.gpu_busy_pct, 3) if trusted else None,
        "gpu_busy_max_pct": gpu.gpu_busy_max_pct,
        "mem_busy_pct": _round(gpu.mem_busy_pct, 3) if trusted else None,
        "mem_used_mean_bytes": _round(gpu.mem_used_mean_bytes, 0) if trusted else None,
        "mem_used_max_bytes": gpu.mem_used_max_bytes,
        "mem_total_bytes": gpu.mem_total_bytes,
        "power_mean_mw": _round(gpu.power_mean_mw, 1) if trusted else None,
        "power_max_mw": gpu.power_max_mw,
        "energy_mj": gpu.energy_mj,
        "energy_source": gpu.energy_source,
        "energy_is_lower_bound": gpu.energy_is_lower_bound,
        "sm_clock_mean_mhz": _round(gpu.sm_clock_mean_mhz, 1) if trusted else None,
        "temperature_max_c": gpu.temperature_max_c,
        "shared_s": gpu.shared_ms / 1000,
    }


def _run(run: RunFacts) -> dict[str, Any]:
    plain = {
        "cluster": run.cluster,
        "job_id": run.job_id,
        "run": run.run,
        "runs": run.runs,
        "state": run.state,
        "user": run.user,
        "account": run.account,
        "partition": run.partition,
        "name": run.name,
        "qos": run.qos,
        "slurm_state": run.slurm_state,
        "array_job_id": run.array_job_id,
        "array_task": run.array_task,
        "het_job_id": run.het_job_id,
        "het_offset": run.het_offset,
        "submit": None if run.submit_ms is None else units.iso_time(run.submit_ms),
        "time_limit_s": run.time_limit_s,
        "nodes": list(run.nodes),
        "allocations": [
            {
                "node": item.node,
                "start": units.iso_time(item.start_ms),
                "end": None if item.end_ms is None else units.iso_time(item.end_ms),
                "source": item.source,
                "end_source": item.end_source,
            }
            for item in run.allocations
        ],
        "start": units.iso_time(run.start_ms),
        "end": None if run.end_ms is None else units.iso_time(run.end_ms),
        "seen_until": units.iso_time(run.seen_ms),
        "elapsed_s": run.elapsed_ms / 1000,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "gpu_count": len(run.gpus),
        "gpu_busy_pct": _round(run.gpu_busy_pct, 3),
        "power_mean_mw_per_gpu": _round(run.power_mean_mw, 1),
        "mem_used_max_bytes": run.mem_used_max_bytes,
        "energy_mj": run.energy_mj,
        "energy_is_lower_bound": run.energy_is_lower_bound,
        "coverage": _round(run.coverage, 6),
        "unresolved_gpus": list(run.unresolved),
        "gaps": [
            {"node": g.node, "gpu_uuid": g.gpu, "start": units.iso_time(g.start_ms), "end": units.iso_time(g.end_ms)}
            for g in run.gaps
        ],
        "events": [{**asdict(item), "t": units.iso_time(item.t_ms)} for item in run.events],
    }
    gpus = []
    for gpu in run.gpus:
        timeline = [_round(value, 1) for value in gpu.busy_timeline_pct]
        gpus.append(
            {**_gpu(gpu, ended=run.end_ms is not None), "busy_timeline_pct": timeline, "unavailable": gpu.unavailable}
        )
    return {**plain, "gpus": gpus}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits) if digits else round(value)
