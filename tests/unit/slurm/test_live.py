"""Jobs on nodes now: the same GPUs by squeue's JSON and by scontrol's text, in four releases."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.commands import Commands
from slurmgpu.slurm.facts import SlurmUnavailableError
from slurmgpu.slurm.live import LiveJob, running
from tests.unit.slurm.fakes import DATA, RELEASES, FakeCommands, recorded
from tests.unit.slurm.test_jobdetail import HELD, RUNNING


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return FakeCommands(tmp_path / "bin")


def ask(fake: FakeCommands) -> tuple[dict[int, LiveJob], dict[str, int]]:
    commands = Commands(str(fake.folder))
    jobs = running(commands)
    assert len({job.job_id for job in jobs}) == len(jobs)
    return {job.job_id: job for job in jobs}, dict(commands.calls)


def squeue(*jobs: dict[str, Any]) -> str:
    return json.dumps({"jobs": list(jobs), "errors": []})


@pytest.mark.parametrize("release", RELEASES)
def test_recorded(fake: FakeCommands, release: str) -> None:
    """22.05 shows all jobs whatever it is asked for: those that wait or ended are left out."""
    fake.say("squeue", (DATA / f"{release}.squeue.json").read_bytes())
    jobs, calls = ask(fake)
    assert calls == {"squeue": 1}
    assert {number: job.gpus for number, job in jobs.items() if job.gpus} == HELD
    assert set(jobs) == RUNNING
    assert {job.state for job in jobs.values()} == {"RUNNING"}
    assert all(bool(job.sluid) == (release >= "25.11") for job in jobs.values())
    assert jobs[15].nodes == ("n1", "n2")
    assert (jobs[25].user, jobs[25].account, jobs[25].partition, jobs[25].name) == ("bob", "prod", "gpu", "cpu2")
    assert all(1_796_000_000 < (job.start_s or 0) < 1_797_000_000 for job in jobs.values())


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "trouble",
    [
        "no squeue",
        "squeue: unrecognized option '--json'",
        "squeue: error: unable to find plugin: serializer/json",
        "cut",
    ],
)
def test_scontrol_is_the_other_way(fake: FakeCommands, release: str, trouble: str) -> None:
    fake.say("scontrol", recorded(f"{release}.scontrol_show_job_-d.txt"))
    if trouble == "cut":
        fake.say("squeue", (DATA / f"{release}.squeue.json").read_bytes()[:50_000])
    elif trouble != "no squeue":
        fake.say("squeue", "", 1, trouble)
    jobs, calls = ask(fake)
    assert calls["scontrol"] == 1
    assert {number: job.gpus for number, job in jobs.items() if job.gpus} == HELD
    assert set(jobs) == RUNNING
    assert jobs[15].nodes == ("n1", "n2")
    assert jobs[15].start_s
    assert bool(jobs[15].sluid) == (release >= "25.11")


def test_epoch_times_in_text(fake: FakeCommands) -> None:
    """As SLURM_TIME_FORMAT=%s has them."""
    text = recorded("26.05.scontrol_show_job_-d.txt").replace("StartTime=2026-12-01T05:47:05", "StartTime=1796104025")
    fake.say("scontrol", text)
    jobs, _ = ask(fake)
    assert jobs[15].start_s == 1796104025


def test_hostile_names_and_uneven_gpus_of_a_real_cluster(fake: FakeCommands) -> None:
    fake.say("squeue", (DATA / "22.05.squeue_hostile.json").read_bytes())
    jobs, _ = ask(fake)
    assert set(jobs) == {16, 20, 21, 25, 26}
    assert jobs[20].name == "x\x1f\n9"
    assert {number: jobs[number].gpus for number in (16, 21, 25, 26)} == {
        16: {"n1": (2, 3), "n2": (0,)},
        21: {"n4": (0,)},
        25: {"n1": (4,), "n2": (1,)},
        26: {"n1": (5, 6), "n2": (2,), "n3": (0,)},
    }
    assert (jobs[20].nodes, jobs[20].gpus) == (("n1",), {})


JOB = {"job_id": 5, "job_state": ["RUNNING"], "start_time": 1796104025, "nodes": "n[1-2]"}


@pytest.mark.parametrize(
    ("details", "gpus"),
    [
        (["gpu:1(IDX:3)", "gpu:a:2(IDX:0,2),gpu:b:1(IDX:5)"], {"n1": (3,), "n2": (0, 2, 5)}),
        (["", "gpu:1(IDX:0)"], {"n2": (0,)}),
        (["nic:2(IDX:0-1)", "shard:2(0/4,2/4),nic:1(IDX:7)"], {"n2": (1,)}),
        (["gpu:1(IDX:3)"], {}),
        (["gpu:1(IDX:3)", "gpu:1(IDX:x)"], {}),
        ([None, 7], {}),
        ([], {}),
        (None, {}),
    ],
)
def test_gpus_of_nodes(fake: FakeCommands, details: object, gpus: dict[str, tuple[int, ...]]) -> None:
    """Where the texts do not fit the nodes, nothing is guessed; the job stays."""
    fake.say("squeue", squeue(JOB | {"gres_detail": details}))
    jobs, _ = ask(fake)
    assert jobs[5].gpus == gpus
    assert jobs[5].nodes == ("n1", "n2")


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ("RUNNING", "RUNNING"),
        (["RUNNING", "CONFIGURING"], "RUNNING"),
        (["SUSPENDED"], "SUSPENDED"),
        ("COMPLETING", "COMPLETING"),
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUED"], None),
        ("CANCELLED", None),
        ([], None),
        (None, None),
    ],
)
def test_states(fake: FakeCommands, states: object, shown: str | None) -> None:
    fake.say("squeue", squeue(JOB | {"job_state": states}))
    jobs, _ = ask(fake)
    assert [job.state for job in jobs.values()] == ([shown] if shown else [])


def test_slurmctld_that_is_down(fake: FakeCommands) -> None:
    """squeue of 22.05 says so with exit status 0; scontrol is not asked the same again."""
    error = {"description": "Failed while looking for jobs", "error_number": -1, "source": "slurm_load_jobs"}
    fake.say("scontrol", "")
    for output, status in ((json.dumps({"errors": [error], "jobs": []}), 0), ("", 1)):
        fake.say(
            "squeue", output, status, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
        )
        commands = Commands(str(fake.folder))
        with pytest.raises(SlurmUnavailableError, match=r"slurm_load_jobs.*; is slurmctld up\?"):
            running(commands)
        assert commands.calls == {"squeue": 1}


def test_no_jobs(fake: FakeCommands) -> None:
    fake.say("squeue", squeue())
    assert ask(fake) == ({}, {"squeue": 1})
    (fake.folder / "squeue").unlink()
    fake.say("scontrol", "No jobs in the system\n")
    assert ask(fake) == ({}, {"scontrol": 1})


def test_neither_command(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError, match="scontrol is not in"):
        running(Commands(str(tmp_path)))


class Said(Commands):
    """Says a text without a process."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def run(self, name: str, *words: str) -> str:
        return self.text


@given(
    st.dictionaries(st.sampled_from([*JOB, "gres_detail", "step_id", "name"]), st.none() | st.text() | st.integers())
)
@settings(deadline=None)
def test_records_of_any_shape(changes: dict[str, Any]) -> None:
    for job in running(Said(squeue(JOB | changes))):
        assert job.job_id > 0
