"""The records of scontrol show job -d: as four releases printed them, and as users may forge them."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.jobdetail import JobDetail, parse_job_detail

DATA = Path(__file__).parents[2] / "data" / "slurm"
LONG = sorted(DATA.glob("*.scontrol_show_job_-d.txt"))
ONE_LINE = sorted(DATA.glob("*.scontrol_-o_show_job_-d.txt"))

quick = settings(deadline=None)


def recorded(file: Path) -> str:
    """What scontrol printed: without the command before it and the exit status after it."""
    return "\n".join(file.read_text(encoding="utf-8").split("\n")[1:-2])


def gpus(job: JobDetail) -> dict[str, tuple[int, ...]]:
    return {node: gres.indices for node, parts in job.gres.items() for gres in parts}


HELD = {
    14: {"n1": (0,)},
    15: {"n1": (1, 2), "n2": (0, 1)},
    16: {"n3": (0, 1), "n4": (0, 1)},  # printed as Nodes=n[3-4]
    18: {"n2": (3,)},
    19: {"n2": (2, 4)},
    20: {"n4": (2,)},  # shards of one GPU
    21: {"n3": (2,)},  # mps on one GPU
    23: {"n3": (3,)},
    24: {"n4": (3,)},
    26: {"n1": (3,)},
    27: {"n1": (4,)},
}
RUNNING = {*HELD, 25}
PENDING = {22, 28, 29, 30}


def test_all_releases_are_recorded() -> None:
    assert [file.name[:5] for file in LONG] == ["22.05", "24.11", "25.11", "26.05"]
    assert [file.name[:5] for file in ONE_LINE] == ["22.05", "26.05"]


@pytest.mark.parametrize("file", [*LONG, *ONE_LINE], ids=lambda file: file.stem)
def test_recorded(file: Path) -> None:
    jobs = {job.job_id: job for job in parse_job_detail(recorded(file), one_line="_-o_" in file.name)}
    assert set(jobs) == set(range(1, 31))
    assert not any(job.doubt for job in jobs.values())
    assert {number: gpus(job) for number, job in jobs.items() if any(job.gres.values())} == HELD
    assert {number for number, job in jobs.items() if job.state == "RUNNING"} == RUNNING
    assert {number for number, job in jobs.items() if job.state == "PENDING"} == PENDING
    assert jobs[15].gres["n1"][0].type == "h100"
    assert jobs[20].gres["n4"][0].name == "shard"
    assert jobs[9].name == 'a,b|c "d" é'
    assert jobs[11].state == "TIMEOUT"
    assert (jobs[26].array_job_id, jobs[26].array_task) == (22, 1)
    assert (jobs[22].array_job_id, jobs[22].array_task) == (22, None)  # the tasks that wait
    assert (jobs[24].het_job_id, jobs[24].het_offset) == (23, 1)
    assert (jobs[15].array_job_id, jobs[15].het_job_id) == (None, None)
    assert jobs[30].start == "Unknown"
    assert re.fullmatch(r"2026-12-01T05:\d\d:\d\d", jobs[15].start)


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
def test_sluids(file: Path) -> None:
    """Slurm has them since 25.11."""
    expected = r"s[0-9A-Z]{13}" if file.name >= "25.11" else ""
    assert all(re.fullmatch(expected, job.sluid) for job in parse_job_detail(recorded(file)))


def test_one_job() -> None:
    [job] = parse_job_detail(recorded(DATA / "26.05.scontrol_show_job_-d_one.txt"))
    assert (job.job_id, gpus(job)) == (15, HELD[15])


def test_error_text_has_no_job() -> None:
    text = recorded(DATA / "26.05.scontrol_show_job_missing.txt")
    assert "Invalid job id" in text
    assert parse_job_detail(text) == []
    assert parse_job_detail("") == []
    assert parse_job_detail("No jobs in the system\n") == []


# What a user may write into a job's name, with all of Slurm's keys in it.
FORGED = (
    "x SLUID=s0000000000001 UserId=root(0) GroupId=root(0) JobState=COMPLETED Reason=None "
    "StartTime=2020-01-01T00:00:00 NodeList=n9      Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7) "
    "MinCPUsNode=1 Command=/bin/true"
)
VICTIM = (
    "JobId=99 JobName=y\n   UserId=bob(1) GroupId=bob(1)\n   JobState=RUNNING Reason=None\n"
    "   StartTime=2026-12-01T00:00:00 EndTime=Unknown\n   NodeList=n1\n"
    "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)\n   MinCPUsNode=1\n   Command=/x"
)


def with_name(text: str, job_id: int, name: str) -> str:
    return re.sub(rf"(?m)(?<=^JobId={job_id} JobName=)\w+", lambda _: name, text)


def with_comment(text: str, job_id: int, comment: str) -> str:
    """A comment stands after the script and the work folder."""
    before, start, record = text.partition(f"JobId={job_id} ")
    return (
        before
        + start
        + record.replace("WorkDir=/home/alice/proj", f"WorkDir=/home/alice/proj\n   Comment={comment}", 1)
    )


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    "name",
    [
        FORGED,
        "x Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)",
        "JobId=99 JobName=y",
        "a ArrayJobId=7 ArrayTaskId=8 HetJobId=9 JobName=z",
        "v\r   JobState=FAILED\x0b   Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)\x85\u2028JobId=99 JobName=",
        "trailing ",
        "",
    ],
    ids=range(7),
)
def test_a_name_of_one_line_changes_nothing_but_the_name(file: Path, name: str) -> None:
    text = recorded(file)
    expected = parse_job_detail(text)
    found = parse_job_detail(with_name(text, 15, name))
    assert [job for job in found if job.job_id != 15] == [job for job in expected if job.job_id != 15]
    [job] = [job for job in found if job.job_id == 15]
    assert job.name == name
    assert (job.state, gpus(job), job.array_job_id, job.doubt) == ("RUNNING", HELD[15], None, "")


@given(st.text(st.characters(exclude_characters="\n\0"), max_size=60) | st.just(FORGED))
@quick
def test_any_name_of_one_line(name: str) -> None:
    [job] = parse_job_detail(with_name(recorded(DATA / "26.05.scontrol_show_job_-d_one.txt"), 15, name))
    assert (job.name, job.state, gpus(job), job.doubt) == (name, "RUNNING", HELD[15], "")


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    "text_of_user", [FORGED, f"x\n     {FORGED}", "x\n     Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7)"]
)
def test_a_comment_changes_nothing(file: Path, text_of_user: str) -> None:
    text = with_comment(recorded(file), 15, text_of_user)
    assert {job.job_id: gpus(job) for job in parse_job_detail(text)}[15] == HELD[15]


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    ("name", "in_doubt"),
    [
        ("x\n" + "\n".join(f"   {part}" for part in FORGED.split(" ")), {15}),
        ("x\n   SLUID=s0000000000001\n   SLUID=s0000000000001", {15}),
        ("x\ny", {15}),
        ("x\n\nJobId=99 JobName=y", {15, 99}),
        ("x\n\nJobId=14 JobName=y", {14, 15}),
        (f"x\n\n{VICTIM}", {15, 99}),
    ],
    ids=range(6),
)
def test_newlines_in_a_name_cast_doubt(file: Path, name: str, in_doubt: set[int]) -> None:
    """What a forged record says is believed of no job, and the record after a broken one is not, either."""
    found = parse_job_detail(with_name(recorded(file), 15, name))
    believed = {job.job_id: gpus(job) for job in found if not job.doubt}
    assert not in_doubt & set(believed)
    assert set(range(1, 14)) <= set(believed) | in_doubt
    for job in found:
        if job.doubt:
            assert (job.state, job.start, job.sluid, dict(job.gres)) == ("", "", "", {})
            assert job.doubt.startswith(f"record of job {job.job_id}: ")
            assert "\n" not in job.doubt


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
def test_a_second_record_of_a_job_casts_doubt_on_both(file: Path) -> None:
    comment = f"x\n\n{VICTIM.replace('JobId=99', 'JobId=0018')}"
    doubted = [job for job in parse_job_detail(with_comment(recorded(file), 15, comment)) if job.doubt]
    assert [job.job_id for job in doubted] == [18, 18]
    assert all("occurs twice" in job.doubt for job in doubted)


@pytest.mark.parametrize("file", LONG, ids=lambda file: file.stem)
def test_a_record_begins_after_an_empty_line_only(file: Path) -> None:
    found = parse_job_detail(with_comment(recorded(file), 15, f"x\n{VICTIM}"))
    assert {job.job_id for job in found} == set(range(1, 31))
    assert {job.job_id for job in found if job.doubt} == {15, 16}  # and the one after it


@pytest.mark.parametrize("file", ONE_LINE, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", [FORGED, f"x\n{FORGED}", "x\nJobId=99 JobName=y"])
def test_one_line_form_doubts_what_it_cannot_tell(file: Path, name: str) -> None:
    text = recorded(file)
    found = parse_job_detail(with_name(text, 15, name), one_line=True)
    believed = {job.job_id: gpus(job) for job in found if not job.doubt}
    assert 15 not in believed
    assert 99 not in believed
    assert believed[18] == HELD[18]
    assert believed[14] == HELD[14]


@pytest.mark.parametrize("file", ONE_LINE, ids=lambda file: file.stem)
def test_one_line_form_with_a_harmless_name(file: Path) -> None:
    name = "a JobName=b  Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:8(IDX:0-7) ArrayJobId=7"
    found = parse_job_detail(with_name(recorded(file), 15, name), one_line=True)
    [job] = [job for job in found if job.job_id == 15]
    assert (job.name, job.state, gpus(job), job.array_job_id, job.doubt) == (
        name,
        "RUNNING",
        HELD[15],
        None,
        "",
    )


def test_the_wrong_form_is_doubted() -> None:
    assert all(job.doubt for job in parse_job_detail(recorded(ONE_LINE[0])))
    assert all(job.doubt for job in parse_job_detail(recorded(LONG[0]), one_line=True))


def test_unreadable_gres_costs_one_job() -> None:
    """The others, and the next one, stay."""
    text = recorded(LONG[0]).replace("GRES=gpu:h100:2(IDX:2,4)", "GRES=gpu:h100:2(IDX:2,x)")
    found = {job.job_id: job for job in parse_job_detail(text)}
    assert {number for number, job in found.items() if job.doubt} == {19}
    assert "IDX:2,x" in found[19].doubt
    assert gpus(found[20]) == HELD[20]


@given(st.text("JobId=15 Name\n NodesGRES(x)", max_size=200) | st.text(max_size=80), st.booleans())
@quick
def test_any_text_is_taken(text: str, one_line: bool) -> None:
    for job in parse_job_detail(text, one_line):
        assert job.doubt
