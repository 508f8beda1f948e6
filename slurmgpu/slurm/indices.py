"""GPUs in Slurm's texts: lists of numbers, GRES details, TRES.

The numbers are Slurm's ordinals on a node: the place in the node's list of GRES devices, not the NVML index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slurmgpu.slurm._text import shown, split_outside
from slurmgpu.slurm.times import parse_duration

MAX_INDEX = 65_535

_NOTHING = frozenset({"", "N/A", "(null)"})
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)([KMGTPE]?)")
_GRES = re.compile(r"(?:gres[:/])?([^():,\s]+(?::[^():,\s]+)*)((?:\([^()]*\))*)")
_SHARE = re.compile(r"(-|[0-9]{1,9})/([0-9]{1,9})")
_SHARES = re.compile(rf"{_SHARE.pattern}(?:,{_SHARE.pattern})*")


class GresError(ValueError):
    """What is wrong with a text about GPUs, in one line that shows it."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of one GPU's shards or MPS percentage is in use; None where the GPU is taken as a whole."""

    used: int | None
    total: int


@dataclass(frozen=True, slots=True)
class Gres:
    """One part of a GRES text, such as ``gpu:h100:2(IDX:0-1)`` or ``shard:3(0/4,0/4,3/4,0/4)``.

    ``indices`` are the ordinals of the GPUs that it names, for shares the GPUs of which some is used. They
    are empty where Slurm does not print them.
    """

    name: str
    type: str = ""
    count: int = 1
    indices: tuple[int, ...] = ()
    shares: tuple[Share, ...] = ()  # by ordinal; from Slurm 24.11, for shard and mps only


def parse_indices(text: str) -> tuple[int, ...]:
    """The numbers of ``0,3-5``; none for ``N/A`` and the empty text. Raises GresError."""
    if text.strip() in _NOTHING:
        return ()
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > MAX_INDEX:
            raise GresError(f"GPU list {shown(text)}: {shown(part)} is no number, as 4, nor a range, as 0-3")
        found += range(first, last + 1)
        if len(found) > MAX_INDEX:
            raise GresError(f"GPU list {shown(text)}: too many numbers")
    return tuple(found)


def format_indices(indices: Iterable[int]) -> str:
    """``0,3-5`` for 0, 3, 4, 5: sorted, each once."""
    runs: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read a GRES text: of a job's node, of a node (``gpu:a100:4(S:0-1)``) or of a request (``gres/gpu:2``).

    Raises GresError.
    """
    if text.strip() in _NOTHING:
        return ()
    try:
        return tuple(_one_gres(part.strip()) for part in split_outside(text, "()"))
    except ValueError as error:
        raise GresError(f"GRES {shown(text)}: {error}") from None


def parse_tres(text: str) -> dict[str, int]:
    """Read ``cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=8G``. Suffixes are powers of 1024; times become seconds.

    ``mem`` is in bytes, and without a suffix it was in MB, as in AllocTRES and ReqTRES. Raises GresError.
    """
    if text.strip() in _NOTHING:
        return {}
    found = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not key or not equals:
            raise GresError(f"TRES {shown(text)}: {shown(part)} is not of the form name=number")
        try:
            unit = "M" if key == "mem" else ""
            found[key] = int(parse_duration(value)) if ":" in value else _amount(value, unit)
        except ValueError:
            raise GresError(f"TRES {shown(text)}: {shown(value)} is no number") from None
    return found


def gpu_count(tres: Mapping[str, int]) -> int:
    """How many GPUs a TRES text holds: ``gres/gpu`` is already the sum of the typed entries."""
    if "gres/gpu" in tres:
        return tres["gres/gpu"]
    return sum(count for key, count in tres.items() if key.startswith("gres/gpu:"))


def _one_gres(text: str) -> Gres:
    match = _GRES.fullmatch(text)
    if not match:
        raise ValueError(f"{shown(text)} is not of the form name[:type]:count")
    name, *words = match[1].split(":")
    words = [word for word in words if word != "no_consume"]
    count = _amount(words.pop()) if words and _AMOUNT.fullmatch(words[-1]) else 1
    if len(words) > 1:
        raise ValueError(f"{shown(text)} is not of the form name[:type]:count")
    gres = Gres(name, words[0] if words else "", count)
    for note in re.findall(r"\(([^()]*)\)", match[2]):
        if note.startswith("IDX:"):
            gres = replace(gres, indices=parse_indices(note.removeprefix("IDX:")))
        elif _SHARES.fullmatch(note):
            shares = tuple(
                Share(None if used == "-" else int(used), int(total)) for used, total in _SHARE.findall(note)
            )
            in_use = tuple(at for at, share in enumerate(shares) if share.used)
            gres = replace(gres, shares=shares, indices=in_use)
    return gres  # other notes, such as (S:0-1), say nothing about which GPUs


def _amount(text: str, unit: str = "") -> int:
    match = _AMOUNT.fullmatch(text)
    if not match:
        raise ValueError(f"{shown(text)} is no number")
    factor = 1024 ** (" KMGTPE".index(match[2] or unit or " "))
    return int(match[1]) * factor if match[1].isdigit() else int(float(match[1]) * factor)
