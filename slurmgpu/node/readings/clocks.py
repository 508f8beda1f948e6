"""Clocks of the SMs and of the memory (MHz, now), why they are where they are, and for how long they were held down.

``clocks_event_reasons`` is a bit mask: 0x1 idle, 0x2 application clocks, 0x4 power cap, 0x8 hardware slowdown, 0x10
sync boost, 0x20 software thermal, 0x40 hardware thermal, 0x80 power brake, 0x100 display clocks. ``violation_*_ns``
count for how long each cause held (since driver load): nothing is missed between two readings. nvidia-smi:
``clocks.sm``, ``clocks.mem``, ``clocks_event_reasons.active``.
"""

from ctypes import c_uint, c_ulonglong

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.readings import Field, Kind, Metric, Probe, Reading, Tier, number

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_MOST_NS = 1 << 62


def _reasons(gate: Gate, device: Device, slot: int) -> Probe | None:
    """The call was renamed with R535."""
    new = number("nvmlDeviceGetCurrentClocksEventReasons", c_ulonglong)(gate, device, slot)
    return new or number("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong)(gate, device, slot)


def _violation(cause: str, field: int) -> Reading:
    metric = Metric(f"violation_{cause}_ns", 0, _MOST_NS, Kind.COUNTER)
    return Reading((metric,), Tier.MEDIUM, Field(field), f"field {field}", since="by driver")


READINGS = (
    Reading(
        (Metric("sm_clock_mhz", 0, 10_000),),
        Tier.FAST,
        number("nvmlDeviceGetClockInfo", c_uint, _SM),
        "nvmlDeviceGetClockInfo(SM)",
    ),
    Reading(
        (Metric("mem_clock_mhz", 0, 50_000),),
        Tier.FAST,
        number("nvmlDeviceGetClockInfo", c_uint, _MEMORY),
        "nvmlDeviceGetClockInfo(MEM)",
    ),
    Reading(
        (Metric("clocks_event_reasons", 0, 1 << 32, Kind.STATE),),
        Tier.MEDIUM,
        _reasons,
        "nvmlDeviceGetCurrentClocksEventReasons",
    ),
    _violation("power", 74),
    _violation("thermal", 75),
    _violation("sync_boost", 76),
    _violation("board", 77),
    _violation("low_utilization", 78),
    _violation("reliability", 79),
    _violation("sw_thermal", 269),
    _violation("hw_thermal", 270),
    _violation("power_brake", 271),
)
