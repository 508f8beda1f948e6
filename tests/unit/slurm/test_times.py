"""Times and durations: all forms that Slurm takes or prints, and the two odd hours of the year."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.times import (
    UNLIMITED,
    Direction,
    TimeError,
    format_duration,
    format_time,
    format_time_as,
    parse_duration,
    parse_time,
    read_duration,
    read_time,
)

quick = settings(deadline=None)

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [
    UTC,
    BERLIN,
    ZoneInfo("America/New_York"),
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("Australia/Lord_Howe"),  # its clocks change by half an hour
    ZoneInfo("America/Santiago"),  # and these at midnight
]


def at(text: str, tz: tzinfo = BERLIN) -> int:
    """Epoch seconds of a local time, by Python's own reading."""
    return int(datetime.fromisoformat(text).replace(tzinfo=tz).timestamp())


NOW = at("2026-12-02T10:30:15")  # a Wednesday


@pytest.mark.parametrize(
    ("text", "forward", "back"),
    [
        # a clock time is the next one, or today's
        ("14:30", "2026-12-02T14:30:00", "2026-12-02T14:30:00"),
        ("9:05", "2026-12-03T09:05:00", "2026-12-02T09:05:00"),
        ("10:30:15", "2026-12-03T10:30:15", "2026-12-02T10:30:15"),
        ("10:30:16", "2026-12-02T10:30:16", "2026-12-02T10:30:16"),
        ("2:30PM", "2026-12-02T14:30:00", "2026-12-02T14:30:00"),
        ("02:30:10 pm", "2026-12-02T14:30:10", "2026-12-02T14:30:10"),
        ("12:15AM", "2026-12-03T00:15:00", "2026-12-02T00:15:00"),
        ("12:15PM", "2026-12-02T12:15:00", "2026-12-02T12:15:00"),
        ("midnight", "2026-12-03T00:00:00", "2026-12-02T00:00:00"),
        ("noon", "2026-12-02T12:00:00", "2026-12-02T12:00:00"),
        ("elevenses", "2026-12-02T11:00:00", "2026-12-02T11:00:00"),
        ("Fika", "2026-12-02T15:00:00", "2026-12-02T15:00:00"),
        ("TEATIME", "2026-12-02T16:00:00", "2026-12-02T16:00:00"),
        # a date without a year is the next one, or in no later month
        ("1203", "2026-12-03T00:00:00", "2026-12-03T00:00:00"),
        ("1202", "2027-12-02T00:00:00", "2026-12-02T00:00:00"),
        ("0615", "2027-06-15T00:00:00", "2026-06-15T00:00:00"),
        ("12/1-14:30", "2027-12-01T14:30:00", "2026-12-01T14:30:00"),
        ("12.02-10:31", "2026-12-02T10:31:00", "2026-12-02T10:31:00"),
        # these leave nothing open
        ("today", "2026-12-02T00:00:00", "2026-12-02T00:00:00"),
        ("tomorrow", "2026-12-03T00:00:00", "2026-12-03T00:00:00"),
        ("noon tomorrow", "2026-12-03T12:00:00", "2026-12-03T12:00:00"),
        ("todayT09:00", "2026-12-02T09:00:00", "2026-12-02T09:00:00"),
        ("061525", "2025-06-15T00:00:00", "2025-06-15T00:00:00"),
        ("061525-14:30:05", "2025-06-15T14:30:05", "2025-06-15T14:30:05"),
        ("06/15/25", "2025-06-15T00:00:00", "2025-06-15T00:00:00"),
        ("6/5/25-2:30PM", "2025-06-05T14:30:00", "2025-06-05T14:30:00"),
        ("06.15.25-14:30", "2025-06-15T14:30:00", "2025-06-15T14:30:00"),
        ("2025-06-15", "2025-06-15T00:00:00", "2025-06-15T00:00:00"),
        ("2025-06-15T14:30", "2025-06-15T14:30:00", "2025-06-15T14:30:00"),
        ("2025-06-15T14:30:05", "2025-06-15T14:30:05", "2025-06-15T14:30:05"),
        ("2025-06-15-14:30:05", "2025-06-15T14:30:05", "2025-06-15T14:30:05"),
        ("2025-06-15 14:30", "2025-06-15T14:30:00", "2025-06-15T14:30:00"),
        ("  now ", "2026-12-02T10:30:15", "2026-12-02T10:30:15"),
        ("now+30", "2026-12-02T10:30:45", "2026-12-02T10:30:45"),
        ("now-1second", "2026-12-02T10:30:14", "2026-12-02T10:30:14"),
        ("now-30minutes", "2026-12-02T10:00:15", "2026-12-02T10:00:15"),
        ("NOW - 2 Hours", "2026-12-02T08:30:15", "2026-12-02T08:30:15"),
        ("now+1day", "2026-12-03T10:30:15", "2026-12-03T10:30:15"),
        ("now-2weeks", "2026-11-18T10:30:15", "2026-11-18T10:30:15"),
        ("uts1750000000", "2025-06-15T17:06:40", "2025-06-15T17:06:40"),
    ],
)
def test_forms(text: str, forward: str, back: str) -> None:
    assert parse_time(text, NOW, BERLIN) == at(forward)
    assert parse_time(text, NOW, BERLIN, Direction.BACK) == at(back)


