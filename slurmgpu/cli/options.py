"""Options that several commands share."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Configuration (else $SLURMGPU_CONF, else /etc/slurmgpu)."),
]


class Format(enum.StrEnum):
    """Forms of output."""

    text = "text"
    json = "json"
    csv = "csv"
    ndjson = "ndjson"
