"""What Slurm's words for GPUs mean on this node: ordinal → device file → minor number → UUID.

UUIDs win. What no GPU answers to is said, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from slurmgpu.node import gres
from slurmgpu.node.gres import GpuFiles
from slurmgpu.node.marks import Mark
from slurmgpu.node.nvml import Device
from slurmgpu.wire.records import HeldGpu

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MAX_DEVICES = 4096


class GpuNames:
    """Slurm's names for a list of GPUs.

    Where gres.conf names no files, ordinal N is ``/dev/nvidiaN``, or the Nth GPU by PCI address under AutoDetect. Where
    MIG is on, each instance has an ordinal of its own that nothing on the node tells: only UUIDs are believed.
    """

    def __init__(self, devices: Iterable[Device], files: GpuFiles = GpuFiles()) -> None:  # noqa: B008 - frozen
        devices = list(devices)
        whole = [device for device in devices if device.parent is None]
        by_minor = {device.minor: device.uuid for device in whole if device.minor is not None}
        self._uuids = {device.uuid for device in devices}
        self._by_ordinal: dict[int, str] = by_minor
        if len(whole) < len(devices):
            self._by_ordinal = {}
        elif files.minors:
            self._by_ordinal = {n: by_minor[minor] for n, minor in enumerate(files.minors) if minor in by_minor}
        elif files.by_pci and all(device.pci_address for device in whole):
            self._by_ordinal = dict(enumerate(d.uuid for d in sorted(whole, key=lambda d: d.pci_address or "")))
        self.ordinals = {uuid: ordinal for ordinal, uuid in self._by_ordinal.items()}

    def resolve(self, mark: Mark) -> tuple[tuple[HeldGpu, ...], tuple[str, ...]]:
        """The GPUs of a mark, and the words that no GPU answers to."""
        ordinals = tokens(mark.get("SLURM_JOB_GPUS"))
        visible = tokens(mark.get("CUDA_VISIBLE_DEVICES"))
        named = [token for token in visible if token.startswith(("GPU-", "MIG-"))]
        if named:
            return self._by_uuid(named, ordinals)
        found: list[HeldGpu] = []
        unresolved: list[str] = []
        for word in ordinals or visible:
            uuid = self._by_ordinal.get(int(word)) if word.isdigit() else None
            if uuid is None:
                unresolved.append(word)
            else:
                found.append(HeldGpu(uuid, int(word)))
        return tuple(found), tuple(unresolved)

    def _by_uuid(self, named: list[str], ordinals: list[str]) -> tuple[tuple[HeldGpu, ...], tuple[str, ...]]:
        """The same GPUs in the same order by two names, where both lists are as long; else the UUIDs alone."""
        unresolved = [uuid for uuid in named if uuid not in self._uuids]
        numbers: list[int | None] = [None] * len(named)
        if len(ordinals) == len(named):
            numbers = [int(ordinal) if ordinal.isdigit() else None for ordinal in ordinals]
        elif ordinals:
            unresolved.append(f"SLURM_JOB_GPUS={','.join(ordinals)} beside {len(named)} UUIDs"[:256])
        held = (HeldGpu(uuid, number) for uuid, number in zip(named, numbers, strict=True) if uuid in self._uuids)
        return tuple(held), tuple(unresolved)


class NodeGpuNames:
    """The names on this node as they are now: the GPUs change with the driver, gres.conf with the admin."""

    def __init__(self) -> None:
        self._devices: list[Device] = []
        self._gres_conf: Path | None = None
        self._seen: object = None
        self._names = GpuNames(())

    def set_devices(self, devices: Iterable[Device]) -> None:
        """The GPUs of the node as they are now."""
        self._devices = list(devices)
        self._seen = None

    def current(self, node: str, slurm_conf: str | None = None) -> GpuNames:
        """The names, with gres.conf read again when it is another. ``slurm_conf``: what a hook had as SLURM_CONF."""
        self._gres_conf = gres.find(slurm_conf) or self._gres_conf
        try:
            status = self._gres_conf.stat() if self._gres_conf else None
        except OSError:
            status = None
        seen = (node, self._gres_conf, status and (status.st_mtime_ns, status.st_ino, status.st_size))
        if seen != self._seen:
            files = gres.read(self._gres_conf, node) if self._gres_conf and status else GpuFiles()
            self._names, self._seen = GpuNames(self._devices, files), seen
        return self._names


def tokens(text: str | None) -> list[str]:
    """The items of a device list; ranges such as "2-4" are spelled out. Nothing at all is no device."""
    result: list[str] = []
    for item in (text or "").split(","):
        item = item.strip()
        match = _RANGE.fullmatch(item)
        if match is None:
            result += [item[:64]] if item else []
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MAX_DEVICES:
            result.append(item)
        else:
            result += map(str, range(first, last + 1))
    return result[:_MAX_DEVICES]
