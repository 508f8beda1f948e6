"""Lists of nodes as Slurm writes them: ``n[1-3,7],login1``, ``r[1-2]n[01-04]``.

Order and padding are those of ``scontrol show hostnames``: a range is as wide as its first number
(``n[09-11]`` is n09, n10, n11), and a name that occurs twice stays twice. With several brackets the last one
turns fastest, then the first, then the second and so on, as Slurm prints. Beyond Slurm, text may follow the
last bracket (``n[1-2]-ib``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby, product
from math import prod

from slurmgpu.slurm._text import shown, split_outside

MAX_NAMES = 1 << 17  # far above any cluster; a typing error ends here and not in the memory

SortKey = tuple[tuple[str | tuple[int, str, int], ...], int, int]

_NO_NODES = ("", "(null)", "None assigned")  # how scontrol and sacct write an empty list
_NAME = re.compile(r"[!-~]+")
_FORBIDDEN = frozenset("[](),")
_BRACKET = re.compile(r"\[([^]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})")
_DIGITS = re.compile(r"([0-9]+)")


class HostlistError(ValueError):
    """What is wrong with a list of nodes, in one line that shows the text."""


def expand(text: str, limit: int = MAX_NAMES) -> list[str]:
    """The names of all nodes in a list. Raises HostlistError, also for more than ``limit`` names."""
    if text.strip() in _NO_NODES:
        return []
    try:
        names: list[str] = []
        for part in split_outside(text, "[]", ", \t\n"):
            names += _expand_part(part, limit - len(names))
    except ValueError as error:
        raise HostlistError(f"node list {shown(text)}: {error}") from None
    return names


def fold(names: Iterable[str]) -> str:
    """The shortest list that Slurm takes: sorted by ``sort_key``, each name once, last numbers as ranges.

    Raises HostlistError for a text that cannot be a node's name.
    """
    numbered = [_split(_checked(name)) for name in set(names)]
    numbered.sort(key=_key)
    parts = []
    for (prefix, has_number), group in groupby(numbered, key=lambda item: (item[0], bool(item[1]))):
        if not has_number:
            parts.append(prefix)
            continue
        ranges = _ranges([number for _, number in group])
        texts = [first if first == last else f"{first}-{last}" for first, last in ranges]
        one_name = len(texts) == 1 and ranges[0][0] == ranges[0][1]
        parts.append(prefix + (texts[0] if one_name else f"[{','.join(texts)}]"))
    return ",".join(parts)


def sort_key(name: str) -> SortKey:
    """Sorts names as Slurm does: by what stands before the last number, then by number, then by padding."""
    return _key(_split(name))


def _expand_part(part: str, limit: int) -> list[str]:
    literals_and_lists = _BRACKET.split(part)
    literals, lists = literals_and_lists[::2], literals_and_lists[1::2]
    for literal in literals:
        if literal:
            _checked(literal)
    ranges = [[_range(item) for item in text.split(",")] for text in lists]
    if prod(sum(map(len, (numbers for numbers, _ in group))) for group in ranges) > limit:
        raise ValueError("too many names")
    values = [[str(n).zfill(width) for numbers, width in group for n in numbers] for group in ranges]
    # Slurm unfolds the last bracket innermost and the others from right to left, outermost first.
    order = [*range(len(values) - 2, -1, -1), *([len(values) - 1] if values else [])]
    names = []
    for chosen in product(*(values[at] for at in order)):
        placed = dict(zip(order, chosen, strict=True))
        names.append(literals[0] + "".join(placed[at] + literals[at + 1] for at in range(len(values))))
    return names


def _range(text: str) -> tuple[range, int]:
    """The numbers of ``3`` or ``01-04`` and how wide they are printed."""
    match = _RANGE.fullmatch(text)
    if not match:
        raise ValueError(f"{shown(text)} is no number, as 4, nor a range, as 01-04")
    first, last = match[1], match[2] or match[1]
    if int(first) > int(last):
        raise ValueError(f"the range {text} goes down")
    return range(int(first), int(last) + 1), len(first)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or _FORBIDDEN & set(name):
        raise HostlistError(f"{shown(name)} cannot be a node's name")
    return name


def _split(name: str) -> tuple[str, str]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


def _key(parts: tuple[str, str]) -> SortKey:
    prefix, number = parts
    return _natural(prefix), int(number) if number else -1, len(number)


def _natural(text: str) -> tuple[str | tuple[int, str, int], ...]:
    """Text and numbers in turn. Numbers compare by length, then digits: int() refuses very long ones."""
    pieces: list[str | tuple[int, str, int]] = list(_DIGITS.split(text))
    for at, digits in enumerate(_DIGITS.findall(text)):
        pieces[2 * at + 1] = (len(digits.lstrip("0")), digits.lstrip("0"), len(digits))
    return tuple(pieces)


def _ranges(numbers: list[str]) -> list[tuple[str, str]]:
    """First and last of each run of numbers that Slurm would print in one range."""
    runs: list[tuple[str, str]] = []
    for number in numbers:
        if runs and number == str(int(runs[-1][1]) + 1).zfill(len(runs[-1][0])):
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
