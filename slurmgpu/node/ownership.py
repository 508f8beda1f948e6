"""GPU → job, as half-open intervals, from the hooks' marks.

GPU numbers in a hook are Slurm's ordinals on that node, not NVML indices. UUIDs in CUDA_VISIBLE_DEVICES win; an ordinal
leads to a device file's minor number and so to a GPU. What cannot be resolved is recorded as such, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmgpu.node import gres
from slurmgpu.node.gres import GpuFiles
from slurmgpu.node.marks import Mark
from slurmgpu.node.nvml import Device
from slurmgpu.wire.records import Allocation, Event, HeldGpu

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MAX_DEVICES = 4096


class GpuNames:
    """What Slurm's words for GPUs mean on this node: ordinal → device file → minor number → UUID.

    Where gres.conf names no files, ordinal N is ``/dev/nvidiaN``, or the Nth GPU by PCI address under AutoDetect.
    """

    def __init__(self, devices: Iterable[Device], files: GpuFiles = GpuFiles()) -> None:  # noqa: B008 - frozen
        whole = [device for device in devices if device.parent is None]
        by_minor = {device.minor: device.uuid for device in whole if device.minor is not None}
        self._uuids = {device.uuid for device in devices}
        self._by_ordinal: dict[int, str] = by_minor
        if files.minors:
            self._by_ordinal = {n: by_minor[minor] for n, minor in enumerate(files.minors) if minor in by_minor}
        elif files.by_pci and all(device.pci_address for device in whole):
            self._by_ordinal = dict(enumerate(d.uuid for d in sorted(whole, key=lambda d: d.pci_address or "")))

    def resolve(self, mark: Mark) -> tuple[tuple[HeldGpu, ...], tuple[str, ...]]:
        """The GPUs of a mark, and the words that no GPU answers to."""
        ordinals = tokens(mark.get("SLURM_JOB_GPUS"))
        visible = tokens(mark.get("CUDA_VISIBLE_DEVICES"))
        named = [token for token in visible if token.startswith(("GPU-", "MIG-"))]
        if named:
            return self._by_uuid(named, ordinals)
        words = ordinals or visible
        found: list[HeldGpu] = []
        unresolved: list[str] = []
        for word in words:
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


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """From ``t`` (unix seconds) on the GPU belongs to these allocations, by their ids."""

    t: float
    gpu: str
    owners: tuple[str, ...]


@dataclass(slots=True)
class News:
    """What marks brought: changes of owner in the order of time, records to hand over, marks that are done with."""

    changes: list[OwnerChange] = field(default_factory=list)
    records: list[Allocation | Event] = field(default_factory=list)
    finished: list[Mark] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    allocation: Allocation
    marks: list[Mark]


class Ownership:
    """The allocations that are open on this node.

    A prolog opens one. An epilog closes the open allocation of its raw job id, whatever its restart count says. A
    prolog of a job id that is still open means that its epilog was lost: the old run ends where the new one starts.
    """

    def __init__(self, cluster: str, node: str) -> None:
        self.cluster = cluster
        self.node = node
        self._devices: list[Device] = []
        self._gres_conf: Path | None = None
        self._gres_seen: object = None
        self._names = GpuNames(())
        self._open: dict[int, _Held] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._known: set[str] = set()

    def set_devices(self, devices: Iterable[Device]) -> None:
        """The GPUs of the node as they are now."""
        self._devices = list(devices)
        self._gres_seen = None

    def _look_at_gres_conf(self, slurm_conf: str | None) -> None:
        """Before GPU numbers are resolved: read gres.conf again when it is another."""
        self._gres_conf = gres.find(slurm_conf) or self._gres_conf
        try:
            status = self._gres_conf.stat() if self._gres_conf else None
        except OSError:
            status = None
        seen = (self._gres_conf, status and (status.st_mtime_ns, status.st_ino, status.st_size), len(self._devices))
        if seen != self._gres_seen:
            files = gres.read(self._gres_conf, self.node) if self._gres_conf and status else GpuFiles()
            self._names, self._gres_seen = GpuNames(self._devices, files), seen

    def owners(self, uuid: str) -> tuple[str, ...]:
        """The ids of the allocations that hold the GPU now."""
        return self._owners.get(uuid, ())

    def take(self, marks: Iterable[Mark]) -> News:
        """Follow all marks of the folder, oldest first; those that were followed before are passed over."""
        news = News()
        for mark in marks:
            if str(mark.path) in self._known:
                continue
            self._known.add(str(mark.path))
            if mark.hook == "prolog":
                self._start(mark, news)
            else:
                self._end(mark, news)
        return news

    def forget(self, mark: Mark) -> None:
        """The mark's file is gone."""
        self._known.discard(str(mark.path))

    def _start(self, mark: Mark, news: News) -> None:
        stale = self._open.pop(mark.job_id, None)
        if stale is not None:
            self._close(stale, mark.t, "prolog", None, news)
        allocation = self._allocation(mark, round(mark.t * 1000), None, "prolog")
        self._open[mark.job_id] = _Held(allocation, [mark])
        news.records.append(allocation)
        if allocation.unresolved:
            news.records.append(_unresolved(allocation, mark))
        for gpu in allocation.gpus:
            self._set(mark.t, gpu.uuid, (*self._owners.get(gpu.uuid, ()), allocation.id), news)

    def _end(self, mark: Mark, news: News) -> None:
        held = self._open.pop(mark.job_id, None)
        exit_code = mark.number("SLURM_JOB_EXIT_CODE")
        if held is not None:
            held.marks.append(mark)
            self._close(held, mark.t, "epilog", exit_code, news)
            return
        # No prolog ran, or its mark is lost: what the epilog says is all there is.
        end_ms = round(mark.t * 1000)
        start_s = mark.number("SLURM_JOB_START_TIME")
        start_ms = min(start_s * 1000, end_ms) if start_s else end_ms
        allocation = self._allocation(mark, start_ms, end_ms, "epilog")
        news.records.append(replace(allocation, exit_code=exit_code, end_source="epilog", restart_count=None))
        news.finished.append(mark)

    def _close(self, held: _Held, t: float, source: str, exit_code: int | None, news: News) -> None:
        end_ms = max(round(t * 1000), held.allocation.start_ms)
        closed = replace(held.allocation, end_ms=end_ms, end_source=source, exit_code=exit_code)
        news.records.append(closed)
        news.finished += held.marks
        for gpu in closed.gpus:
            owners = tuple(owner for owner in self._owners.get(gpu.uuid, ()) if owner != closed.id)
            self._set(t, gpu.uuid, owners, news)

    def _set(self, t: float, uuid: str, owners: tuple[str, ...], news: News) -> None:
        self._owners[uuid] = owners
        news.changes.append(OwnerChange(t, uuid, owners))

    def _allocation(self, mark: Mark, start_ms: int, end_ms: int | None, source: str) -> Allocation:
        self._look_at_gres_conf(mark.get("SLURM_CONF"))
        gpus, unresolved = self._names.resolve(mark)
        return Allocation(
            id=f"{mark.job_id}@{start_ms}",
            node=mark.get("SLURMD_NODENAME") or self.node,
            cluster=mark.get("SLURM_CLUSTER_NAME") or self.cluster,
            job_id=mark.job_id,
            start_ms=start_ms,
            end_ms=end_ms,
            source=source,
            gpus=gpus,
            unresolved=unresolved,
            restart_count=mark.number("SLURM_JOB_RESTART_COUNT"),
            slurm_start_s=mark.number("SLURM_JOB_START_TIME"),
            sluid=mark.get("SLURM_JOB_SLUID"),
            het_job_id=mark.number("SLURM_HET_JOB_ID"),
            user=mark.get("SLURM_JOB_USER"),
            uid=mark.number("SLURM_JOB_UID"),
            account=mark.get("SLURM_JOB_ACCOUNT"),
            partition=mark.get("SLURM_JOB_PARTITION"),
            nodelist=mark.get("SLURM_JOB_NODELIST") or mark.get("SLURM_NODELIST"),
        )


def _unresolved(allocation: Allocation, mark: Mark) -> Event:
    return Event(
        t_ms=allocation.start_ms,
        kind="gpu.unresolved",
        text=f"job {allocation.job_id}: no GPU of this node is {', '.join(allocation.unresolved)}"
        f" (SLURM_JOB_GPUS={mark.get('SLURM_JOB_GPUS')}, CUDA_VISIBLE_DEVICES={mark.get('CUDA_VISIBLE_DEVICES')})",
        allocation=allocation.id,
    )