def test_year_is_the_last_one_for_a_later_month() -> None:
    january = at("2026-01-10T08:00:00")
    assert parse_time("1224", january, BERLIN, Direction.BACK) == at("2025-12-24T00:00:00")
    assert parse_time("1224", january, BERLIN) == at("2026-12-24T00:00:00")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soon",
            "24:00",
            "10:60",
            "10:30:60",
            "3PM",
            "13:30PM",
            "10:3",
            "2026",
            "20261",
            "0230",
            "1301",
        ),
        *(
            "2026-13-01",
            "2026-02-30",
            "2026-12-01T",
            "12/01/2026",
            "12/01.26",
            "1-2-3",
            "now-",
            "now-2fortnights",
        ),
        *("now-99999999999", "now-9999weeks", "now+999999999weeks", "1950-01-01", "today today", "noon noon"),
        *(
            "Unknown",
            "None",
            "N/A",
            "١٢:٣٠",
            "2026-12-01T14:30:00Z",
            "x" * 10_000,
            "9999-12-31T23:59",
            "uts99",
        ),
    ],
)
@pytest.mark.parametrize("direction", Direction)
def test_refused(text: str, direction: Direction) -> None:
    with pytest.raises(TimeError) as caught:
        parse_time(text, NOW, BERLIN, direction)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250
    assert repr(text)[:20] in message


@pytest.mark.parametrize(
    ("zone", "wall", "utc"),
    [
        # spring: the hour does not exist, and the time moves forward by the gap
        ("Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00"),  # 03:30 summer time
        ("Australia/Lord_Howe", "2026-10-04T02:15:00", "2026-10-03T15:45:00"),
        ("America/Santiago", "2026-09-06T00:00:00", "2026-09-06T04:00:00"),  # 01:00
        # autumn: the hour comes twice, and the first is meant
        ("Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00"),
        ("America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30:00"),
    ],
)
def test_change_of_the_clocks(zone: str, wall: str, utc: str) -> None:
    tz = ZoneInfo(zone)
    assert parse_time(wall, NOW, tz) == at(utc, UTC)
    assert read_time(wall, tz) == at(utc, UTC)


def test_now_counts_real_seconds_over_the_change() -> None:
    before = at("2026-10-24T12:00:00")
    assert parse_time("now+1day", before, BERLIN) == before + 86_400
    assert format_time(before + 86_400, BERLIN) == "2026-10-25T11:00:00"
    assert parse_time("noon tomorrow", before, BERLIN) == before + 25 * 3600


def test_tomorrow_on_a_day_of_25_hours() -> None:
    early = at("2026-10-25T00:10:00")
    assert parse_time("tomorrow", early, BERLIN) == at("2026-10-26T00:00:00")


def test_forward_is_ahead_in_the_repeated_hour() -> None:
    second_0250 = at("2026-10-25T01:50:00", UTC)
    assert format_time(second_0250, BERLIN) == "2026-10-25T02:50:00"
    assert parse_time("02:55", second_0250, BERLIN) == at("2026-10-26T02:55:00")


@pytest.fixture
def host_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this host is Berlin's, by rule and not by a file of the system."""
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    if before is None:
        monkeypatch.delenv("TZ")
    else:
        monkeypatch.setenv("TZ", before)
    time.tzset()


@pytest.mark.usefixtures("host_zone")
@pytest.mark.parametrize(
    "text",
    ["14:30", "2026-07-01", "2026-03-29T02:30", "2026-10-25T02:30", "noon tomorrow", "now-2days", "midnight"],
)
def test_host_zone_is_the_default(text: str) -> None:
    found = parse_time(text, NOW)
    assert found == parse_time(text, NOW, BERLIN)
    assert format_time(found) == format_time(found, BERLIN)
    assert format_time_as("%F %H %z", found, NOW) == format_time_as("%F %H %z", found, NOW, BERLIN)
    assert format_time(found) == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(found))


instants = st.integers(200_000, 4_102_444_800)


@given(instants, st.sampled_from(ZONES))
@quick
def test_printed_times_are_read_back(t_s: int, tz: tzinfo) -> None:
    """To the same instant, or in the second of two equal hours to the first."""
    text = format_time(t_s, tz)
    found = read_time(text, tz)
    assert found is not None
    assert found == t_s or (0 < t_s - found <= 3600 and format_time(found, tz) == text)
    assert parse_time(text, 0, tz) == found
    assert read_time(format_time_as("%s", t_s, 0, tz), tz) == t_s


