"""One file per source of readings. A file names its metrics and makes the probe that reads them; that is all it takes
for a new reading to be sampled, stored and exported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from ctypes import Structure, byref, c_uint, c_ulonglong
from dataclasses import dataclass
from enum import Enum, StrEnum

from slurmgpu.node.nvml import Device, Gate

Row = list[int | None]
"""The latest value of every metric of one GPU, as whole numbers (``value * scale``)."""

Probe = Callable[[Row], int]
"""Reads into the row and returns NVML's code; what the row holds after a code other than 0 is not used."""

Prepare = Callable[[Gate, Device, int], Probe | None]


class Tier(Enum):
    """How often a reading is taken (design 6)."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"


class Kind(StrEnum):
    """What a metric's numbers mean, and so what a block may do with them."""

    GAUGE = "gauge"  # a value at a time: averaged by time, with minimum and maximum
    COUNTER = "counter"  # only grows until it is reset: used as differences
    STATE = "state"  # a mode, a flag or a bit mask: not averaged


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a GPU; the unit is in the name.

    ``low``, ``high``: in the metric's unit; what lies outside is a sentinel or an error of the driver: dropped and
    counted, never clamped. ``scale``: samples are whole numbers, ``value * scale``.
    """

    name: str
    low: int
    high: int
    kind: Kind = Kind.GAUGE
    scale: int = 1


SUM_OF_LINKS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Field:
    """An NVML field value: its id and scope (a link, or all of them)."""

    id: int
    scope: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One call to the driver and the metrics that it gives.

    ``source``: a function that, called with ``(gate, device, slot)``, returns the probe, which writes its metrics to
    ``row[slot:]`` in their order, or None where this driver lacks the function. Or a field, read in one call with all
    other fields of the tier. ``call``: NVML's name of it. ``since``: the first generation that has it. ``mig``: where
    MIG is on, whether the GPU gives it, the instance, both or neither.
    """

    metrics: tuple[Metric, ...]
    tier: Tier
    source: Prepare | Field
    call: str
    since: str = "all"
    mig: str = "GPU"


def number(function: str, out_type: type[c_uint] | type[c_ulonglong], *args: int, more: int = 0) -> Prepare:
    """The usual call: handle, perhaps constants, and one number back; ``more`` numbers after it are not used."""

    def prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
        get = gate.function(function)
        if get is None:
            return None
        call, out = get, out_type()
        unused = [out_type() for _ in range(more)]
        arguments = (device.handle, *args, byref(out), *map(byref, unused))

        def probe(row: Row) -> int:
            code = call(*arguments)
            if code == 0:
                row[slot] = out.value
            return code

        return probe

    return prepare


def structure(function: str, make: Callable[[], Structure], *names: str) -> Prepare:
    """A call that fills a structure, of which some members are the metrics, in their order."""

    def prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
        get = gate.function(function)
        if get is None:
            return None
        call, handle, out = get, device.handle, make()
        pointer, members = byref(out), list(enumerate(names, start=slot))

        def probe(row: Row) -> int:
            code = call(handle, pointer)
            if code == 0:
                for place, name in members:
                    row[place] = getattr(out, name)
            return code

        return probe

    return prepare


def discover() -> tuple[Reading, ...]:
    """The readings of all files in this folder, in the order of file names."""
    found: list[Reading] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        found += importlib.import_module(f"{__name__}.{module}").READINGS
    return tuple(found)
