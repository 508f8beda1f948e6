"""Job ids: every form that Slurm takes is read, printed back and told apart; everything else is refused."""

import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.jobid import (
    ALL_TASKS,
    MAX_JOB_ID,
    MAX_STEP_ID,
    MAX_TASK_ID,
    JobIdError,
    JobRef,
    Step,
    StepName,
    TaskSet,
    parse_job,
    parse_jobs,
)

quick = settings(deadline=None)

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SLUID = "s3SSM8R2626Z00"  # of a real job of Slurm 26.05


def tasks(*ranges: range, at_once: int | None = None) -> TaskSet:
    return TaskSet(ranges, at_once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123", JobRef(123)),
        ("123_4", JobRef(123, task=4)),
        ("123_0", JobRef(123, task=0)),
        ("123+1", JobRef(123, het_offset=1)),
        ("123.0", JobRef(123, step=Step(0))),
        ("123.batch", JobRef(123, step=Step(StepName.BATCH))),
        ("123.Extern", JobRef(123, step=Step(StepName.EXTERN))),
        ("123.INTERACTIVE", JobRef(123, step=Step(StepName.INTERACTIVE))),
        ("123.tbd", JobRef(123, step=Step(StepName.TBD))),
        ("123.0+1", JobRef(123, step=Step(0, component=1))),
        ("123_4.0", JobRef(123, task=4, step=Step(0))),
        ("123_4.batch", JobRef(123, task=4, step=Step(StepName.BATCH))),
        ("123+1.0", JobRef(123, het_offset=1, step=Step(0))),
        ("123+0.batch", JobRef(123, het_offset=0, step=Step(StepName.BATCH))),
        ("123_[1,3-5:2%2]", JobRef(123, tasks=tasks(range(1, 2), range(3, 6, 2), at_once=2))),
        ("123_[1,3-5,8]", JobRef(123, tasks=tasks(range(1, 2), range(3, 6), range(8, 9)))),
        ("123_[0-15:4]", JobRef(123, tasks=tasks(range(0, 16, 4)))),
        ("123_[0-9%2]", JobRef(123, tasks=tasks(range(10), at_once=2))),
        ("123_*", JobRef(123, tasks=ALL_TASKS)),
        (SLUID, JobRef(sluid=SLUID)),
        (SLUID.lower(), JobRef(sluid=SLUID)),
        (f"{SLUID}.0", JobRef(sluid=SLUID, step=Step(0))),
        (f"{SLUID}.batch", JobRef(sluid=SLUID, step=Step(StepName.BATCH))),
    ],
)
def test_forms(text: str, expected: JobRef) -> None:
    assert parse_job(text) == expected


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0123.BATCH", "123.batch"),
        ("1.tbd", "1.TBD"),
        ("1_[3,1,2]", "1_[1-3]"),
        ("1_[0-15:4]", "1_[0-12:4]"),
        ("1_[5-5]", "1_[5]"),
        ("1_[1-9,3,8-12]", "1_[1-12]"),
        ("1_[1-9,3-4]", "1_[1-9]"),
        ("1_[0-4000000]", "1_*"),
        ("S3ssm8r2626zoo", SLUID),  # o for 0, as Crockford's alphabet has it
        ("s3SSM8R2626ZOO.Extern", f"{SLUID}.extern"),
    ],
)
def test_one_printed_form(text: str, printed: str) -> None:
    assert str(parse_job(text)) == printed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "accepted are 123"),
        ("0", "job ids go from 1"),
        ("4294967294", "job ids go from 1"),
        ("99999999999", "accepted are 123"),
        ("-1", "accepted are 123"),
        (" 1", "accepted are 123"),
        ("1\n", "accepted are 123"),
        ("١٢", "accepted are 123"),  # digits, but not Slurm's
        ("1_4+1", "accepted are 123"),
        ("1+1.0+1", "no steps with components"),
        ("1.batch+1", "only numbered steps"),
        ("1.4294967295", "out of range"),
        ("1.", "accepted are 123"),
        ("1.main", "'main' is no step"),
        ("1_[1-3].0", "no step"),
        ("1_*.0", "no step"),
        ("1_[]", "no task"),
        ("1_[1,,2]", "no task"),
        ("1_[5-1]", "goes up"),
        ("1_[1-5:0]", "may not be 0"),
        ("1_[5:2]", "no task"),
        ("1_[1%]", "% must be followed by a number"),
        ("1_[1%2%3]", "% must be followed by a number"),
        ("1_[1-4000001]", "from 0 to 4000000"),
        ("1_4000001", "from 0 to 4000000"),
        ("1_[1,3,...]", "SLURM_BITSTR_LEN=0"),
        ("s3SSM8R2626Z0", "accepted are 123"),
        ("s3SSM8R2626Z0U", "13 of the characters"),
        ("sZ3SM8R2626Z00", "out of range"),
        ("s0000000000000", "out of range"),
        (f"{SLUID}_4", "accepted are 123"),
        ("x" * 10_000, "accepted are 123"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(JobIdError, match=reason.replace("%", "[%]")) as caught:
        parse_job(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250
    assert repr(text)[:20] in message


def test_lists() -> None:
    """Commas inside brackets belong to the set; empty parts, as a script leaves them, do not matter."""
    found = parse_jobs("1,2_[1,3-5],3+1.0, 4.batch,")
    assert [str(ref) for ref in found] == ["1", "2_[1,3-5]", "3+1.0", "4.batch"]


@pytest.mark.parametrize("text", ["", ",", "1,x", "1_[1,2", "1_1],2", "1_[[1]]", "1,-2"])
def test_lists_refused(text: str) -> None:
    with pytest.raises(JobIdError):
        parse_jobs(text)


def test_no_impossible_reference_can_be_made() -> None:
    for wrong in (
        {},
        {"job_id": 1, "sluid": SLUID},
        {"sluid": SLUID, "task": 1},
        {"job_id": 1, "task": 1, "het_offset": 1},
        {"job_id": 1, "tasks": ALL_TASKS, "step": Step(0)},
    ):
        with pytest.raises(JobIdError):
            JobRef(**wrong)
    for make in (
        lambda: TaskSet(()),
        lambda: TaskSet((range(5, 1),)),
        lambda: TaskSet((range(5, 1, -1),)),
        lambda: TaskSet((range(-1, 3),)),
        lambda: TaskSet((range(3),), at_once=-1),
        lambda: JobRef(1, task=-1),
        lambda: JobRef(1, het_offset=-1),
        lambda: JobRef(sluid="x"),
        lambda: Step(-1),
        lambda: Step(0, component=-1),
    ):
        with pytest.raises(JobIdError):
            make()


def test_four_million_tasks_are_not_made() -> None:
    tracemalloc.start()
    ref = parse_job("1_[0-4000000:2,1-3999999:2]")
    assert ref.tasks is not None
    first = list(itertools.islice(ref.tasks, 5))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first == [0, 1, 2, 3, 4]
    assert 3_999_999 in ref.tasks
    assert 4_000_001 not in ref.tasks
    assert peak_bytes < 100_000


task_ids = st.integers(0, 60) | st.integers(0, MAX_TASK_ID)
ranges = st.builds(
    lambda first, count, step: range(first, min(first + count * step, MAX_TASK_ID + 1), step),
    st.integers(0, 60) | st.integers(0, MAX_TASK_ID - 100),
    st.integers(1, 20),
    st.integers(1, 5),
)
task_sets = st.builds(
    TaskSet, st.lists(ranges, min_size=1, max_size=6).map(tuple), st.none() | st.integers(0, 1_000_000)
)
steps = st.builds(Step, st.sampled_from(StepName)) | st.builds(
    Step, st.integers(0, MAX_STEP_ID), st.none() | st.integers(0, 128)
)
plain_steps = steps.filter(lambda step: step.component is None)
job_ids = st.integers(1, MAX_JOB_ID)
sluids = st.integers(1, 2**64 - 1).map(
    lambda n: "s" + "".join(CROCKFORD[n >> shift & 31] for shift in range(60, -1, -5))
)
refs = st.one_of(
    st.builds(JobRef, job_ids, step=st.none() | steps),
    st.builds(JobRef, job_ids, task=task_ids, step=st.none() | steps),
    st.builds(JobRef, job_ids, tasks=task_sets | st.just(ALL_TASKS)),
    st.builds(JobRef, job_ids, het_offset=st.integers(0, 127), step=st.none() | plain_steps),
    st.builds(JobRef, sluid=sluids, step=st.none() | steps),
)


@given(refs)
@quick
def test_what_is_printed_is_read_back(ref: JobRef) -> None:
    assert parse_job(str(ref)) == ref
    assert parse_job(str(ref).upper().replace("S", "s", 1 if ref.sluid else 0)) == ref
    assert str(parse_job(str(ref))) == str(ref)


@given(st.lists(refs, min_size=1, max_size=8))
@quick
def test_lists_are_read_back(wanted: list[JobRef]) -> None:
    assert parse_jobs(",".join(map(str, wanted))) == wanted


@given(st.lists(ranges, min_size=1, max_size=6))
@quick
def test_task_sets_hold_what_their_ranges_hold(parts: list[range]) -> None:
    expected = sorted({task for part in parts for task in part})
    found = TaskSet(tuple(parts))
    assert list(found) == expected
    assert len(found) == len(expected)
    assert all(task in found for task in expected)
    assert expected[-1] + 1 not in found
    assert "1" not in found


@given(st.text("0123456789_+.[]-:%*,sSbatch\n é", max_size=24) | st.text(max_size=24))
@quick
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        ref = parse_job(text)
    except JobIdError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert parse_job(str(ref)) == ref
