"""The GPUs as ``nvidia-smi`` tells them: used only while NVML cannot be, at the pace of the slow tier.

One call for all GPUs, fields by name, numbers without units, the name last since it may hold a comma. The output is not
promised to stay as it is: what is not a plain number is not available, and a line that is no row is passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess  # noqa: TID251 - the one process of the node program, and only while NVML is not open
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmgpu.node.nvml import Device, pci_address

DEADLINE_S = 10.0
_MIB = 1 << 20

# field of nvidia-smi → (metric, its unit in ours)
_NUMBERS = {
    "utilization.gpu": ("gpu_util_pct", 1),
    "utilization.memory": ("mem_util_pct", 1),
    "memory.used": ("mem_used_bytes", _MIB),
    "power.draw": ("power_mw", 1000),
    "temperature.gpu": ("temperature_c", 1),
    "clocks.sm": ("sm_clock_mhz", 1),
    "clocks.mem": ("mem_clock_mhz", 1),
}
_IDENTITY = ("index", "uuid", "serial", "pci.bus_id", "driver_version", "memory.total")
_UNKNOWN_FIELD = re.compile(r'Field "([\w.]+)" is not a valid field')
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.\d")


class SmiError(Exception):
    """nvidia-smi gives no GPU; the message says why."""


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """A GPU by nvidia-smi. ``values``: metric → number in its unit; what is not available is not in it."""

    device: Device
    driver_version: str | None
    memory_bytes: int | None
    values: Mapping[str, int]


def query(program: str | None = None, root: Path = Path("/")) -> list[SmiGpu]:
    """The GPUs now. Raises :class:`SmiError`. ``root`` is where /proc of the host lies."""
    path = program or shutil.which("nvidia-smi", path="/usr/bin:/bin:/usr/local/bin:/usr/sbin:/opt/bin")
    if path is None:
        raise SmiError("nvidia-smi is not installed")
    fields = [*_IDENTITY, *_NUMBERS]
    for _ in range(len(fields)):
        out = _run(path, [*fields, "name"])
        unknown = _UNKNOWN_FIELD.search(out)
        if unknown is None or unknown[1] not in fields:
            break
        fields.remove(unknown[1])  # an older or newer nvidia-smi: one unknown name fails the whole query
    gpus = [gpu for line in out.splitlines() if (gpu := parse(line, fields, root)) is not None]
    if not gpus:
        words = out.strip().splitlines() or ["nvidia-smi printed nothing"]
        raise SmiError(words[-1][:200])
    return gpus


def _run(path: str, fields: list[str]) -> str:
    command = [path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"} | {
        name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"
    }
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
            env=environment,
            check=False,  # its status says nothing of single GPUs
        )
    except subprocess.TimeoutExpired as error:
        raise SmiError(f"nvidia-smi has not answered for {DEADLINE_S:g} s") from error
    except OSError as error:
        raise SmiError(f"{path}: {error.strerror}") from error
    return result.stdout.decode("utf-8", errors="replace")


def parse(line: str, fields: list[str], root: Path) -> SmiGpu | None:
    """A row of the fields and the name; None for a sentence, a row that is cut off, or one without a UUID."""
    cells = [cell.strip() for cell in line.split(",", len(fields))]
    if len(cells) != len(fields) + 1:
        return None
    row = dict(zip(fields, cells, strict=False))
    index = number(row.get("index", ""))
    if not row.get("uuid", "").startswith("GPU-") or index is None:
        return None
    address = _address(row.get("pci.bus_id", ""))
    values = {}
    for name, (metric, unit) in _NUMBERS.items():
        value = number(row.get(name, ""))
        if value is not None:
            values[metric] = round(value * unit)
    total = number(row.get("memory.total", ""))
    return SmiGpu(
        device=Device(
            handle=None,
            index=int(index),
            uuid=row["uuid"],
            minor=_minor(address, root),
            serial=_word(row.get("serial", "")),
            name=_word(cells[-1]),
            pci_address=address,
        ),
        driver_version=_word(row.get("driver_version", "")),
        memory_bytes=None if total is None else round(total * _MIB),
        values=values,
    )


def number(cell: str) -> float | None:
    """A plain number; None for [N/A], [Not Supported], ERR!, a decimal comma and all else."""
    return float(cell) if _NUMBER.fullmatch(cell) else None


def _word(cell: str) -> str | None:
    """A text; None for one in brackets, which is a reason and not a value."""
    return None if not cell or cell.startswith("[") or cell in ("N/A", "ERR!", "Unknown") else cell


def _address(cell: str) -> str | None:
    match = _ADDRESS.fullmatch(cell)
    return pci_address(*(int(part, 16) for part in match.groups())) if match else None


def _minor(address: str | None, root: Path) -> int | None:
    """The driver's own word under /proc; nvidia-smi does not tell it."""
    if address is None:
        return None
    try:
        file = root / "proc/driver/nvidia/gpus" / address.removeprefix("0000") / "information"
        match = re.search(r"^Device Minor:\s*(\d+)", file.read_text(encoding="utf-8", errors="replace"), re.M)
    except OSError:
        return None
    return int(match[1]) if match else None
