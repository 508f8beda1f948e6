"""Slurm's GPU numbers: the place of a device file in gres.conf.

``SLURM_JOB_GPUS=0`` is the first of the node's device files as gres.conf lists them, which is ``/dev/nvidia6`` where it
says ``File=/dev/nvidia[6,4-5]`` (seen with 22.05, 24.11 and 26.05 by what a job may open). Without a list of files the
driver's order by PCI address counts (AutoDetect), and without gres.conf number N is ``/dev/nvidiaN``.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_PLACES = (Path("/etc/slurm/gres.conf"), Path("/run/slurm/conf/gres.conf"))
_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
_BRACKETS = re.compile(r"([^\[\],]*)\[([^\]]*)\]([^\[\],]*)")
_MOST = 4096


@dataclass(frozen=True, slots=True)
class GpuFiles:
    """What gres.conf says of a node's GPUs: minor numbers in Slurm's order, or that the driver's order counts.

    Neither: nothing is said.
    """

    minors: tuple[int, ...] = ()
    by_pci: bool = False


def find(slurm_conf: str | None) -> Path | None:
    """gres.conf beside the slurm.conf of the hooks, else in its usual places."""
    beside = [Path(slurm_conf).with_name("gres.conf")] if slurm_conf else []
    return next((path for path in (*beside, *_PLACES) if path.is_file()), None)


def read(path: Path, node: str) -> GpuFiles:
    """What the file says of a node. One that cannot be read says nothing, and that is logged."""
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"), node)
    except (OSError, ValueError) as error:
        log.warning("%s: %s; GPU numbers are taken as minor numbers", path, error)
        return GpuFiles()


def parse(text: str, node: str) -> GpuFiles:
    """See :func:`read`. Raises ValueError for a list that makes no sense."""
    minors: list[int] = []
    detect = "off"
    for line in text.replace("\\\n", " ").splitlines():
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line.partition("#")[0])}
        if "nodename" in pairs and node not in expand(pairs["nodename"]):
            continue
        if "autodetect" in pairs:
            detect = pairs["autodetect"].lower()
        if pairs.get("name", "").lower() == "gpu" and "file" in pairs:
            for name in expand(pairs["file"]):
                match = _DEVICE.fullmatch(name)
                if match is None:
                    raise ValueError(f"{name} is no /dev/nvidiaN")
                minors.append(int(match[1]))
    return GpuFiles(tuple(dict.fromkeys(minors)), by_pci=not minors and detect in ("nvml", "nvidia"))


def expand(text: str) -> list[str]:
    """``a[1-3,07],b`` → its names; a leading zero keeps the width. Raises ValueError."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _BRACKETS.fullmatch(part)
        if match is None:
            names.append(part)
            continue
        head, inside, tail = match.groups()
        for item in inside.split(","):
            first, dash, last = item.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) - int(first) > _MOST:
                raise ValueError(f"{text} is no list of names")
            width = len(first)
            names += [f"{head}{number:0{width}d}{tail}" for number in range(int(first), int(last or first) + 1)]
    return names
