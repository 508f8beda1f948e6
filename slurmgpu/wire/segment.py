"""Segment files: immutable, checked as a whole, readable with a pager.

A head line of JSON; for each record a line of JSON and, where ``"body": N`` says so, N bytes and a newline; a last line
``{"end": records, "crc32": …}`` over all bytes before it. A file without a right last line is cut off or damaged.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurmgpu.wire.records import Record, from_plain, to_plain

VERSION = 1
SUFFIX = ".seg"


class SegmentError(ValueError):
    """The file is not a whole segment that this version can read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Head:
    """Who wrote the segment. ``(node, stream, seq)`` names it for ever.

    ``stream`` is new at each start of slurmgpud; ``seq`` counts from 0 within it.
    """

    cluster: str
    node: str
    boot_id: str
    stream: str
    seq: int
    created_ms: int
    version: int = VERSION

    @property
    def file_name(self) -> str:
        return f"{self.stream}-{self.seq:08d}{SUFFIX}"


def pack(head: Head, records: Iterable[Record]) -> bytes:
    """The bytes of a segment file."""
    parts = [_line(asdict(head))]
    count = 0
    for record in records:
        count += 1
        plain = to_plain(record)
        body = getattr(record, "body", b"")
        if body:
            plain["body"] = len(body)
            parts += (_line(plain), body, b"\n")
        else:
            parts.append(_line(plain))
    data = b"".join(parts)
    return data + _line({"end": count, "crc32": zlib.crc32(data)})


def unpack(data: bytes) -> tuple[Head, list[Record]]:
    """The opposite of :func:`pack`. Raises :class:`SegmentError`."""
    cut = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        last = json.loads(data[cut:])
        count, crc = last["end"], last["crc32"]
    except (ValueError, KeyError, TypeError) as error:
        raise SegmentError("cut off: the last line is missing") from error
    if not data.endswith(b"\n"):
        raise SegmentError("cut off: the last line has no end")
    if zlib.crc32(data[:cut]) != crc:
        raise SegmentError("damaged: the checksum does not fit")
    try:
        lines = _records(memoryview(data)[:cut])
        head_plain, _ = next(lines)
        if head_plain.get("version") != VERSION:
            raise SegmentError(f"version {head_plain.get('version')}: this program reads version {VERSION}")
        head = Head(**head_plain)
        records = [from_plain(plain, body) for plain, body in lines]
    except SegmentError:
        raise
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise SegmentError(f"cannot be read: {type(error).__name__}: {error}") from error
    if len(records) != count:
        raise SegmentError(f"holds {len(records)} records of {count}")
    return head, records


def read(path: Path) -> tuple[Head, list[Record]]:
    """A segment file. Raises :class:`SegmentError` and OSError."""
    return unpack(path.read_bytes())


def _line(plain: dict[str, object]) -> bytes:
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _records(data: memoryview) -> Iterator[tuple[dict[str, Any], bytes]]:
    raw = data.obj
    assert isinstance(raw, bytes)
    at, end = 0, len(data)
    while at < end:
        stop = raw.index(b"\n", at)
        plain = json.loads(raw[at:stop])
        at = stop + 1
        size = plain.pop("body", 0)
        body = raw[at : at + size]
        if size:
            at += size + 1
        yield plain, body
