"""The report as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slurmgpu.report import units
from slurmgpu.report.facts import Gap, GpuFacts, RunFacts
from slurmgpu.report.style import Style

_SHOWN_GAPS = 3
_SHOWN_EVENTS = 5
_WIDTH = 80


def render(run: RunFacts, style: Style) -> str:
    """One run's report, with a newline at the end."""
    lines = [*_head(run, style), ""]
    if run.gpus:
        lines += [*_table(run, style), "", *_notes(run, style)]
    elif run.unresolved:
        lines += _unresolved(run, style)
    else:
        lines.append("The job held no GPU.")
    lines += _events(run, style)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(run: RunFacts, style: Style) -> Iterator[str]:
    who = units.plain(run.user)
    if run.account:
        who += f" ({units.plain(run.account)})"
    which = f" · run {run.run} of {run.runs}" if run.runs > 1 else ""
    partition = f" · partition {units.plain(run.partition)}" if run.partition else ""
    yield f"{style.bold(f'Job {run.label}')}{which} · {who}{partition} · {style.state(run)}"
    if run.name:
        yield units.shortened(units.plain(run.name), _WIDTH)
    until = "now" if run.end_ms is None else units.clock_time(run.end_ms)
    yield f"{units.clock_time(run.start_ms)} → {until}  ({units.elapsed(run.elapsed_ms)})"
    models = list(dict.fromkeys(units.plain(gpu.model) for gpu in run.gpus))
    gpus = f" · {_count(len(run.gpus), 'GPU')}" + (f" ({', '.join(models)})" if models else "")
    yield f"{_count(len(run.nodes), 'node')}{gpus if run.gpus else ''}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _table(run: RunFacts, style: Style) -> Iterator[str]:
    width = max(4, *(len(node) for node in run.nodes))
    yield style.dim(f"{'node':<{width}}  GPU  {'busy over time':<24}   busy  {'mem GiB':>11}   power     energy")
    unit = units.energy_unit(run.energy_mj)
    last = None
    for gpu in run.gpus:
        node = gpu.node if gpu.node != last else ""
        last = gpu.node
        yield f"{node:<{width}}  {_row(gpu, unit, style)}"
    if len(run.gpus) > 1:
        busy = units.percent(run.gpu_busy_pct)
        power = units.watts(_sum(gpu.power_mean_mw for gpu in run.gpus))
        energy = units.energy(run.energy_mj, unit, run.energy_is_lower_bound)
        memory = f"{units.gib(run.mem_used_max_bytes)} max"
        figures = f"{busy:>5}  {memory:>11}  {power:>6}  {energy:>9}"
        yield style.bold(f"{'all':<{width}}  {len(run.gpus):>3}  {'':<24}  {figures}")


def _row(gpu: GpuFacts, unit: str, style: Style) -> str:
    number = units.UNKNOWN if gpu.ordinal is None else str(gpu.ordinal)
    line = style.timeline(gpu.busy_timeline_pct)
    if not gpu.enough_samples:
        return f"{number:>3}  {'not enough samples':<24}"
    memory = f"{units.gib(gpu.mem_used_max_bytes)} / {units.gib(gpu.mem_total_bytes)}"
    energy = units.energy(gpu.energy_mj, unit, gpu.energy_is_lower_bound)
    busy = style.busy(gpu.gpu_busy_pct, f"{units.percent(gpu.gpu_busy_pct):>5}")
    return f"{number:>3}  {line}  {busy}  {memory:>11}  {units.watts(gpu.power_mean_mw):>6}  {energy:>9}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    there = [value for value in known if value is not None]
    return sum(there) if len(there) == len(known) else None


def _notes(run: RunFacts, style: Style) -> Iterator[str]:
    if all(not gpu.enough_samples for gpu in run.gpus):
        yield "Not enough samples to say what the GPUs did."
    yield f"Readings cover {units.share(run.coverage)} of the GPUs' time."
    yield from _gaps(run.gaps)
    shared = [gpu for gpu in run.gpus if gpu.shared_ms]
    if shared:
        yield f"{_count(len(shared), 'GPU')} shared with other jobs: busy, memory and energy are this job's part."
    by_power = [gpu for gpu in run.gpus if gpu.energy_source in ("power", "mixed")]
    if by_power:
        yield f"Energy of {_count(len(by_power), 'GPU')}: integral of power, for want of a usable energy counter."
    if run.energy_is_lower_bound and run.energy_mj is not None:
        yield "Energy is a lower bound: part of the time has no reading."
    yield from _unavailable(run)
    yield from _unresolved(run, style)
    if run.end_ms is None:
        yield style.dim(f"Figures up to {units.clock_time(run.seen_ms)}.")


_WORDS = {"gpu_util_pct": "GPU busy", "mem_used_bytes": "memory", "power_mw": "power"}


def _unavailable(run: RunFacts) -> Iterator[str]:
    """Figures that the driver does not give, with its word for why."""
    causes: dict[tuple[str, str], int] = {}
    for gpu in run.gpus:
        for metric, cause in gpu.unavailable.items():
            causes[_WORDS[metric], cause] = causes.get((_WORDS[metric], cause), 0) + 1
    for (word, cause), count in causes.items():
        yield f"No {word} of {_count(count, 'GPU')}: the driver says {cause}."


def _unresolved(run: RunFacts, style: Style) -> list[str]:
    if not run.unresolved:
        return []
    return [style.warn(f"Slurm gave the job GPUs that no device answers to: {units.plain(', '.join(run.unresolved))}")]


def _gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    """Gaps that begin and end within the same second on one node are told as one."""
    merged: dict[tuple[str, int, int], int] = {}
    for gap in gaps:
        key = (gap.node, gap.start_ms // 2000, gap.end_ms // 2000)
        merged[key] = merged.get(key, 0) + 1
    first = {(g.node, g.start_ms // 2000, g.end_ms // 2000): g for g in reversed(gaps)}
    for number, (key, count) in enumerate(merged.items()):
        if number == _SHOWN_GAPS:
            yield f"  … and {len(merged) - number} more"
            return
        gap = first[key]
        span = f"{units.clock_time(gap.start_ms)} to {units.clock_time(gap.end_ms)}"
        yield f"  No readings on {gap.node} for {_count(count, 'GPU')} from {span}."


def _events(run: RunFacts, style: Style) -> Iterator[str]:
    for event in run.events[:_SHOWN_EVENTS]:
        if event.kind != "gpu.unresolved":  # said above
            yield style.warn(f"{units.clock_time(event.t_ms)} {event.node}: {units.plain(event.text)}")
