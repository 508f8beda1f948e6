"""Times and durations as Slurm reads and prints them. Instants are epoch seconds; durations are seconds.

``tz=None`` means the zone of this host. Where the clocks change, one rule holds: a time that does not exist
(spring) is taken as if the clocks had not changed yet, so it moves forward by the gap; a time that occurs
twice (autumn) is its first occurrence. Ask Slurm for epoch seconds (SLURM_TIME_FORMAT=%s) where it matters.
Source: sacct(1), sbatch(1), squeue(1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, tzinfo
from enum import Enum
from typing import Final

from slurmgpu.slurm._text import shown

UNLIMITED: Final = math.inf

_LAST_S = 253_402_214_400  # 9999-12-31 UTC: every zone can still show it

_ACCEPTED = "accepted are 14:30, today, noon, now-2hours, 1201, 12/01, 12/01/26-14:30, 2026-12-01T14:30"
_MISSING = frozenset({"", "unknown", "none", "n/a", "(null)"})
_MISSING_DURATION = _MISSING | {"partition_limit", "not_set", "invalid"}
_ENDLESS = frozenset({"unlimited", "infinite", "-1"})

_CLOCK_WORDS = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}

_CLOCK = (
    r"(?:(?P<word>midnight|noon|elevenses|fika|teatime)"
    r"|(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?\s*(?P<half>[ap]m)?)"
)
_DATE = (
    r"(?:(?P<day_word>today|tomorrow)"
    r"|(?P<iso>[0-9]{4}-[0-9]{1,2}-[0-9]{1,2})"
    r"|(?P<slashed>[0-9]{1,2}/[0-9]{1,2}(?:/[0-9]{2})?)"
    r"|(?P<dotted>[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{2})?)"
    r"|(?P<plain>[0-9]{4}(?:[0-9]{2})?))"
)
_BETWEEN = r"(?:\s*[-T]\s*|\s+)"
_DATE_CLOCK = re.compile(f"{_DATE}(?:{_BETWEEN}{_CLOCK})?", re.IGNORECASE)
_CLOCK_DATE = re.compile(f"{_CLOCK}(?:{_BETWEEN}{_DATE})?", re.IGNORECASE)
_NOW = re.compile(
    r"now(?:\s*(?P<sign>[-+])\s*(?P<count>[0-9]{1,9})\s*(?:(?P<unit>second|minute|hour|day|week)s?)?)?",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"uts([0-9]{7,12})", re.IGNORECASE)  # sacct takes epoch seconds so
_SECONDS = re.compile(r"[0-9]{1,12}")
_PRINTED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_DURATION = re.compile(
    r"(?:(?P<days>[0-9]{1,9})-)?(?P<fields>[0-9]{1,9}(?::[0-9]{1,9}){0,2})(?P<fraction>\.[0-9]{1,9})?"
)


class TimeError(ValueError):
    """What is wrong with a time or a duration, in one line that shows the text and what is accepted."""


class Direction(Enum):
    """Where a time that leaves something open is looked for."""

    FORWARD = "forward"  # sbatch: a clock time is the next one, a date without a year likewise
    BACK = "back"  # sacct: a clock time is today's, a date without a year never lies in a later month


def parse_time(
    text: str,
    now_s: float,
    tz: tzinfo | None = None,
    direction: Direction = Direction.FORWARD,
) -> int:
    """The instant that a person means, in epoch seconds. Raises TimeError."""
    words = text.strip()
    try:
        if match := _EPOCH.fullmatch(words):
            return _in_range(int(match[1]))
        if match := _NOW.fullmatch(words):
            count = int(match["count"] or 0) * _UNIT_SECONDS[(match["unit"] or "second").lower()]
            return _in_range(math.floor(now_s) + (-count if match["sign"] == "-" else count))
        if match := _DATE_CLOCK.fullmatch(words) or _CLOCK_DATE.fullmatch(words):
            return _local_time(match.groupdict(), now_s, tz, direction)
    except (ValueError, OverflowError, OSError) as error:
        raise TimeError(f"time {shown(text)}: {error}") from None
    raise TimeError(f"time {shown(text)}: {_ACCEPTED}")


def read_time(text: str, tz: tzinfo | None = None) -> int | None:
    """The instant that Slurm printed (standard form, or ``%s``), None where it printed that there is none.

    Raises TimeError for anything else.
    """
    words = text.strip()
    if words.lower() in _MISSING:
        return None
    try:
        if _SECONDS.fullmatch(words):
            return _in_range(int(words)) or None  # Slurm's 0 is "not set"
        if _PRINTED.fullmatch(words):
            return _instant(datetime.fromisoformat(words), tz)
    except (ValueError, OverflowError, OSError) as error:
        raise TimeError(f"time {shown(text)}: {error}") from None
    raise TimeError(f"time {shown(text)}: Slurm prints 2026-12-01T14:30:00, epoch seconds or Unknown")


def format_time(t_s: float | None, tz: tzinfo | None = None) -> str:
    """``2026-12-01T14:30:00`` in local time, ``Unknown`` for None. Raises TimeError out of range."""
    return "Unknown" if t_s is None else _wall(t_s, tz).isoformat(timespec="seconds")


def format_time_as(style: str, t_s: float | None, now_s: float, tz: tzinfo | None = None) -> str:
    """Like format_time, in the style of SLURM_TIME_FORMAT: ``standard``, ``relative`` or a text for strftime.

    A style without % is taken as standard, as Slurm does. Raises TimeError out of range.
    """
    if t_s is None or (style != "relative" and "%" not in style):
        return format_time(t_s, tz)
    wall = _wall(t_s, tz)
    if style == "relative":
        return _relative(wall, _wall(now_s, tz))
    # strftime's own %s would go by the zone of the host, whatever tz says.
    style = re.sub(r"%(.)", lambda found: str(math.floor(t_s)) if found[1] == "s" else found[0], style)
    return (wall.astimezone() if tz is None else wall.replace(tzinfo=tz)).strftime(style)


def parse_duration(text: str) -> float:
    """Seconds of ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``; UNLIMITED exceeds every number.

    What Slurm prints reads the same way, with a fraction where it has one (``05:03.123``). Raises TimeError.
    """
    words = text.strip()
    if words.lower() in _ENDLESS:
        return UNLIMITED
    match = _DURATION.fullmatch(words)
    fields = [int(field) for field in match["fields"].split(":")] if match else []
    if match and match["days"]:
        hours, minutes, seconds = [*fields, 0, 0][:3]
    elif len(fields) == 3:
        hours, minutes, seconds = fields
    else:
        hours, minutes, seconds = [0, *fields, 0, 0][:3]
    has_seconds = match and len(fields) >= (3 if match["days"] else 2)
    if not match or (match["fraction"] and not has_seconds):
        raise TimeError(
            f"duration {shown(text)}: accepted are 90 (minutes), 90:00, 1:30:00, 2-12 (days-hours), UNLIMITED"
        )
    whole = int(match["days"] or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return whole + float(match["fraction"] or 0)


def read_duration(text: str) -> float | None:
    """parse_duration of what Slurm printed; None for Partition_Limit, INVALID and the words for "missing"."""
    return None if text.strip().lower() in _MISSING_DURATION else parse_duration(text)


def format_duration(seconds: float) -> str:
    """``[D-]HH:MM:SS`` or ``UNLIMITED``; fractions are cut off. Raises TimeError for negative and NaN."""
    if seconds == UNLIMITED:
        return "UNLIMITED"
    if not seconds >= 0:
        raise TimeError(f"{seconds} seconds are no duration")
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def _local_time(part: dict[str, str | None], now_s: float, tz: tzinfo | None, direction: Direction) -> int:
    """The instant of a date, a clock time or both: on the first day where it is ahead, else on the last."""
    clock = _clock(part)
    t_s = 0
    for day in _days(part, _wall(now_s, tz).date(), direction):
        t_s = _instant(datetime.combine(day, clock), tz)
        if t_s > now_s:
            break
    return t_s


def _clock(part: dict[str, str | None]) -> time:
    if part["word"]:
        return time(_CLOCK_WORDS[part["word"].lower()])
    hour = int(part["hour"] or 0)
    if half := (part["half"] or "").lower():
        if hour > 12:
            raise ValueError(f"{hour} {half.upper()} is no clock time")
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, int(part["minute"] or 0), int(part["second"] or 0))


def _days(part: dict[str, str | None], today: date, direction: Direction) -> Iterator[date]:
    """The days that a text may mean, in order."""
    forward = direction is Direction.FORWARD
    if numbers := _numbers(part):
        month, day, *years = numbers
        if years:
            yield date(years[0], month, day)
        elif forward:
            yield date(today.year, month, day)
            yield date(today.year + 1, month, day)
        else:
            yield date(today.year - (month > today.month), month, day)
        return
    word = (part["day_word"] or "").lower()
    if word != "tomorrow":
        yield today
    if word == "tomorrow" or (forward and not word):
        yield today + timedelta(days=1)


def _numbers(part: dict[str, str | None]) -> list[int]:
    """Month, day and, where it is given, the year of a date in numbers; empty if there is none."""
    if part["iso"]:
        year, *rest = map(int, part["iso"].split("-"))
        return [*rest, year]
    if plain := part["plain"]:
        pairs = [plain[at : at + 2] for at in range(0, len(plain), 2)]
    else:
        pairs = re.split(r"[/.]", part["slashed"] or part["dotted"] or "")
    if pairs == [""]:
        return []
    month, day, *years = map(int, pairs)
    return [month, day, *(2000 + year for year in years)]


def _relative(wall: datetime, now: datetime) -> str:
    """SLURM_TIME_FORMAT=relative: the nearer, the less of the date."""
    days = (wall.date() - now.date()).days
    if days == 0:
        return f"{wall:%H:%M:%S}"
    if days in (-1, 1):
        return f"{'Ystday' if days < 0 else 'Tomorr'} {wall:%H:%M}"
    if 1 < days <= 6:
        return f"{wall:%a %H:%M}"
    return f"{wall.day} {wall:%b %Y}" if abs(days) > 365 else f"{wall.day} {wall:%b %H:%M}"


def _wall(t_s: float, tz: tzinfo | None) -> datetime:
    """What a clock on the wall shows; ``fold`` tells the two hours of autumn apart."""
    try:
        return datetime.fromtimestamp(_in_range(math.floor(t_s)), tz).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise TimeError(f"{t_s} is no time: {error}") from None


def _instant(wall: datetime, tz: tzinfo | None) -> int:
    return _in_range(int(wall.replace(tzinfo=tz, fold=0).timestamp()))


def _in_range(t_s: int) -> int:
    if not 0 <= t_s <= _LAST_S:
        raise ValueError("times go from 1970 to 9999")
    return t_s
