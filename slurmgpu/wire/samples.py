"""Samples at full resolution as one compressed, self-describing column.

Compressed by zlib, or by xz where many blocks were merged. Inside: one line of JSON, ``{"v": 1, "n": samples,
"columns": [[name, scale, width, low, first, ...], ...]}``, a newline, then for each column its codes: ``width`` times
``n`` bytes, the lowest byte of every code, then the next one of every code. A column of width 0 has the code 1
throughout. Code 0 is "not available", any other one the number ``code + low``. Each ``first`` says that the numbers are
differences, to be added up from there (once or twice; what is not available is passed over). The numbers, divided by
the scale, are the readings; the first column is ``t_ms``, milliseconds since the start of the block.
``docs/schema.md`` has a reader in ten lines.
"""

from __future__ import annotations

import json
import math
import operator
import struct
import zlib
from collections.abc import Container, Iterable, Sequence
from functools import cache
from itertools import accumulate

VERSION = 1
_XZ = b"\xfd7zXZ"
_PACKED = (("", 0), ("B", 1), ("H", 2), ("I", 4), ("I", 4), *[("Q", 8)] * 4)  # width → struct's letter and size

Numbers = Sequence[int | None]
"""Readings as whole numbers, ``value * scale``."""


class SamplesError(ValueError):
    """The bytes are not a column of samples that this version can read."""


def encode(columns: Sequence[tuple[str, int, Numbers]]) -> bytes:
    """Pack columns of whole numbers, each ``(name, scale, values)`` and all of one length.

    Runs on compute nodes: what only grows is packed as differences, all else as it is, and no more is tried.
    """
    n = len(columns[0][2]) if columns else 0
    heads: list[str] = []
    planes: list[bytes] = []
    for name, scale, values in columns:
        head = _head(name, scale)
        first = values[0] if n else 0
        if values.count(first) == n:
            heads.append(f"{head},1,0]" if first is None else f"{head},0,{first - 1}]")
            planes += [bytes(n)] if first is None else []
            continue
        there: Sequence[int] = values  # type: ignore[assignment]
        try:
            low, high = min(there), max(there)
        except TypeError:
            there = _available(values)
            low, high = min(there), max(there)
        if first == low and values[-1] == high:
            numbers, low, high = _differences(there, values)
            heads.append(f"{head},{_put(planes, numbers, low, high)},{low - 1},{first - low}]")
        else:
            heads.append(f"{head},{_put(planes, values, low, high)},{low - 1}]")
    return zlib.compress(_whole(n, heads, planes), 6)


