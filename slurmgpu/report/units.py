"""Figures as people read them. What is not known is a dash, never 0."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

UNKNOWN = "–"
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-~=+*#"
_GIB = 1 << 30


def clock_time(t_ms: int) -> str:
    """Local time as Slurm writes it: YYYY-MM-DDTHH:MM:SS."""
    return datetime.fromtimestamp(t_ms / 1000).strftime("%Y-%m-%dT%H:%M:%S")


def iso_time(t_ms: int) -> str:
    """UTC as ISO 8601 with milliseconds and zone."""
    return datetime.fromtimestamp(t_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def elapsed(ms: int) -> str:
    """[D-]HH:MM:SS, to the nearest second."""
    days, rest = divmod(round(ms / 1000), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def percent(value: float | None) -> str:
    """A whole per cent; what is above 0 never reads as 0."""
    if value is None:
        return UNKNOWN
    return "<1 %" if 0 < value < 0.5 else f"{value:.0f} %"


def share(value: float | None) -> str:
    """A share of 1 as per cent, rounded down so that 100 % means all."""
    if value is None:
        return UNKNOWN
    return "100 %" if value >= 0.9995 else f"{int(value * 1000) / 10:.1f} %"


def gib(value: float | None) -> str:
    """Bytes in GiB, without the unit."""
    return UNKNOWN if value is None else f"{value / _GIB:.1f}"


def watts(mw: float | None) -> str:
    """Power in W."""
    return UNKNOWN if mw is None else f"{mw / 1000:.0f} W"


_ENERGY_UNITS = (("J", 1e3), ("Wh", 3.6e6), ("kWh", 3.6e9))


def energy_unit(largest_mj: int | None) -> str:
    """The unit in which a table's energies are read most easily: J below 1 Wh, kWh from 1 kWh on."""
    mj = largest_mj or 0
    return "kWh" if mj >= 3.6e9 else "Wh" if mj >= 3.6e6 else "J"


def energy(mj: int | None, unit: str, lower_bound: bool = False) -> str:
    """Energy in a unit, to three figures; ``≥`` where part of the time has no reading."""
    if mj is None:
        return UNKNOWN
    value = mj / dict(_ENERGY_UNITS)[unit]
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{'≥ ' if lower_bound else ''}{value:.{digits}f} {unit}"


def sparkline(values: Sequence[float | None], *, ascii_only: bool = False) -> str:
    """One character for each value of 0 to 100; a blank for no samples."""
    bars = _ASCII_BARS if ascii_only else _BARS
    return "".join(" " if v is None else bars[min(len(bars) - 1, int(v / 100 * len(bars)))] for v in values)


def plain(text: str | None) -> str:
    """A user's text without anything that a terminal would obey."""
    if not text:
        return UNKNOWN
    return "".join("�" if unicodedata.category(char).startswith("C") else char for char in text)


def shortened(text: str, width: int) -> str:
    """The text in at most so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
