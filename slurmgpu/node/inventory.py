"""The GPUs of the node as records."""

from __future__ import annotations

from collections.abc import Iterable

from slurmgpu.node.nvml import Device, Gate, memory_total_bytes
from slurmgpu.wire.records import GpuInfo


def gpu_infos(gate: Gate, devices: Iterable[Device], t_ms: int) -> list[GpuInfo]:
    """One record for each GPU that answers."""
    driver_version = gate.driver_version()
    return [
        GpuInfo(
            uuid=device.uuid,
            t_ms=t_ms,
            index=device.index,
            minor=device.minor,
            serial=device.serial,
            name=device.name,
            memory_bytes=memory_total_bytes(gate, device),
            pci_address=device.pci_address,
            driver_version=driver_version,
            parent=device.parent.uuid if device.parent else None,
        )
        for device in devices
    ]
