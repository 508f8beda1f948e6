"""GPM: how much of the GPU was at work, the mean between two samples (%; MiB/s for the links).

``sm_active_pct``: the share of SMs with a warp; ``sm_occupancy_pct``: warps against what fits; ``tensor_active_pct``,
``fp64_``, ``fp32_``, ``fp16_active_pct``: pipes at work; ``dram_active_pct``: memory bandwidth against its peak. Hopper
and later; the MIG instance has its own. ``nvidia-smi`` has no equal of it.
"""

from ctypes import Structure, byref, c_char_p, c_double, c_uint, c_void_p

from slurmgpu.node.nvml import Device, Function, Gate
from slurmgpu.node.readings import Metric, Probe, Reading, Row, Tier

_SCALE = 100
_MOST_METRICS = 477  # the size of the driver's own array; only those that are asked for are read
_NOT_SUPPORTED, _INVALID_ARGUMENT, _NO_DATA = 3, 2, 21

# GPM's number → metric
_METRICS = {
    2: "sm_active_pct",
    3: "sm_occupancy_pct",
    5: "tensor_active_pct",
    10: "dram_active_pct",
    11: "fp64_active_pct",
    12: "fp32_active_pct",
    13: "fp16_active_pct",
    20: "gpm_pcie_tx_mibps",
    21: "gpm_pcie_rx_mibps",
    61: "gpm_nvlink_tx_mibps",
    60: "gpm_nvlink_rx_mibps",
}


class _Value(Structure):
    _fields_ = (("id", c_uint), ("code", c_uint), ("value", c_double), ("names", c_char_p * 3))


class _Metrics(Structure):
    _fields_ = (
        ("version", c_uint),
        ("count", c_uint),
        ("first", c_void_p),
        ("second", c_void_p),
        ("values", _Value * _MOST_METRICS),
    )


class _Support(Structure):
    _fields_ = (("version", c_uint), ("supported", c_uint))


class _Sample:
    """A sample buffer of the driver's, given back when nothing uses it any more."""

    def __init__(self, allocate: Function, free: Function) -> None:
        self.pointer = c_void_p()
        self.code = allocate(byref(self.pointer))
        self._free = free

    def __del__(self) -> None:
        if self.code == 0:
            self._free(self.pointer)


def _prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
    take_name = "nvmlGpmSampleGet" if device.parent is None else "nvmlGpmMigSampleGet"
    names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", take_name, "nvmlGpmMetricsGet")
    support, allocate, free, take, compute = (gate.function(name) for name in names)
    if support is None or allocate is None or free is None or take is None or compute is None:
        return None
    answer = _Support(version=1)
    if support(device.handle, byref(answer)) or not answer.supported:
        return lambda row: _NOT_SUPPORTED
    buffers = [_Sample(allocate, free), _Sample(allocate, free)]
    if any(buffer.code for buffer in buffers):
        return lambda row: _NOT_SUPPORTED
    whose = (device.handle,) if device.parent is None else (device.parent.handle, device.gpu_instance)
    metrics = _Metrics(version=1, count=len(_METRICS))
    for place, number in enumerate(_METRICS):
        metrics.values[place].id = number
    pointer, values = byref(metrics), [metrics.values[place] for place in range(len(_METRICS))]
    places = [(value, slot + place) for place, value in enumerate(values)]
    before: list[_Sample] = []

    def probe(row: Row) -> int:
        fresh = buffers[0] if not before or before[0] is buffers[1] else buffers[1]
        code = take(*whose, fresh.pointer)
        if code:
            before.clear()
            return code
        if not before:
            before.append(fresh)
            return _NO_DATA
        metrics.first, metrics.second = before[0].pointer, fresh.pointer
        code = compute(pointer)
        if code == _INVALID_ARGUMENT:  # less than 100 ms after the last sample: its values stand
            return 0
        before[0] = fresh
        if code == 0:
            for value, place in places:
                row[place] = round(value.value * _SCALE) if value.code == 0 else None
        return code

    return probe


READINGS = (
    Reading(
        tuple(
            Metric(name, 0, 100 if name.endswith("_pct") else 10_000_000, scale=_SCALE) for name in _METRICS.values()
        ),
        Tier.FAST,
        _prepare,
        "nvmlGpmMetricsGet",
        since="Hopper",
        mig="both",
    ),
)
