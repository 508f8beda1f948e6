"""Which GPUs of the node reach each other over NVLink, and by how many links.

A link's far end is a GPU, perhaps one that is listed later, or an NVSwitch. Two GPUs with links to switches reach each
other by as many as the one with fewer has. A link that the driver does not support is not there, which is normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_uint

import pynvml

from slurmgpu.node.nvml import Device, Gate, pci_address

_MOST_LINKS = 36
_FAR_GPU = 0  # nvmlIntNvLinkDeviceType_t; all else is a switch, or hidden by a virtual machine


def nvlink_peers(gate: Gate, devices: Sequence[Device]) -> dict[str, dict[str, int]]:
    """UUID → {UUID of a peer: links}, for the whole GPUs of the node."""
    gpus = [device for device in devices if device.parent is None]
    by_address = {device.pci_address: device.uuid for device in gpus if device.pci_address}
    peers: dict[str, dict[str, int]] = {device.uuid: {} for device in gpus}
    to_switches: dict[str, int] = {}
    for device in gpus:
        for link in range(_MOST_LINKS):
            if not gate.number("nvmlDeviceGetNvLinkState", device.handle, c_uint(link)):
                continue
            far = by_address.get(_far_address(gate, device, link) or "")
            if far is None or far == device.uuid:
                to_switches[device.uuid] = to_switches.get(device.uuid, 0) + 1
            else:
                peers[device.uuid][far] = peers[device.uuid].get(far, 0) + 1
    for one, links in to_switches.items():
        for other, theirs in to_switches.items():
            if one != other:
                peers[one][other] = peers[one].get(other, 0) + min(links, theirs)
    return peers


def _far_address(gate: Gate, device: Device, link: int) -> str | None:
    kind = gate.number("nvmlDeviceGetNvLinkRemoteDeviceType", device.handle, c_uint(link))
    info = pynvml.nvmlPciInfo_t()
    if kind not in (None, _FAR_GPU):
        return None
    if gate.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device.handle, c_uint(link), byref(info)):
        return None
    return pci_address(info.domain, info.bus, info.device)
