"""Modes and states of the GPU: persistence, compute, ECC and MIG mode, the driver's recovery action, fabric state.

``recovery_action``: 0 none, 1 GPU reset, 2 node reboot, 3 drain peers, 4 drain and reset, 5 IMEX, 6 bus reset, 7 system
reboot (about R565 on). ``fabric_state``: 0 not supported, 1 not started, 2 in progress, 3 completed; ``fabric_status``
counts only at 3 (Hopper with NVSwitch). nvidia-smi: ``persistence_mode``, ``compute_mode``, ``ecc.mode.current``,
``mig.mode.current``.
"""

from ctypes import Structure, byref, c_ubyte, c_uint

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.readings import Field, Kind, Metric, Prepare, Probe, Reading, Row, Tier, number


class _Fabric(Structure):
    _fields_ = (
        ("version", c_uint),
        ("cluster", c_ubyte * 16),
        ("status", c_uint),
        ("clique", c_uint),
        ("state", c_uint),
        ("health_mask", c_uint),
    )


def _fabric(gate: Gate, device: Device, slot: int) -> Probe | None:
    get = gate.function("nvmlDeviceGetGpuFabricInfoV")
    if get is None:
        return None
    call, handle, fabric, second = get, device.handle, _Fabric(version=36 | 2 << 24), slot + 1
    pointer = byref(fabric)

    def probe(row: Row) -> int:
        code = call(handle, pointer)
        if code == 0:
            row[slot] = fabric.state
            row[second] = fabric.status if fabric.state == 3 else None
        return code

    return probe


def _mode(name: str, source: Prepare, call: str, since: str = "all") -> Reading:
    return Reading((Metric(name, 0, 255, Kind.STATE),), Tier.SLOW, source, call, since=since)


READINGS = (
    _mode("persistence_mode", number("nvmlDeviceGetPersistenceMode", c_uint), "nvmlDeviceGetPersistenceMode"),
    _mode("compute_mode", number("nvmlDeviceGetComputeMode", c_uint), "nvmlDeviceGetComputeMode"),
    _mode("ecc_mode", number("nvmlDeviceGetEccMode", c_uint, more=1), "nvmlDeviceGetEccMode", "ECC boards"),
    _mode("mig_mode", number("nvmlDeviceGetMigMode", c_uint, more=1), "nvmlDeviceGetMigMode", "Ampere"),
    Reading((Metric("recovery_action", 0, 255, Kind.STATE),), Tier.SLOW, Field(230), "field 230", since="R565"),
    Reading(
        (Metric("fabric_state", 0, 3, Kind.STATE), Metric("fabric_status", 0, 1 << 32, Kind.STATE)),
        Tier.SLOW,
        _fabric,
        "nvmlDeviceGetGpuFabricInfoV",
        since="Hopper",
    ),
)
