"""Minutes into hours: the blocks of one GPU and hour under one owner become one row, when the job has ended long ago.

What is folded is covered throughout, as a block is: a gap, another owner, the bounds of an allocation, energy that is
not known, samples that were dropped already: each begins a new row. So all that holds of a block holds of a folded
one, and sums, minima, maxima, energy, notes and samples are what they were together. The shares of a GPU with several
owners become their means, weighted by energy (without it by time): each owner's energy stays what it was.

It may be stopped at any time and started again, beside collectors and beside itself: each hour is a transaction, which
first looks whether the rows are still those that were folded. Space that becomes free is used again by the database.
"""

from __future__ import annotations

import json
import logging
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, select, text, update

from slurmgpu.store.schema import block, gpu, job_gpu, job_node, summary_columns
from slurmgpu.wire.samples import SamplesError, merge

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
_GPUS = 200  # of which the allocations are looked up together
_ROUNDING_MS = 5  # of the times of blocks and allocations

_HOW = {"samples": "sum", "covered_ms": "sum", "energy_mj": "sum"} | {
    column: "sum" if part == "weight_ms" else part for column, _, part in summary_columns()
}
_JOINED = ("id", "segment_id", "start_ms", "end_ms", "energy_source", "notes", "samples_z")
_SAME = [column.name for column in block.columns if column.name not in (*_HOW, *_JOINED)]
"""Columns that must be equal in what is folded: the GPU, its owners, and whatever a later schema adds."""
_LOOK = (
    *(column for column in block.columns if column.name != "samples_z"),
    block.c.samples_z.is_not(None).label("has_body"),
)


@dataclass(slots=True)
class Compacted:
    """What a pass did. ``unreadable``: rows that were left because their samples are damaged."""

    hours: int = 0
    rows_before: int = 0
    rows_after: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class _Allocations:
    """Of one GPU. ``open``: times that may still change; ``bounds``: where allocations begin and end, sorted."""

    open: list[tuple[int, float]] = field(default_factory=list)
    open_ids: set[int] = field(default_factory=set)
    bounds: list[int] = field(default_factory=list)

    def may_change(self, row: Row[Any]) -> bool:
        """Whether a block's owner or figures may still change."""
        touched = any(start < row.end_ms and row.start_ms < end for start, end in self.open)
        return touched or row.job_gpu_id in self.open_ids

    def may_all_change(self, start_ms: int, end_ms: int) -> bool:
        """Whether nothing of a time can be folded."""
        return any(start <= start_ms and end_ms <= end for start, end in self.open)

    def place(self, row: Row[Any]) -> tuple[int, int]:
        """Between which bounds a block lies."""
        start, end = row.start_ms + _ROUNDING_MS, row.end_ms - _ROUNDING_MS
        return bisect_left(self.bounds, start), bisect_left(self.bounds, end)


Progress = Callable[[int, int], None]
"""Told how many GPUs are done, and of how many."""


def compact(engine: Engine, older_than_ms: int, progress: Progress = lambda done, of: None) -> Compacted:
    """Fold what is older: hours that ended before ``older_than_ms``, of jobs that did, and of idle GPUs.

    Raises SQLAlchemyError; what was folded stays so.
    """
    done = Compacted()
    with engine.connect() as connection:
        gpu_ids = list(connection.execute(select(gpu.c.id).order_by(gpu.c.id)).scalars())
    for first in range(0, len(gpu_ids), _GPUS):
        some = gpu_ids[first : first + _GPUS]
        with engine.connect() as connection:
            allocations = _allocations(connection, some, older_than_ms)
            hours = _hours(connection, some, older_than_ms)
        for number, gpu_id in enumerate(some, start=first + 1):
            for hour in hours[gpu_id]:
                if not allocations[gpu_id].may_all_change(hour * HOUR_MS, (hour + 1) * HOUR_MS):
                    _fold_hour(engine, gpu_id, hour, allocations[gpu_id], done)
            progress(number, len(gpu_ids))
    return done


