"""Processes on a GPU: who they are, their memory, their share of the SMs since the last look.

Traps that are met here: lists that grow between the question for their size and for their content; drivers that
scramble them (535.43 to 535.98 wrote larger entries than the structure has: pids 0 and 2**32-1); pids that ended but
stay listed; memory that is not available; utilisation above 100 and of pids that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Array, Structure, byref, c_uint, c_ulonglong
from dataclasses import dataclass
from pathlib import Path

from slurmgpu.node.nvml import Device, Gate, Meaning, meaning_of

_INSUFFICIENT_SIZE, _NOT_FOUND = 7, 6
_NO_MEMORY = (1 << 64) - 1
_NO_PID = (0, 0xFFFFFFFF)
_ROOM, _TRIES = 16, 3


class _Entry(Structure):  # nvmlProcessInfo_v2_t, also what _v3 gives
    _fields_ = (("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint))


class _OldEntry(Structure):  # nvmlProcessInfo_v1_t
    _fields_ = (("pid", c_uint), ("memory", c_ulonglong))


class _Use(Structure):  # nvmlProcessUtilizationSample_t
    _fields_ = (
        ("pid", c_uint),
        ("timestamp_us", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU. ``mem_bytes`` is None where the driver does not say."""

    pid: int
    kind: str  # compute, graphics, mps
    mem_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process's share of the GPU since the last look (%)."""

    pid: int
    sm_util_pct: int
    mem_util_pct: int


class ProcessLists:
    """The processes of one GPU or MIG instance, with buffers that are used again. ``root`` is where /proc lies."""

    _KINDS = (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute"))

    def __init__(self, gate: Gate, device: Device, root: Path = Path("/")) -> None:
        self._device = device
        self._root = root
        self._calls: list[tuple[str, Callable[..., int], type[_Entry] | type[_OldEntry]]] = []
        for kind, word in self._KINDS:
            for suffix, entry in (("_v3", _Entry), ("_v2", _Entry), ("", _OldEntry)):
                function = gate.function(f"nvmlDeviceGet{word}RunningProcesses{suffix}")
                if function is not None:
                    self._calls.append((kind, function, entry))
                    break
        self._use = gate.function("nvmlDeviceGetProcessUtilization")
        self._uses = (_Use * 128)()
        self._seen_us = 0
        self.latest: list[GpuProcess] | None = None
        self.latest_uses: list[ProcessUse] = []
        self._buffers: dict[str, Array[_Entry] | Array[_OldEntry]] = {
            kind: (entry * _ROOM)() for kind, _, entry in self._calls
        }

    @property
    def available(self) -> bool:
        """Whether this driver has any of the lists."""
        return bool(self._calls)

    @property
    def has_uses(self) -> bool:
        """Whether this GPU tells the shares of processes: not where MIG is on."""
        return self._use is not None

    def processes(self) -> tuple[int, list[GpuProcess] | None]:
        """NVML's code, and the processes that run; None when the driver's list cannot be believed.

        They stay in ``latest`` until the next look.
        """
        self.latest = None
        code, self.latest = self._processes()
        return code, self.latest

    def _processes(self) -> tuple[int, list[GpuProcess] | None]:
        found: dict[tuple[int, str], GpuProcess] = {}
        refused = 0
        for kind, function, entry in self._calls:
            code, entries = self._list(kind, function, entry)
            if code:
                refused = refused or code
                continue
            if any(pid in _NO_PID for pid, _ in entries):
                return 0, None
            alive = [(pid, memory) for pid, memory in entries if self._runs(pid)]
            if entries and not alive:
                return 0, None
            for pid, memory in alive:
                found[pid, kind] = GpuProcess(pid, kind, None if memory == _NO_MEMORY else memory)
        return (refused if len(self._calls) and not found else 0), list(found.values())

    def uses(self) -> list[ProcessUse]:
        """The shares since the last look; nothing when the GPU idles or the driver does not say.

        They stay in ``latest_uses``.
        """
        self.latest_uses = self._look_at_uses()
        return self.latest_uses

    def _look_at_uses(self) -> list[ProcessUse]:
        if self._use is None:
            return []
        count = c_uint(len(self._uses))
        code = self._use(self._device.handle, self._uses, byref(count), c_ulonglong(self._seen_us))
        if code == _INSUFFICIENT_SIZE:
            self._uses = (_Use * (2 * max(count.value, len(self._uses))))()
        if code:
            if meaning_of(code) is Meaning.SKIP:
                self._use = None
            return []
        rows = self._uses[: min(count.value, len(self._uses))]
        self._seen_us = max([self._seen_us, *(row.timestamp_us for row in rows)])
        return [
            ProcessUse(row.pid, row.sm, row.memory)
            for row in rows
            if row.sm <= 100 and row.memory <= 100 and row.pid not in _NO_PID and self._runs(row.pid)
        ]

    def _list(
        self, kind: str, function: Callable[..., int], entry: type[_Entry] | type[_OldEntry]
    ) -> tuple[int, list[tuple[int, int]]]:
        code = 0
        for _ in range(_TRIES):
            buffer = self._buffers[kind]
            count = c_uint(len(buffer))
            code = function(self._device.handle, byref(count), buffer)
            if code == _NOT_FOUND:
                return 0, []
            if code != _INSUFFICIENT_SIZE:
                return code, [(item.pid, item.memory) for item in buffer[: count.value]] if code == 0 else []
            self._buffers[kind] = (entry * (2 * max(count.value, len(buffer))))()
        return code, []

    def _runs(self, pid: int) -> bool:
        return (self._root / "proc" / str(pid)).exists()
