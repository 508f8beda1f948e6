"""What sacct prints of runs, in both forms: as four releases printed it, and as users may forge it."""

import copy
import json
import re
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.facts import JobFacts, NoAnswerReadError, SlurmUnavailableError
from slurmgpu.slurm.sacct import COLUMNS, LAST_COLUMN, NEWER_COLUMNS, parse_json, parse_text
from slurmgpu.slurm.times import read_time
from tests.unit.slurm.fakes import DATA, RELEASES, recorded

D = "\x1f0123456789abcdef\x1f"
OLD = (*COLUMNS, LAST_COLUMN)
NEW = (*COLUMNS, *NEWER_COLUMNS, LAST_COLUMN)

quick = settings(deadline=None)

# name, array, het, state, exit, limit, nodes, GPUs; by raw id and place among the runs of that id
EXPECTED: dict[tuple[int, int], tuple[object, ...]] = {
    (1, 0): ("done1", (None, None), (None, None), "COMPLETED", (0, 0), 525600 * 60, "n1", 1),
    (2, 0): ("fail3", (None, None), (None, None), "FAILED", (3, 0), 525600 * 60, "n1", 1),
    (3, 0): ("segv", (None, None), (None, None), "FAILED", (0, 11), 525600 * 60, "n1", 1),
    (4, 0): ("arr", (4, 3), (None, None), "COMPLETED", (0, 0), 525600 * 60, "n2", 1),
    (5, 0): ("het", (None, None), (5, 0), "COMPLETED", (0, 0), None, "n1", 1),
    (6, 0): ("het", (None, None), (5, 1), "COMPLETED", (0, 0), None, "n2", 2),
    (7, 0): ("rq", (None, None), (None, None), "REQUEUED", (0, 0), ..., "n2", 1),
    (7, 1): ("rq", (None, None), (None, None), "COMPLETED", (0, 0), ..., "n2", 1),
    (8, 0): ("cancelme", (None, None), (None, None), "CANCELLED", (0, 0), 525600 * 60, "n2", 1),
    (9, 0): ("a,b|c `d` é", (None, None), (None, None), "COMPLETED", (0, 0), 525600 * 60, "n1", 1),
    (10, 0): ("cpu", (None, None), (None, None), "COMPLETED", (0, 0), 525600 * 60, "n2", None),
    (11, 0): ("tmo", (None, None), (None, None), "TIMEOUT", (0, 0), 60, "n3", 1),
    (15, 0): ("ddp", (None, None), (None, None), "RUNNING", (None, None), 525600 * 60, "n[1-2]", 4),
    (20, 0): ("shard", (None, None), (None, None), "RUNNING", (None, None), 525600 * 60, "n4", None),
    (24, 0): ("het2", (None, None), (23, 1), "RUNNING", (None, None), None, "n4", 1),
}


def summary(run: JobFacts) -> tuple[object, ...]:
    array, het = (run.array_job_id, run.array_task), (run.het_job_id, run.het_offset)
    code = (run.exit_code, run.exit_signal)
    return (run.name, array, het, run.state, code, run.time_limit_s, run.nodelist, run.gpus)


def by_place(runs: list[JobFacts]) -> dict[tuple[int, int], JobFacts]:
    found: dict[tuple[int, int], JobFacts] = {}
    for run in sorted(runs, key=lambda run: run.start_s or 0):
        found[(run.job_id, sum(job_id == run.job_id for job_id, _ in found))] = run
    return found


def rows(release: str) -> list[dict[str, str]]:
    """The recorded text in the columns that we ask for, times as SLURM_TIME_FORMAT=%s has them."""
    header, *lines = recorded(f"{release}.sacct_-P_-X_-D.txt").split("\n")
    columns = header.split("|")
    extra = [line.split("|") for line in recorded(f"{release}.sacct_-P_Restarts.txt").split("\n")[1:]]
    newer = {(words[0], words[2]): {"Restarts": words[3], "SLUID": words[6]} for words in extra}
    found = []
    for line in lines:
        words = line.split("|")
        spare = len(words) - len(columns)  # a name with pipes
        words[2 : 3 + spare] = ["|".join(words[2 : 3 + spare])]
        row = dict(zip(columns, words, strict=True)) | {"QOS": "normal"}
        for key in ("Submit", "Start", "End"):
            row[key] = str(read_time(row[key], UTC) or "Unknown")
        found.append(row | newer.get((row["JobIDRaw"], row["State"]), {}))
    return found