def merge(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """One column of many: each ``(milliseconds from the start of the whole to the start of the part, bytes)``, in
    their order. What a part has no reading of is "not available" there. Takes some ten milliseconds an hour of 1 s.

    Raises :class:`SamplesError` when a part cannot be read.
    """
    n, columns = 0, dict[str, tuple[int, list[int | None]]]()
    for offset_ms, data in parts:
        size, found = _unpack(data)
        for name, scale, numbers in found:
            if name == "t_ms":
                numbers = [None if number is None else number + offset_ms * scale for number in numbers]
            if name not in columns:
                columns[name] = (scale, [None] * n)
            known_scale, values = columns[name]
            if scale != known_scale:
                common = math.lcm(scale, known_scale)
                values[:] = _times(values, common // known_scale)
                columns[name] = (common, values)
                numbers = _times(numbers, common // scale)
            values += numbers
        n += size
        for _, values in columns.values():
            values += [None] * (n - len(values))
    heads: list[str] = []
    planes: list[bytes] = []
    for name, (scale, values) in columns.items():
        tail, own = _smallest(values)
        heads.append(f"{_head(name, scale)},{tail}]")
        planes += own
    return _xz(_whole(n, heads, planes))


def decode(data: bytes, names: Container[str] | None = None) -> dict[str, list[float | int | None]]:
    """Unpack to ``{name: values}``, values in the metric's unit, ``t_ms`` among them; with ``names`` only these.

    Raises :class:`SamplesError` for bytes that are cut off, damaged or of a newer version.
    """
    return {
        name: list(numbers) if scale == 1 else [None if number is None else number / scale for number in numbers]
        for name, scale, numbers in _unpack(data, names)[1]
    }


def _unpack(data: bytes, names: Container[str] | None = None) -> tuple[int, list[tuple[str, int, list[int | None]]]]:
    """How many samples, and ``(name, scale, numbers)`` of the columns."""
    try:
        head_line, _, body = _decompress(data).partition(b"\n")
        head = json.loads(head_line)
        if head["v"] != VERSION:
            raise SamplesError(f"samples of version {head['v']}: this program reads version {VERSION}")
        n, at, found = head["n"], 0, []
        for name, scale, width, low, *firsts in head["columns"]:
            planes = body[at : at + width * n]
            at += width * n
            if names is not None and name not in names:
                continue
            numbers = _numbers(planes, n, width, low)
            for first in firsts:
                numbers = _sums(numbers, first)
            found.append((name, scale, numbers))
        if at != len(body):
            raise SamplesError(f"damaged samples: {len(body)} bytes where {at} belong")
    except SamplesError:
        raise
    except (zlib.error, EOFError, ValueError, KeyError, TypeError, struct.error) as error:
        raise SamplesError(f"damaged samples: {error or type(error).__name__}") from error
    return n, found


def _decompress(data: bytes) -> bytes:
    if not data.startswith(_XZ):
        return zlib.decompress(data)
    import lzma  # not on a compute node: some Pythons are built without it

    try:
        return lzma.decompress(data, format=lzma.FORMAT_XZ)
    except lzma.LZMAError as error:
        raise SamplesError(f"damaged samples: {error}") from error


def _xz(whole: bytes) -> bytes:
    """By xz, set for columns of noise: no context, no long search, a window no larger than what is packed."""
    import lzma

    window = max(4096, 1 << (len(whole) - 1).bit_length())
    chain = {"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0, "dict_size": window}
    chain |= {"mf": lzma.MF_HC4, "nice_len": 16, "depth": 4}
    return lzma.compress(whole, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=[chain])


@cache
def _head(name: str, scale: int) -> str:
    return f"[{json.dumps(name)},{scale}"


def _whole(n: int, heads: list[str], planes: list[bytes]) -> bytes:
    return b'{"v":%d,"n":%d,"columns":[%s]}\n%s' % (VERSION, n, ",".join(heads).encode(), b"".join(planes))


def _put(planes: list[bytes], numbers: Numbers, low: int, high: int) -> int:
    """Add the planes of the codes ``number - low + 1``; how many there are."""
    base = low - 1
    try:
        codes = [number - base for number in numbers]  # type: ignore[operator]
    except TypeError:
        codes = [0 if number is None else number - base for number in numbers]
    width = ((high - base).bit_length() + 7) >> 3
    if width == 1:
        planes.append(bytes(codes))
        return 1
    if width > 8:
        raw, size = b"".join([code.to_bytes(width, "little") for code in codes]), width
    else:
        kind, size = _PACKED[width]
        raw = struct.pack(f"<{len(codes)}{kind}", *codes)
    planes += [raw[place::size] for place in range(width)]
    return width


def _numbers(planes: bytes, n: int, width: int, low: int) -> list[int | None]:
    """The opposite of :func:`_put`."""
    if width == 0:
        return [low + 1] * n
    if width > 8:
        codes = [int.from_bytes(planes[i::n], "little") for i in range(n)]
    else:
        kind, size = _PACKED[width]
        raw = bytearray(size * n)
        for place in range(width):
            raw[place::size] = planes[place * n : (place + 1) * n]
        codes = list(struct.unpack(f"<{n}{kind}", raw))
    if 0 in codes:
        return [code + low if code else None for code in codes]
    return [code + low for code in codes]


def _available(values: Numbers) -> Sequence[int]:
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def _differences(there: Sequence[int], values: Numbers) -> tuple[Numbers, int, int]:
    """Steps from one available value to the next, with None where ``values`` has it; the lowest and the highest step.

    The first step is the lowest one, from a number that is that much lower.
    """
    steps = list(map(operator.sub, there[1:], there))
    low, high = min(steps, default=0), max(steps, default=0)
    steps.insert(0, low)
    if len(steps) == len(values):
        return steps, low, high
    following = iter(steps)
    return [None if value is None else next(following) for value in values], low, high


def _sums(steps: Numbers, last: int) -> list[int | None]:
    """The opposite of :func:`_differences`."""
    if None not in steps:
        return list[int | None](accumulate(steps, operator.add, initial=last))[1:]
    return [None if step is None else (last := last + step) for step in steps]


def _smallest(values: Numbers) -> tuple[str, list[bytes]]:
    """A column's width, low and firsts, and its planes: as it is, as differences or as those of differences.

    Differences are tried for as long as they get smaller, by a quick look: runs and the frequency of bytes.
    """
    if values and values[0] is not None and values.count(values[0]) == len(values):
        return f"0,{values[0] - 1}", []
    there = _available(values)
    low, high = min(there, default=0), max(there, default=0)
    firsts, best, result = "", math.inf, ("", list[bytes]())
    for order in range(3):
        if order:
            first = there[0]
            values, low, high = _differences(there, values)
            there = _available(values)
            firsts = f",{first - low}{firsts}"
        planes: list[bytes] = []
        width = _put(planes, values, low, high)
        look = zlib.compressobj(1, strategy=zlib.Z_RLE)
        size = len(look.compress(b"".join(planes)) + look.flush())
        if size >= best:
            break
        best, result = size, (f"{width},{low - 1}{firsts}", planes)
        if not there:
            break
    return result


def _times(numbers: Numbers, factor: int) -> list[int | None]:
    return [None if number is None else number * factor for number in numbers]