def _hours(connection: Connection, gpu_ids: Sequence[int], older_than_ms: int) -> dict[int, list[int]]:
    """GPU → hours since 1970 that have more than one row. The index answers it alone."""
    hour = (block.c.start_ms // HOUR_MS).label("hour")
    query = (
        select(block.c.gpu_id, hour)
        .where(block.c.gpu_id.in_(gpu_ids), block.c.start_ms < older_than_ms // HOUR_MS * HOUR_MS)
        .group_by(block.c.gpu_id, text("hour"))
        .having(func.count() > 1)
        .order_by(block.c.gpu_id, text("hour"))
    )
    found: dict[int, list[int]] = defaultdict(list)
    for gpu_id, number in connection.execute(query):
        found[gpu_id].append(number)
    return found


def _allocations(connection: Connection, gpu_ids: Sequence[int], older_than_ms: int) -> dict[int, _Allocations]:
    """GPU → its allocations of all times."""
    query = (
        select(job_gpu.c.id, job_gpu.c.gpu_id, job_gpu.c.settled, job_node.c.start_ms, job_node.c.end_ms)
        .join(job_node, job_node.c.id == job_gpu.c.job_node_id)
        .where(job_gpu.c.gpu_id.in_(gpu_ids))
    )
    found: dict[int, _Allocations] = defaultdict(_Allocations)
    for row in connection.execute(query):
        of_gpu = found[row.gpu_id]
        if row.end_ms is None or row.end_ms >= older_than_ms or not row.settled:
            of_gpu.open.append((row.start_ms, math.inf if row.end_ms is None else row.end_ms))
            of_gpu.open_ids.add(row.id)
        of_gpu.bounds += [time for time in (row.start_ms, row.end_ms) if time is not None]
    for of_gpu in found.values():
        of_gpu.bounds.sort()
    return found


def _fold_hour(engine: Engine, gpu_id: int, hour: int, allocations: _Allocations, done: Compacted) -> None:
    """Fold what can be folded of one GPU and hour."""
    start, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
    query = select(*_LOOK).where(block.c.gpu_id == gpu_id, block.c.start_ms >= start, block.c.start_ms < end)
    with engine.connect() as connection:
        rows: Sequence[Row[Any]] = connection.execute(query.order_by(block.c.start_ms, block.c.id)).all()
        folded: list[tuple[list[Row[Any]], dict[str, Any]]] = []
        for run in _runs(rows, allocations):
            try:
                folded.append((run, _folded(run, _bodies(connection, run))))
            except SamplesError as error:
                log.warning("blocks %d to %d of GPU %d stay as they are: %s", run[0].id, run[-1].id, gpu_id, error)
                done.unreadable += len(run)
    if folded and _replace(engine, folded):
        done.hours += 1
        done.rows_before += sum(len(run) for run, _ in folded)
        done.rows_after += len(folded)


def _runs(rows: Iterable[Row[Any]], allocations: _Allocations) -> list[list[Row[Any]]]:
    """Rows that become one, two or more together: each begins where the one before it ends."""
    found: list[list[Row[Any]]] = []
    for _, group in groupby(rows, key=lambda row: _situation(row, allocations)):
        same = list(group)
        if allocations.may_change(same[0]):
            continue
        cuts = [0, *(at for at, (a, b) in enumerate(pairwise(same), start=1) if a.end_ms != b.start_ms), len(same)]
        found += [same[a:b] for a, b in pairwise(cuts) if b - a > 1]
    return found


def _situation(row: Row[Any], allocations: _Allocations) -> tuple[Any, ...]:
    """What must be equal in what is folded."""
    shares = tuple(sorted(_notes(row).get("shares", ()))) if row.owners > 1 else ()
    dropped = bool(row.samples) and not row.has_body
    place = allocations.place(row) if row.owners == 0 else ()
    known = (row.energy_mj is None, row.covered_ms > 0, dropped)
    return (*(getattr(row, name) for name in _SAME), shares, known, place, allocations.may_change(row))


def _bodies(connection: Connection, run: Sequence[Row[Any]]) -> list[tuple[int, bytes]]:
    """The samples of a run, each with its offset in milliseconds."""
    starts = {row.id: row.start_ms - run[0].start_ms for row in run if row.has_body}
    query = select(block.c.id, block.c.samples_z).where(block.c.id.in_(list(starts)))
    return sorted((starts[row.id], row.samples_z) for row in connection.execute(query))


def _folded(run: Sequence[Row[Any]], bodies: Sequence[tuple[int, bytes]]) -> dict[str, Any]:
    """The columns of the row that a run becomes, of those that change."""
    values: dict[str, Any] = {"end_ms": run[-1].end_ms}
    for column, how in _HOW.items():
        there = [value for value in (getattr(row, column) for row in run) if value is not None]
        values[column] = _together(there, how) if there else None
    sources = {row.energy_source for row in run if row.energy_source}
    values["energy_source"] = "mixed" if len(sources) > 1 else next(iter(sources), None)
    values["notes"] = _merged_notes(run)
    if bodies:
        values["samples_z"] = merge(bodies)
    return values


def _together(values: Sequence[Any], how: str) -> Any:
    if how == "sum":
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    return max(values) if how == "max" else min(values)


def _notes(row: Row[Any]) -> dict[str, Any]:
    return json.loads(row.notes) if row.notes else {}


def _merged_notes(run: Sequence[Row[Any]]) -> str | None:
    """Counts added up, with the latest cause; shares as means; of anything else the latest word."""
    each = [_notes(row) for row in run]
    merged: dict[str, Any] = {name: value for notes in each for name, value in notes.items()}
    if "missing" in merged:
        found = [item for notes in each for item in notes.get("missing", {}).items()]
        counts: dict[str, int] = defaultdict(int)
        for metric, (_, samples) in found:
            counts[metric] += samples
        merged["missing"] = {metric: [cause, counts[metric]] for metric, (cause, _) in found}
    if "dropped" in merged:
        merged["dropped"] = defaultdict(int)
        for notes in each:
            for metric, number in notes.get("dropped", {}).items():
                merged["dropped"][metric] += number
    if "shares" in merged:
        weights = [row.energy_mj or 0 for row in run]
        if not any(weights):
            weights = [row.end_ms - row.start_ms for row in run]
        merged["shares"] = {
            owner: _mean_share([notes["shares"][owner] for notes in each], weights) for owner in merged["shares"]
        }
    return json.dumps(merged) if merged else None


def _mean_share(shares: Sequence[list[Any]], weights: Sequence[int]) -> list[Any]:
    """An owner's share of the whole time, in the fields of :class:`slurmgpu.wire.records.Share`."""
    parts, sources, mem_weights, mem_sums, mem_most = zip(*shares, strict=True)
    part = parts[0]
    if len(set(parts)) > 1 and any(weights):
        part = math.fsum(a * b for a, b in zip(parts, weights, strict=True)) / sum(weights)
    source = sources[0] if len(set(sources)) == 1 else "sm"
    most = [value for value in mem_most if value is not None]
    return [part, source, sum(mem_weights), math.fsum(mem_sums), max(most) if most else None]


def _replace(engine: Engine, folded: Sequence[tuple[list[Row[Any]], dict[str, Any]]]) -> bool:
    """Put the folded rows in the place of their parts; False, and nothing is done, where a part is no longer so."""
    parts = {row.id: row for run, _ in folded for row in run}
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        query = select(*_LOOK).where(block.c.id.in_(list(parts))).with_for_update()
        if {row.id: row for row in connection.execute(query)} != parts:
            return False
        for run, values in folded:
            connection.execute(update(block).where(block.c.id == run[0].id).values(**values))
            connection.execute(delete(block).where(block.c.id.in_([row.id for row in run[1:]])))
    return True
