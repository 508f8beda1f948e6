"""Device memory (bytes, now): in use by clients, kept by the driver for itself, free; and BAR1 in use.

``nvmlDeviceGetMemoryInfo_v2`` (R510 and later). Older drivers: ``nvmlDeviceGetMemoryInfo``, whose "used" had no driver
reserve in it then. Integrated GPUs answer 0 always. nvidia-smi: ``memory.used``, ``memory.reserved``, ``memory.free``.
"""

from ctypes import Structure, byref, c_uint, c_ulonglong

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.readings import Metric, Probe, Reading, Row, Tier, structure


class _MemoryV1(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _MemoryV2(Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


_MOST = 1 << 44
_V2 = 40 | 2 << 24  # size and version in one word: a plain 2 is refused


def _prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
    memory: _MemoryV1 | _MemoryV2 = _MemoryV2(version=_V2)
    get = gate.function("nvmlDeviceGetMemoryInfo_v2")
    if get is None:
        memory = _MemoryV1()
        get = gate.function("nvmlDeviceGetMemoryInfo")
        if get is None:
            return None
    call, handle, pointer = get, device.handle, byref(memory)

    def probe(row: Row) -> int:
        code = call(handle, pointer)
        if code == 0:
            row[slot] = memory.used if memory.total else None
        return code

    return probe


READINGS = (
    Reading(
        (Metric("mem_used_bytes", 0, _MOST),),
        Tier.FAST,
        _prepare,
        "nvmlDeviceGetMemoryInfo_v2",
        mig="both",
    ),
    Reading(
        (Metric("mem_reserved_bytes", 0, _MOST), Metric("mem_free_bytes", 0, _MOST)),
        Tier.SLOW,
        structure("nvmlDeviceGetMemoryInfo_v2", lambda: _MemoryV2(version=_V2), "reserved", "free"),
        "nvmlDeviceGetMemoryInfo_v2",
        mig="both",
    ),
    Reading(
        (Metric("bar1_used_bytes", 0, _MOST),),
        Tier.SLOW,
        structure("nvmlDeviceGetBAR1MemoryInfo", _MemoryV1, "used"),
        "nvmlDeviceGetBAR1MemoryInfo",
        since="Kepler",
    ),
)
