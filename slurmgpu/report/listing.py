"""Rows for programs: CSV (RFC 4180, one header, empty for what is not known), NDJSON, JSON with a schema's name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def to_csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """One header line, then a line a row, columns in this order."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(value) for name, value in row.items()})
    return out.getvalue()


def cell(value: object) -> object:
    """A value as a cell: nothing for None, true and false in lower case, lists with blanks between."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def to_ndjson(rows: Iterable[Row]) -> str:
    """One object a line, null for what is not known."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def to_json(schema: str, name: str, rows: Iterable[Row]) -> str:
    """One document: ``{"schema": …, NAME: […]}``."""
    return json.dumps({"schema": schema, name: list(rows)}, indent=2, allow_nan=False) + "\n"
