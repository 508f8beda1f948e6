"""The one gate to the driver.

Everything that calls NVML goes through here. The calls themselves are made by the probes of ``readings/`` straight into
the library that pynvml loaded, with buffers that are made once: that costs half of what pynvml's wrappers cost. What a
return code means is decided here, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, create_string_buffer
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from slurmgpu.node.processes import ProcessLists

log = logging.getLogger(__name__)

Function = Callable[..., int]


class Meaning(Enum):
    """What a return code asks of the caller."""

    SKIP = "not available on this GPU or driver; not asked again before the next probe"
    EMPTY = "a valid nothing"
    UNKNOWN = "no verdict; asked again"
    LOST = "no further call for this GPU"
    NODE = "no GPU of this node can be read"


# nvmlReturn_t: (name, meaning). A code that is not listed is UNKNOWN.
_CODES: dict[int, tuple[str, Meaning]] = {
    1: ("UNINITIALIZED", Meaning.NODE),
    2: ("INVALID_ARGUMENT", Meaning.SKIP),
    3: ("NOT_SUPPORTED", Meaning.SKIP),
    4: ("NO_PERMISSION", Meaning.SKIP),
    6: ("NOT_FOUND", Meaning.EMPTY),
    7: ("INSUFFICIENT_SIZE", Meaning.UNKNOWN),
    8: ("INSUFFICIENT_POWER", Meaning.UNKNOWN),
    9: ("DRIVER_NOT_LOADED", Meaning.NODE),
    10: ("TIMEOUT", Meaning.UNKNOWN),
    11: ("IRQ_ISSUE", Meaning.UNKNOWN),
    12: ("LIBRARY_NOT_FOUND", Meaning.NODE),
    13: ("FUNCTION_NOT_FOUND", Meaning.SKIP),
    14: ("CORRUPTED_INFOROM", Meaning.SKIP),
    15: ("GPU_IS_LOST", Meaning.LOST),
    16: ("RESET_REQUIRED", Meaning.LOST),
    17: ("OPERATING_SYSTEM", Meaning.UNKNOWN),
    18: ("LIB_RM_VERSION_MISMATCH", Meaning.NODE),
    19: ("IN_USE", Meaning.UNKNOWN),
    20: ("MEMORY", Meaning.UNKNOWN),
    21: ("NO_DATA", Meaning.EMPTY),
    22: ("VGPU_ECC_NOT_SUPPORTED", Meaning.SKIP),
    23: ("INSUFFICIENT_RESOURCES", Meaning.UNKNOWN),
    24: ("FREQ_NOT_SUPPORTED", Meaning.SKIP),
    25: ("ARGUMENT_VERSION_MISMATCH", Meaning.SKIP),
    26: ("DEPRECATED", Meaning.SKIP),
    27: ("NOT_READY", Meaning.UNKNOWN),
    28: ("GPU_NOT_FOUND", Meaning.NODE),
    29: ("INVALID_STATE", Meaning.UNKNOWN),
    30: ("RESET_TYPE_NOT_SUPPORTED", Meaning.SKIP),
    999: ("UNKNOWN", Meaning.UNKNOWN),
}


NO_PERMISSION, VERSION_MISMATCH = 4, 18


def cause_of(code: int) -> str:
    """NVML's name of a return code, without its prefix."""
    return _CODES.get(code, (f"CODE_{code}", Meaning.UNKNOWN))[0]


def meaning_of(code: int) -> Meaning:
    """What the return code asks of the caller."""
    return _CODES.get(code, ("", Meaning.UNKNOWN))[1]


class NvmlError(Exception):
    """A call failed; ``code`` is NVML's return code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {cause_of(code)}")
        self.code = code


_HINTS = {
    9: "the kernel driver is not loaded",
    12: "libnvidia-ml.so.1 was not found: is the NVIDIA driver installed?",
    18: "the driver's library and kernel module are of different versions: reboot, or load the module anew",
    28: "the driver sees no GPU",
}


class DriverUnavailableError(NvmlError):
    """No GPU of this node can be read now."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(code, what)
        if code in _HINTS:
            self.args = (f"{self.args[0]}: {_HINTS[code]}",)


class GpuLostError(NvmlError):
    """This GPU answers no more; the others do."""


