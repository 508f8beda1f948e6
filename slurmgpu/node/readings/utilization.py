"""GPU busy and memory busy: the share of the driver's last sample period in which a kernel ran, or device memory was
read or written (%). The period is 1/6 s to 1 s by product. It says nothing about how much of the GPU a kernel fills.
Encoder and decoder likewise, over their own period.

Not available on a MIG parent. nvidia-smi: ``utilization.gpu``, ``utilization.memory``, ``utilization.encoder``,
``utilization.decoder``.
"""

from ctypes import Structure, byref, c_uint

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.readings import Metric, Probe, Reading, Row, Tier, number


class _Utilization(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


def _prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
    get = gate.function("nvmlDeviceGetUtilizationRates")
    if get is None:
        return None
    handle, rates, second = device.handle, _Utilization(), slot + 1
    pointer = byref(rates)

    def probe(row: Row) -> int:
        code = get(handle, pointer)
        if code == 0:
            row[slot] = rates.gpu
            row[second] = rates.memory
        return code

    return probe


READINGS = (
    Reading(
        (Metric("gpu_util_pct", 0, 100), Metric("mem_util_pct", 0, 100)),
        Tier.FAST,
        _prepare,
        "nvmlDeviceGetUtilizationRates",
        since="Fermi",
        mig="neither",
    ),
    Reading(
        (Metric("enc_util_pct", 0, 100),),
        Tier.MEDIUM,
        number("nvmlDeviceGetEncoderUtilization", c_uint, more=1),
        "nvmlDeviceGetEncoderUtilization",
        since="Maxwell",
        mig="neither",
    ),
    Reading(
        (Metric("dec_util_pct", 0, 100),),
        Tier.MEDIUM,
        number("nvmlDeviceGetDecoderUtilization", c_uint, more=1),
        "nvmlDeviceGetDecoderUtilization",
        since="Maxwell",
        mig="neither",
    ),
)