def as_text(release: str, columns: tuple[str, ...], delimiter: str = D) -> str:
    return "".join("".join(f"{row[key]}{delimiter}" for key in columns) + "\n" for row in rows(release))


def columns_of(release: str) -> tuple[str, ...]:
    return OLD if release == "22.05" else NEW


def from_text(release: str) -> list[JobFacts]:
    return parse_text(as_text(release, columns_of(release)), columns_of(release), D)


def from_json(release: str) -> list[JobFacts]:
    return parse_json((DATA / f"{release}.sacct.json").read_text(encoding="utf-8"))


def check(runs: list[JobFacts], ignored_exit: set[int]) -> None:
    found = by_place(runs)
    for place, expected in EXPECTED.items():
        shown = summary(found[place])
        for at, value in enumerate(expected):
            if value is not ... and not (at == 4 and place[0] in ignored_exit):
                assert shown[at] == value, place
    assert all(run.user == ("bob" if run.account == "prod" else "alice") for run in runs)
    assert {run.account for run in runs} == {"research", "prod"}
    assert {(run.partition, run.qos) for run in runs} == {("gpu", "normal")}
    for run in runs:
        assert run.is_final == (run.state not in ("RUNNING", "PENDING"))
        assert (run.end_s is None) == (not run.is_final)
        assert (run.start_s is None) == (run.state == "PENDING")
        assert (run.exit_code is None) == (run.exit_signal is None) == (not run.is_final)
        assert not run.end_s or (run.submit_s or 0) <= (run.start_s or 0) <= run.end_s


@pytest.mark.parametrize("release", RELEASES)
def test_text(release: str) -> None:
    runs = from_text(release)
    check(runs, set())
    assert all(bool(run.sluid) == (release != "22.05") for run in runs)
    found = by_place(runs)
    assert (found[7, 0].restarts, found[7, 1].restarts) == ((None, None) if release == "22.05" else (0, 1))


@pytest.mark.parametrize("release", RELEASES)
def test_json(release: str) -> None:
    """In 22.05 exit codes are 0 for whatever exit status, which is why it is not asked for JSON."""
    runs = from_json(release)
    check(runs, {2} if release == "22.05" else set())
    assert all(bool(run.sluid) == (release == "26.05") for run in runs)
    found = by_place(runs)
    assert (found[7, 0].restarts, found[7, 1].restarts) == ((None, None) if release == "22.05" else (0, 1))


@pytest.mark.parametrize("release", RELEASES[1:])
def test_both_forms_say_the_same(release: str) -> None:
    """But for the SLUID, which the JSON has from 26.05 on, and jobs that were in one recording alone."""
    texts, jsons = by_place(from_text(release)), by_place(from_json(release))
    assert len(texts.keys() & jsons.keys()) > 24
    for place in texts.keys() & jsons.keys():
        assert replace(texts[place], sluid=None) == replace(jsons[place], sluid=None)
        assert jsons[place].sluid in (None, texts[place].sluid)


def test_waiting_tasks_of_an_array() -> None:
    """One record, with the array's raw id, which is the last task's later."""
    [waiting] = [run for run in from_text("22.05") if run.job_id == 22]
    assert (waiting.array_job_id, waiting.array_task, waiting.state, waiting.start_s) == (22, None, "PENDING", None)
    assert (waiting.nodelist, waiting.gpus, waiting.time_limit_s, waiting.exit_code) == ("", None, None, None)


