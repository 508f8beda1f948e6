"""What a job's GPU adds up to, and how a block adds to it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func
from sqlalchemy.sql.elements import ColumnElement

from slurmgpu.store import schema
from slurmgpu.store.schema import job_gpu
from slurmgpu.wire.records import Block, Share

_EQUAL = "equal"
_DIVIDED = ("gpu_util_pct",)  # of a shared GPU each job has its part; other readings are the device's
_OWN = "mem_used_bytes"  # and memory is that of the job's own processes


class Totals:
    """What blocks add to a job's GPU. Sums, minima and maxima: the order of adding does not matter."""

    def __init__(self) -> None:
        self.samples = self.covered_ms = self.shared_ms = self.energy_ms = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.energy_mj: int | None = None
        self.sources: set[str] = set()
        self.sums: dict[str, float] = {}

    def add(self, item: Block, owner: str) -> None:
        """Add a block that this owner holds; of a shared one, the owner's part."""
        shared = len(item.owners) > 1
        self.add_time(item.start_ms, item.end_ms, item.samples, covered_ms(item))
        if shared:
            self.shared_ms += item.end_ms - item.start_ms
        if item.energy_mj is not None:
            energy_mj = divided(item.energy_mj, item)[owner] if shared else item.energy_mj
            self.add_energy(energy_mj, item.end_ms - item.start_ms, item.energy_source or "power")
        sums = summary_values(item)
        self.add_sums(_part_of(sums, share_of(item, owner)) if shared else sums)

    def add_time(self, start_ms: int, end_ms: int, samples: int, covered: int) -> None:
        """Count a time that was watched."""
        self.samples += samples
        self.covered_ms += covered
        self.first_ms = start_ms if self.first_ms is None else min(self.first_ms, start_ms)
        self.last_ms = end_ms if self.last_ms is None else max(self.last_ms, end_ms)

    def add_energy(self, energy_mj: int, length_ms: int, source: str) -> None:
        """Add energy of a time."""
        self.energy_mj = (self.energy_mj or 0) + energy_mj
        self.energy_ms += length_ms
        self.sources.add(source)

    def add_sums(self, values: dict[str, float]) -> None:
        """Add plain columns."""
        for column, value in values.items():
            if column.endswith("_max"):
                self.sums[column] = max(value, self.sums.get(column, value))
            else:
                self.sums[column] = self.sums.get(column, 0) + value

    @property
    def source(self) -> str | None:
        """Where the energy comes from."""
        return None if not self.sources else self.sources.copy().pop() if len(self.sources) == 1 else "mixed"

    def increments(self) -> dict[str, Any]:
        """Values for UPDATE job_gpu that add these."""
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
            values["energy_mj"] = func.coalesce(c.energy_mj, 0) + self.energy_mj
            values["energy_source"] = case(
                (c.energy_source.is_(None), self.source), (c.energy_source == self.source, self.source), else_="mixed"
            )
        return values

    def values(self) -> dict[str, Any]:
        """Values for UPDATE job_gpu that are these."""
        return {
            "samples": self.samples,
            "covered_ms": self.covered_ms,
            "shared_ms": self.shared_ms,
            "energy_ms": self.energy_ms,
            "first_block_ms": self.first_ms,
            "last_block_ms": self.last_ms,
            "energy_mj": self.energy_mj,
            "energy_source": self.source,
            **{column: self.sums.get(column) for column, _, _ in schema.summary_columns()},
        }


def covered_ms(item: Block) -> int:
    """The time of a block for which there are readings."""
    return item.end_ms - item.start_ms if item.samples or item.stats else 0


def summary_values(item: Block) -> dict[str, float]:
    """The plain columns of a block; what it has no reading of is left out."""
    return {
        column: getattr(item.stats[metric], part)
        for column, metric, part in schema.summary_columns()
        if metric in item.stats
    }


def divided(energy_mj: int, item: Block) -> dict[str, int]:
    """Whole millijoules for each owner of a shared block, which add up to no more than the block's.

    With equal parts to exactly so: the first owners have what does not divide.
    """
    parts = {owner: int(energy_mj * share_of(item, owner).part) for owner in item.owners}
    if all(share_of(item, owner).source == _EQUAL for owner in item.owners):
        for owner in item.owners[: energy_mj - sum(parts.values())]:
            parts[owner] += 1
    return parts


def share_of(item: Block, owner: str) -> Share:
    """An owner's part of a shared block; an equal one where the node did not say."""
    return item.shares.get(owner) or Share(1 / len(item.owners), _EQUAL)


def _part_of(sums: dict[str, float], share: Share) -> dict[str, float]:
    """An owner's part of a shared block's columns."""
    mine = {column: value for column, value in sums.items() if not column.startswith(_OWN)}
    for metric in _DIVIDED:
        if f"{metric}_sum" in mine:
            mine[f"{metric}_sum"] *= share.part
        if share.part == 0:
            mine.pop(f"{metric}_max", None)
    if share.mem_weight_ms:
        mine |= {f"{_OWN}_weight_ms": share.mem_weight_ms, f"{_OWN}_sum": share.mem_sum}
        mine[f"{_OWN}_max"] = share.mem_max_bytes or 0
    return mine


def _greater(old: ColumnElement[Any], new: Any) -> ColumnElement[Any]:
    return case((old >= new, old), else_=new)


def _less(old: ColumnElement[Any], new: Any) -> ColumnElement[Any]:
    return case((old <= new, old), else_=new)