@given(instants, st.integers(0, 23), st.integers(0, 59), st.sampled_from(ZONES))
@quick
def test_clock_times_are_the_next_or_todays(now_s: int, hour: int, minute: int, tz: tzinfo) -> None:
    text = f"{hour}:{minute:02}"
    forward, back = parse_time(text, now_s, tz), parse_time(text, now_s, tz, Direction.BACK)
    assert now_s < forward <= now_s + 26 * 3600
    assert format_time(back, tz)[:10] == format_time(now_s, tz)[:10]
    shown = format_time(forward, tz)[11:16]
    assume(shown == f"{hour:02}:{minute:02}" or hour in (0, 2))  # 0 and 2: the hours that spring takes away
    assert (forward - back) % 1800 == 0


@given(st.text("0123456789-/:.T+nowday apm", max_size=20) | st.text(max_size=20))
@quick
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (
        lambda: parse_time(text, NOW, BERLIN),
        lambda: read_time(text, BERLIN),
        lambda: parse_duration(text),
    ):
        try:
            found = read()
        except TimeError as error:
            assert len(str(error).splitlines()) == 1
        else:
            assert found is None or found >= 0


@pytest.mark.parametrize("text", ["Unknown", "None", "NONE", "N/A", "(null)", "", "0"])
def test_missing_times(text: str) -> None:
    assert read_time(text, BERLIN) is None


@pytest.mark.parametrize("text", ["noon", "2026-12-01", "14:30", "2026-12-01T25:00:00", "Tomorr 03:22", "-5"])
def test_other_texts_are_not_printed_times(text: str) -> None:
    with pytest.raises(TimeError):
        read_time(text, BERLIN)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("", "2026-12-01T14:30:00"),
        ("standard", "2026-12-01T14:30:00"),
        ("no such style", "2026-12-01T14:30:00"),
        ("%s", "1796131800"),
        ("%%s %s", "%s 1796131800"),
        ("%d.%m.%Y %H:%M %Z", "01.12.2026 14:30 CET"),
        ("%H:%M%z", "14:30+0100"),
        ("relative", "Ystday 14:30"),
    ],
)
def test_slurm_time_format(style: str, expected: str) -> None:
    t_s = at("2026-12-01T14:30:00")
    assert format_time_as(style, t_s, NOW, BERLIN) == expected
    assert format_time_as(style, None, NOW, BERLIN) == "Unknown"


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ("2026-12-02T08:05:09", "08:05:09"),
        ("2026-12-03T03:22:00", "Tomorr 03:22"),
        ("2026-12-05T02:17:00", "Sat 02:17"),
        ("2026-12-08T02:17:00", "Tue 02:17"),
        ("2026-12-09T02:17:00", "9 Dec 02:17"),
        ("2026-11-30T13:14:00", "30 Nov 13:14"),
        ("2026-06-18T13:14:00", "18 Jun 13:14"),
        ("2025-12-10T13:14:00", "10 Dec 13:14"),
        ("2025-01-19T13:14:00", "19 Jan 2025"),
        ("2028-01-19T13:14:00", "19 Jan 2028"),
    ],
)
def test_relative_style(wall: str, expected: str) -> None:
    assert format_time_as("relative", at(wall), NOW, BERLIN) == expected


def test_no_time_prints_as_unknown() -> None:
    assert format_time(None) == "Unknown"


@pytest.mark.parametrize("t_s", [-1, 1e15, float("nan"), float("inf")])
def test_impossible_times_are_refused(t_s: float) -> None:
    with pytest.raises(TimeError):
        format_time(t_s, BERLIN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("0", 0),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("100:00:00", 360_000),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-12:30:15", 217_815),
        ("02-00:00:01", 172_801),
        ("365-00:00:00", 31_536_000),
        ("05:03.125", 303.125),
        ("1-00:00:00.5", 86_400.5),
        ("UNLIMITED", UNLIMITED),
        ("infinite", UNLIMITED),
        ("-1", UNLIMITED),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["1h", "1:2:3:4", "1-", "-5", "1-2-3", ":30", "1:", "1.5", "2-12.5", "Unknown", "9" * 30]
)
def test_durations_refused(text: str) -> None:
    with pytest.raises(TimeError, match="accepted are") as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["Partition_Limit", "INVALID", "Unknown", "None", "N/A", "NOT_SET", ""])
def test_missing_durations(text: str) -> None:
    assert read_duration(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "00:00:00"),
        (61.999, "00:01:01"),
        (86_399, "23:59:59"),
        (86_400, "1-00:00:00"),
        (31_536_000, "365-00:00:00"),
        (UNLIMITED, "UNLIMITED"),
    ],
)
def test_duration_text(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1, float("nan"), -UNLIMITED])
def test_no_duration(seconds: float) -> None:
    with pytest.raises(TimeError):
        format_duration(seconds)


@given(st.integers(0, 10**10) | st.just(UNLIMITED))
@quick
def test_durations_are_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
