"""Samples at full resolution as one compressed, self-describing column.

Layout, before zlib: one line of JSON, ``{"v": 1, "n": samples, "columns": [[name, scale], ...]}``, a newline, then for
each column ``n`` numbers as base-128 varints, the low seven bits first. A number is 0 for "not available", else one
more than the zigzag of the difference to the column's last available value (at first: to 0). The first column is
``t_ms``, milliseconds since the start of the block. :func:`decode` is the whole of it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

VERSION = 1


class SamplesError(ValueError):
    """The bytes are not a column of samples that this version can read."""


def encode(columns: Sequence[tuple[str, int, Sequence[int | None]]]) -> bytes:
    """Pack columns of whole numbers, each ``(name, scale, values)`` and all of one length."""
    n = len(columns[0][2]) if columns else 0
    head = {"v": VERSION, "n": n, "columns": [[name, scale] for name, scale, _ in columns]}
    out = bytearray(json.dumps(head, separators=(",", ":")).encode() + b"\n")
    append = out.append
    for _, _, values in columns:
        if n > 1 and values.count(values[0]) == n:  # a column that stands still: its first number, then no difference
            values, rest = values[:1], n - 1
        else:
            rest = 0
        last = 0
        for value in values:
            if value is None:
                append(0)
                continue
            delta = value - last
            last = value
            code = (delta << 1) + 1 if delta >= 0 else -delta << 1
            while code > 127:
                append(code & 127 | 128)
                code >>= 7
            append(code)
        out.extend((b"\x00" if values and values[0] is None else b"\x01") * rest)
    return zlib.compress(bytes(out), 6)


def decode(data: bytes) -> dict[str, list[float | int | None]]:
    """Unpack to ``{name: values}``, values in the metric's unit, ``t_ms`` among them.

    Raises :class:`SamplesError` for bytes that are cut off, damaged or of a newer version.
    """
    try:
        head_line, _, body = zlib.decompress(data).partition(b"\n")
        head = json.loads(head_line)
        if head["v"] != VERSION:
            raise SamplesError(f"samples of version {head['v']}: this program reads version {VERSION}")
        numbers = iter(body)
        result: dict[str, list[float | int | None]] = {}
        for name, scale in head["columns"]:
            last, values = 0, []
            for _ in range(head["n"]):
                code = shift = 0
                while (byte := next(numbers)) > 127:
                    code, shift = code | (byte & 127) << shift, shift + 7
                code |= byte << shift
                if code:
                    last += code - 1 >> 1 if code & 1 else -(code >> 1)
                values.append(None if not code else last if scale == 1 else last / scale)
            result[name] = values
    except SamplesError:
        raise
    except (zlib.error, ValueError, KeyError, TypeError, StopIteration) as error:
        raise SamplesError(f"damaged samples: {error or type(error).__name__}") from error
    return result