HOSTILE = {
    1: "plain",
    2: "a|b\x1fc",
    3: "x\n1|forged\x1fRUNNING",
    4: "tab\tcr\rvt\x0b",
    5: "???bad utf8",
    6: "q`uo'te`\\back",
    7: "\x01\x02\x1b[31mred",
    8: "nl\n",
    9: "allocation",
    10: "é",
    11: "  spaces  ",
    12: "%s%n$HOME",
    13: "A" * 255,  # of 1000: the column of the accounting database has no more
    14: "x\n   JobState=FAILED\n\nJobId=1 JobName=f",
    15: "{`a`:1}",
    20: "x\x1f\n9",
}


def test_hostile_names_of_a_real_cluster() -> None:
    runs = parse_text((DATA / "22.05.sacct_hostile.txt").read_bytes().decode(), OLD, D)
    assert len(runs) == 31
    assert {run.job_id: run.name for run in runs if run.job_id in HOSTILE} == HOSTILE
    assert {run.user for run in runs} == {"alice"}
    [exit_200] = [run for run in runs if run.job_id == 17]
    assert (exit_200.exit_code, exit_200.exit_signal) == (72, 0)  # as sacct has it
    assert [(run.state, run.start_s) for run in runs if run.job_id == 30][:1] == [("REQUEUED", 1796136572)]


def row_text(columns: tuple[str, ...], **values: str) -> str:
    return "".join(f"{values.get(column, '')}{D}" for column in columns) + "\n"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4))
@quick
def test_any_name_is_a_name(names: list[str]) -> None:
    text = "".join(
        row_text(OLD, JobIDRaw=str(at), JobID=str(at), State="RUNNING", JobName=name)
        for at, name in enumerate(names, start=1)
    )
    assert [(run.job_id, run.name) for run in parse_text(text, OLD, D)] == list(enumerate(names, start=1))


@pytest.mark.parametrize(
    "forged", [row_text(OLD, JobIDRaw="2", JobID="2", State="FAILED").replace(D, d) for d in ("|", "\x1f", "\x1f\x1f")]
)
def test_a_name_cannot_be_a_record(forged: str) -> None:
    text = row_text(OLD, JobIDRaw="1", JobID="1", State="RUNNING", JobName=f"x\n{forged}")
    [run] = parse_text(text, OLD, D)
    assert (run.job_id, run.state, run.name) == (1, "RUNNING", f"x\n{forged}")


@pytest.mark.parametrize("text", ["x", "1\n", f"1{D}2{D}\n", row_text(OLD, JobIDRaw="1")[:-20], "No jobs\n" * 3])
def test_other_text_is_not_read(text: str) -> None:
    with pytest.raises(NoAnswerReadError, match="unreadable answer"):
        parse_text(text, OLD, D)


def test_empty_answers() -> None:
    assert parse_text("", OLD, D) == []
    assert parse_text("\n", OLD, D) == []
    assert parse_json('{"jobs":[],"errors":[]}') == []


@pytest.mark.parametrize(
    ("field", "text", "attribute", "value"),
    [
        ("State", "CANCELLED by 1003", "state", "CANCELLED"),
        ("State", "", "state", ""),
        ("TimelimitRaw", "90", "time_limit_s", 5400),
        ("TimelimitRaw", "UNLIMITED", "time_limit_s", None),
        ("TimelimitRaw", "Partition_Limit", "time_limit_s", None),
        ("NodeList", "None assigned", "nodelist", ""),
        ("Start", "Unknown", "start_s", None),
        ("Start", "None", "start_s", None),
        ("Start", "0", "start_s", None),
        ("Start", "nonsense", "start_s", None),
        ("End", "1796104267", "end_s", 1796104267),
        ("JobID", "4_7", "array_task", 7),
        ("JobID", "4_[1,3-5:2%2]", "array_job_id", 4),
        ("JobID", "5+2", "het_offset", 2),
        ("AllocTRES", "billing=1,cpu=1,gres/gpu:a=1,gres/gpu:b=2,gres/gpu=3", "gpus", 3),
        ("AllocTRES", "cpu=1,gres/gpu:a=1,gres/gpu:b=2", "gpus", 3),
        ("AllocTRES", "cpu=1,gres/gpumem=80G", "gpus", None),
        ("AllocTRES", "cpu=1", "gpus", None),
        ("AllocTRES", "?", "gpus", None),
        ("SLUID", "", "sluid", None),
        ("Restarts", "", "restarts", None),
    ],
)
def test_fields_of_text(field: str, text: str, attribute: str, value: object) -> None:
    values = {"JobIDRaw": "9", "JobID": "9", "State": "RUNNING"} | {field: text}
    [run] = parse_text(row_text(NEW, **values), NEW, D)
    assert getattr(run, attribute) == value