@dataclass(frozen=True)
class Device:
    """A GPU as NVML lists it, with the handle for calls."""

    handle: Any
    index: int
    uuid: str
    minor: int | None
    serial: str | None
    name: str | None
    pci_address: str | None  # dddddddd:bb:dd.f, lower case
    parent: Device | None = None  # of a MIG instance
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Gate:
    """The life of NVML in this process: opened once and kept open, since opening costs seconds without persistence."""

    def __init__(self) -> None:
        self._open = False
        self._functions: dict[str, Function | None] = {}
        self._told: set[tuple[str, str]] = set()
        self.process_lists: dict[str, ProcessLists] = {}
        """By UUID: the processes on each GPU, as their reading last saw them."""

    def open(self) -> None:
        """Initialise NVML. Raises :class:`DriverUnavailableError`."""
        if self._open:
            return
        try:
            pynvml.nvmlInit()  # type: ignore[no-untyped-call]
        except pynvml.NVMLError as error:
            raise DriverUnavailableError(_code(error), "nvmlInit") from error
        self._open = True
        self._functions.clear()

    def close(self) -> None:
        """Shut NVML down; one call for the one that opened it."""
        if self._open:
            self._open = False
            try:
                pynvml.nvmlShutdown()  # type: ignore[no-untyped-call]
            except pynvml.NVMLError as error:
                log.warning("nvmlShutdown: %s", cause_of(_code(error)))

    def function(self, name: str) -> Function | None:
        """The library's function, or None where this driver has none of that name (looked up once)."""
        if name not in self._functions:
            try:
                self._functions[name] = pynvml._nvmlGetFunctionPointer(name)  # type: ignore[no-untyped-call]
            except pynvml.NVMLError:
                self._functions[name] = None
        return self._functions[name]

    def driver_version(self) -> str | None:
        """The kernel driver's version."""
        buffer = create_string_buffer(96)
        code = self.call("nvmlSystemGetDriverVersion", buffer, c_uint(96))
        return _text(buffer.value) if code == 0 else None

    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver serves, such as "12.4"."""
        version = c_int()
        if self.call("nvmlSystemGetCudaDriverVersion_v2", byref(version)):
            return None
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def devices(self) -> tuple[list[Device], int]:
        """The GPUs and MIG instances that answer, and how many GPUs the driver counts.

        Raises :class:`DriverUnavailableError`.
        """
        count = self.count()
        found = []
        for index in range(count):
            try:
                device = self._device(index)
            except NvmlError as error:
                self.tell_once(f"GPU with NVML index {index}", error.code)
            else:
                found += [device, *self._instances(device)]
        return found, count

    def count(self) -> int:
        """The GPUs that the driver counts, whether they answer or not. Raises :class:`DriverUnavailableError`."""
        count = c_uint()
        code = self.call("nvmlDeviceGetCount_v2", byref(count))
        if code:
            raise DriverUnavailableError(code, "nvmlDeviceGetCount")
        return count.value

    def tell_once(self, what: str, code: int) -> None:
        """Log a failure when it is met for the first time."""
        cause = cause_of(code)
        if (what, cause) not in self._told:
            self._told.add((what, cause))
            a_fact = meaning_of(code) in (Meaning.SKIP, Meaning.EMPTY) and code != NO_PERMISSION
            level = logging.DEBUG if a_fact else logging.WARNING
            log.log(level, "%s: %s", what, cause)

    def call(self, name: str, *args: Any) -> int:
        """Call a function of the library; NVML's code, FUNCTION_NOT_FOUND where there is none."""
        function = self.function(name)
        return 13 if function is None else function(*args)

    def _device(self, index: int) -> Device:
        handle = pynvml.c_nvmlDevice_t()
        code = self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        if code:
            raise GpuLostError(code, f"GPU with NVML index {index}")
        uuid = self._string("nvmlDeviceGetUUID", handle, 96)
        if uuid is None:
            raise GpuLostError(999, f"GPU with NVML index {index} has no UUID")
        return Device(
            handle=handle,
            index=index,
            uuid=uuid,
            minor=self.number("nvmlDeviceGetMinorNumber", handle),
            serial=self._string("nvmlDeviceGetSerial", handle, 64),
            name=self._string("nvmlDeviceGetName", handle, 96),
            pci_address=self._pci_address(handle),
        )

    def _instances(self, parent: Device) -> list[Device]:
        """The MIG instances of a GPU: the most that there can be is not their number, and gaps are normal."""
        mode, pending, most = c_uint(), c_uint(), c_uint()
        if self.call("nvmlDeviceGetMigMode", parent.handle, byref(mode), byref(pending)) or not mode.value:
            return []
        if self.call("nvmlDeviceGetMaxMigDeviceCount", parent.handle, byref(most)):
            return []
        found = []
        for index in range(most.value):
            handle = pynvml.c_nvmlDevice_t()
            if self.call("nvmlDeviceGetMigDeviceHandleByIndex", parent.handle, c_uint(index), byref(handle)):
                continue
            uuid = self._string("nvmlDeviceGetUUID", handle, 96)
            if uuid is None:
                continue
            found.append(
                Device(
                    handle=handle,
                    index=parent.index,
                    uuid=uuid,
                    minor=None,
                    serial=parent.serial,
                    name=self._string("nvmlDeviceGetName", handle, 96),
                    pci_address=parent.pci_address,
                    parent=parent,
                    gpu_instance=self.number("nvmlDeviceGetGpuInstanceId", handle),
                    compute_instance=self.number("nvmlDeviceGetComputeInstanceId", handle),
                )
            )
        return found

    def number(self, name: str, handle: Any, *args: Any) -> int | None:
        """A call that gives one whole number; None where it fails."""
        out = c_uint()
        return out.value if self.call(name, handle, *args, byref(out)) == 0 else None

    def _string(self, name: str, handle: Any, size: int) -> str | None:
        buffer = create_string_buffer(size)
        return _text(buffer.value) if self.call(name, handle, buffer, c_uint(size)) == 0 else None

    def _pci_address(self, handle: Any) -> str | None:
        info = pynvml.nvmlPciInfo_t()
        if self.call("nvmlDeviceGetPciInfo_v3", handle, byref(info)):
            return None
        return pci_address(info.domain, info.bus, info.device)


def pci_address(domain: int, bus: int, device: int) -> str:
    """The one normal form: dddddddd:bb:dd.0, lower case. Drivers and tools write it in several."""
    return f"{domain:08x}:{bus:02x}:{device:02x}.0"


def _code(error: pynvml.NVMLError) -> int:
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else 999


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").strip()
