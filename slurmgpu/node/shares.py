"""A shared GPU's time divided among its owners, by what their processes did with the SMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmgpu.wire.records import Share


@dataclass(slots=True)
class Use:
    """What an owner's processes did at one look: share of the SMs (%), memory (bytes).

    ``sm_pct`` is None where this GPU does not tell it, ``mem_bytes`` where the driver does not for one of them.
    """

    sm_pct: int | None
    mem_bytes: int | None


Uses = Mapping[str, Use]
"""By owner; "" stands for processes of no owner."""


def divide(owners: Sequence[str], looks: Sequence[tuple[float, Uses]], start: float, end: float) -> dict[str, Share]:
    """The parts of the time from ``start`` to ``end`` (seconds); each look stands for the time since the one before.

    An owner without processes has a part of 0 as soon as another one works; while all idle, the parts are equal.
    """
    work = dict.fromkeys((*owners, ""), 0.0)
    memory = {owner: _Memory() for owner in owners}
    measured = bool(looks)
    before = start
    for at, (t, uses) in enumerate(looks):
        dt = (end if at == len(looks) - 1 else t) - before
        before = t
        measured &= all(use.sm_pct is not None for use in uses.values())
        for owner, use in uses.items():
            work[owner if owner in memory else ""] += (use.sm_pct or 0) * dt
        for owner, held in memory.items():
            held.add(uses.get(owner, Use(0, 0)).mem_bytes, dt)
    total = sum(work.values())
    measured &= total > 0
    return {
        owner: Share(
            part=work[owner] / total if measured else 1 / len(owners),
            source="sm" if measured else "equal",
            mem_weight_ms=round(held.weight * 1000),
            mem_sum=round(held.area * 1000, 3),
            mem_max_bytes=held.most,
        )
        for owner, held in memory.items()
    }


@dataclass(slots=True)
class _Memory:
    weight: float = 0.0
    area: float = 0.0
    most: int | None = None

    def add(self, mem_bytes: int | None, dt: float) -> None:
        if mem_bytes is not None:
            self.weight += dt
            self.area += mem_bytes * dt
            self.most = max(self.most or 0, mem_bytes)