@pytest.mark.parametrize("number", ["", "9.batch", "x", "-1", "12345678901"])
def test_records_without_a_raw_id_are_left_out(number: str) -> None:
    text = row_text(OLD, JobIDRaw=number) + row_text(OLD, JobIDRaw="2", JobID="2")
    assert [run.job_id for run in parse_text(text, OLD, D)] == [2]


def number(value: int, is_set: bool = True, infinite: bool = False) -> dict[str, object]:
    return {"set": is_set, "infinite": infinite, "number": value}


@pytest.mark.parametrize(
    ("part", "attribute", "value"),
    [
        ({"state": {"current": ["PENDING", "REQUEUED"]}}, "state", "REQUEUED"),
        ({"state": {"current": ["RUNNING", "RESIZING"]}}, "state", "RESIZING"),
        ({"state": {"current": "CANCELLED by 1003"}}, "state", "CANCELLED"),
        ({"state": {"current": []}}, "state", ""),
        ({"time": {"limit": number(0, False, True)}}, "time_limit_s", None),
        ({"time": {"limit": number(90)}}, "time_limit_s", 5400),
        ({"time": {"limit": None}}, "time_limit_s", None),
        ({"time": {"limit": 4294967295}}, "time_limit_s", None),
        ({"time": {"start": number(5, False)}}, "start_s", None),
        ({"time": {"start": -2}}, "start_s", None),
        ({"time": {"end": 0}}, "end_s", None),
        ({"nodes": "None assigned"}, "nodelist", ""),
        ({"user": None, "association": {"user": "carol"}}, "user", "carol"),
        ({"user": "bob", "association": {"user": ""}}, "user", "bob"),
        ({"name": "\ud800x\u0001"}, "name", "?x\x01"),
        ({"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": -2}]}}, "gpus", None),
        ({"tres": {"allocated": [{"type": "gres", "name": "gpu:a", "count": 2}]}}, "gpus", 2),
    ],
)
def test_fields_of_json(part: dict[str, Any], attribute: str, value: object) -> None:
    answer = {"jobs": [{"job_id": 9} | part], "errors": []}
    [run] = parse_json(json.dumps(answer))
    assert getattr(run, attribute) == value


def test_errors_in_json() -> None:
    """sacct of 22.05 says so with exit status 0 and without ``jobs``."""
    error = {"description": "Unable to parse time format", "error": "Query empty", "source": "start_time"}
    with pytest.raises(SlurmUnavailableError, match=r"^sacct: start_time: Unable to parse time format: Query empty;"):
        parse_json(json.dumps({"meta": {}, "errors": [error]}))
    assert len(parse_json(json.dumps({"jobs": [{"job_id": 1}], "errors": [error]}))) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"jobs":3}', '{"jobs":[3]}', "[" * 100_000])
def test_other_json_is_not_read(text: str) -> None:
    with pytest.raises(NoAnswerReadError):
        parse_json(text)


JOB = json.loads((DATA / "26.05.sacct.json").read_text(encoding="utf-8"))["jobs"][4]
PATHS = [(key,) for key in JOB] + [
    (key, inner) for key, value in JOB.items() if isinstance(value, dict) for inner in value
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "number", "id", "x"]), inner),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(PATHS), ANYTHING), max_size=4))
@quick
def test_json_of_any_shape(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    """A value that is not what it was costs that value, not the answer."""
    job = copy.deepcopy(JOB)
    for path, value in changes:
        place = job
        for key in path[:-1]:
            place = place[key] if isinstance(place[key], dict) else {}
        place[path[-1]] = value
    for run in parse_json(json.dumps({"jobs": [job]})):
        assert run.job_id > 0
        assert re.fullmatch(r"\S*", run.state)
