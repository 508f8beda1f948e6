"""The GPUs of the node as records: who they are, where they sit, how they are set, whether they are well."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, byref, c_int, c_uint, c_ulonglong

from slurmgpu.node.nvml import Device, Gate, Meaning, meaning_of
from slurmgpu.node.topology import nvlink_peers
from slurmgpu.wire.records import GpuInfo

_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ON_OFF = {0: "off", 1: "on"}
_UNKNOWN_NUMA = 0xFFFFFFFF


class _Memory(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def gpu_infos(gate: Gate, devices: Sequence[Device], t_ms: int) -> list[GpuInfo]:
    """One record for each GPU and MIG instance. What the driver does not say stays unknown."""
    driver_version, cuda_version = gate.driver_version(), gate.cuda_version()
    peers = nvlink_peers(gate, devices)
    return [
        GpuInfo(
            uuid=device.uuid,
            t_ms=t_ms,
            index=device.index,
            minor=device.minor,
            serial=device.serial,
            name=device.name,
            memory_bytes=_memory_bytes(gate, device),
            compute_capability=_compute_capability(gate, device),
            pci_address=device.pci_address,
            numa_node=_numa_node(gate, device),
            driver_version=driver_version,
            cuda_version=cuda_version,
            parent=device.parent.uuid if device.parent else None,
            modes=_modes(gate, device),
            nvlink_peers=peers.get(device.uuid, {}),
            health=_health(gate, device),
        )
        for device in devices
    ]


def _memory_bytes(gate: Gate, device: Device) -> int | None:
    memory = _Memory()
    failed = gate.call("nvmlDeviceGetMemoryInfo", device.handle, byref(memory))
    return None if failed else int(memory.total) or None  # integrated GPUs say 0


def _compute_capability(gate: Gate, device: Device) -> str | None:
    major, minor = c_int(), c_int()
    handle = device.parent.handle if device.parent else device.handle
    if gate.call("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor)):
        return None
    return f"{major.value}.{minor.value}"


def _numa_node(gate: Gate, device: Device) -> int:
    handle = device.parent.handle if device.parent else device.handle
    node = gate.number("nvmlDeviceGetNumaNodeId", handle)
    return -1 if node is None or node == _UNKNOWN_NUMA else node


def _modes(gate: Gate, device: Device) -> dict[str, str]:
    if device.parent is not None:
        return {}
    modes: dict[str, str] = {}
    persistence = gate.number("nvmlDeviceGetPersistenceMode", device.handle)
    if persistence is not None:
        modes["persistence"] = _ON_OFF.get(persistence, str(persistence))
    compute = gate.number("nvmlDeviceGetComputeMode", device.handle)
    if compute is not None:
        modes["compute"] = _COMPUTE_MODES.get(compute, str(compute))
    for word, function in (("ecc", "nvmlDeviceGetEccMode"), ("mig", "nvmlDeviceGetMigMode")):
        current, pending = c_uint(), c_uint()
        if gate.call(function, device.handle, byref(current), byref(pending)) == 0:
            modes[word] = _ON_OFF.get(current.value, str(current.value))
            if pending.value != current.value:
                modes[word] += f" ({_ON_OFF.get(pending.value, pending.value)} after a reset)"
    return modes


def _health(gate: Gate, device: Device) -> str:
    """One word from the hardware's own flags; the health rules say more. Unknown is not ok."""
    if device.parent is not None:
        return "unknown"
    flags = [c_uint() for _ in range(4)]
    code = gate.call("nvmlDeviceGetRemappedRows", device.handle, *map(byref, flags))
    if meaning_of(code) is Meaning.LOST:
        return "lost" if code == 15 else "reset"
    if code == 0 and flags[3].value:
        return "replace"
    if code == 0 and flags[2].value:
        return "reset"
    # The cheapest call that a GPU which fell off the bus refuses, and a healthy one never does.
    state = c_uint()
    return "ok" if gate.call("nvmlDeviceGetPerformanceState", device.handle, byref(state)) == 0 else "unknown"
