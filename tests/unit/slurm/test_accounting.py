"""Which question the accounting is asked, and that one is enough."""

import json
import os
import time
from pathlib import Path

import pytest

from slurmgpu.slurm.accounting import MAX_IDS, Accounting
from slurmgpu.slurm.commands import Commands
from slurmgpu.slurm.facts import SlurmUnavailableError
from tests.unit.slurm.fakes import DATA, RELEASES, FakeCommands
from tests.unit.slurm.test_sacct import as_text, columns_of


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return FakeCommands(tmp_path / "bin")


def accounting(fake: FakeCommands, use_pyslurm: bool = False) -> Accounting:
    return Accounting(Commands(str(fake.folder)), use_pyslurm)


def put(fake: FakeCommands, release: str, with_json: bool = True) -> None:
    recorded = (DATA / f"{release}.sacct.json").read_text(encoding="utf-8")
    fake.put_sacct(release, recorded if with_json else None, as_text(release, columns_of(release), "\x1e"))


@pytest.mark.parametrize("release", RELEASES)
def test_one_question(fake: FakeCommands, release: str) -> None:
    """Text in 22.05, whose JSON has no exit codes, JSON from 24.11 on; the fields are asked for once."""
    put(fake, release)
    asked = accounting(fake)
    assert asked.source == ("sacct" if release == "22.05" else "sacct --json")
    runs = asked.runs([2, 7, 12, 99999], 0)
    assert sorted((run.job_id, run.state) for run in runs) == [
        (2, "FAILED"),
        (7, "COMPLETED"),
        (7, "REQUEUED"),
        (12, "COMPLETED"),
    ]
    assert next(run.exit_code for run in runs if run.job_id == 2) == 3
    words = fake.asked("sacct")
    assert words[:8] == ["--local", "-a", "-X", "-D", "-S", "uts1000000", "-j", "2,7,12,99999"]
    assert ("-n" in words) != ("--json" in words)
    asked.runs([1], 0)
    assert asked.commands.calls == {"sacct": 3}


def test_delimiter_is_new_in_every_question(fake: FakeCommands) -> None:
    put(fake, "22.05")
    asked = accounting(fake)
    seen = set()
    for _ in range(3):
        assert len(asked.runs([1], 0)) == 1
        [delimiter] = [word for word in fake.asked("sacct") if word.startswith("--delimiter=")]
        seen.add(delimiter)
        assert len(delimiter) == len("--delimiter=") + 18
    assert len(seen) == 3


@pytest.mark.parametrize("release", RELEASES)
def test_only_what_was_asked(fake: FakeCommands, release: str) -> None:
    """sacct answers for the leader of an array or a het job with all members."""
    put(fake, release)
    assert {run.job_id for run in accounting(fake).runs([4, 5], 0)} == {4, 5}


@pytest.mark.parametrize("release", RELEASES)
def test_runs_that_ended_before(fake: FakeCommands, release: str) -> None:
    put(fake, release)
    asked = accounting(fake)
    both = asked.runs([7], 0)
    later_s = max(run.end_s or 0 for run in both)
    assert [run.state for run in asked.runs([7], later_s)] == ["COMPLETED"]
    assert asked.runs([7], later_s + 1) == []
    assert [run.state for run in asked.runs([15], later_s + 10**6)] == ["RUNNING"]


def test_newest_first(fake: FakeCommands) -> None:
    """The parts of a resized run have one start, as measured with 22.05, and only the last one tells its end."""
    parts = [("RESIZING", 200, 100), ("COMPLETED", 900, 300), ("RESIZING", 300, 200)]
    jobs = [
        {"job_id": 31, "state": {"current": [state]}, "time": {"start": 100, "end": end_s, "submission": submit_s}}
        for state, end_s, submit_s in parts
    ]
    fake.put_sacct("26.05", json.dumps({"jobs": jobs}))
    runs = accounting(fake).runs([31], 0)
    assert [(run.state, run.start_s, run.end_s) for run in runs] == [
        ("COMPLETED", 100, 900),
        ("RESIZING", 100, 300),
        ("RESIZING", 100, 200),
    ]
    assert [run.is_final for run in runs] == [True, False, False]
    jobs[1] |= {"time": {"start": 100, "end": 0}}
    fake.put_sacct("26.05", json.dumps({"jobs": jobs}))
    assert accounting(fake).runs([31], 0)[0].end_s is None


def test_start_of_the_window(fake: FakeCommands) -> None:
    """sacct takes neither very early times nor a start after its own clock."""
    put(fake, "22.05")
    asked = accounting(fake)
    for since_s, least_s in ((-5, 10**6), (1_700_000_000, 1_700_000_000), (1 << 40, 1_700_000_000)):
        asked.runs([1], since_s)
        words = fake.asked("sacct")
        start_s = int(words[words.index("-S") + 1].removeprefix("uts"))
        assert least_s <= start_s <= time.time()


def test_as_many_ids_as_allowed(fake: FakeCommands) -> None:
    """All of them fit into one argument."""
    put(fake, "22.05")
    ids = range(4_294_900_000, 4_294_900_000 + MAX_IDS)
    asked = accounting(fake)
    assert asked.runs(ids, 0) == []
    assert asked.commands.calls == {"sacct": 2}
    assert len(max(fake.asked("sacct"), key=len)) < 128 << 10
    with pytest.raises(ValueError, match="2001 job ids at once; at most 2000"):
        asked.runs(range(1, MAX_IDS + 2), 0)


def test_no_ids_are_no_question(fake: FakeCommands) -> None:
    asked = accounting(fake)
    assert asked.runs([], 0) == []
    assert not asked.commands.calls


def test_without_a_json_serializer(fake: FakeCommands, caplog: pytest.LogCaptureFixture) -> None:
    """One try, then text for good."""
    put(fake, "26.05", with_json=False)
    asked = accounting(fake)
    assert [run.exit_code for run in asked.runs([2], 0)] == [3]
    assert [run.sluid for run in asked.runs([2], 0)] == ["s3SSM8R2627700"]
    assert asked.source == "sacct"
    assert asked.commands.calls == {"sacct": 4}
    assert "unable to find plugin: serializer/json; sacct is asked for text from now on" in caplog.text


def test_json_that_is_too_large(fake: FakeCommands) -> None:
    """Users decide how large it is: the text has what we need of it only."""
    put(fake, "25.11")
    asked = accounting(fake)
    asked.commands.max_output_bytes = 50_000
    assert [run.name for run in asked.runs([2], 0)] == ["fail3"]
    assert asked.source == "sacct"


@pytest.mark.parametrize("release", RELEASES)
def test_accounting_that_is_down(fake: FakeCommands, release: str) -> None:
    """Is not asked a second time in another form, and is asked in the same way when it is up again."""
    put(fake, release)
    asked = accounting(fake)
    source = asked.source
    fake.say("sacct", "", 1, "sacct: error: slurmdbd: Connection refused\n")
    with pytest.raises(SlurmUnavailableError, match=r"slurmdbd: Connection refused; is slurmdbd up\?"):
        asked.runs([1], 0)
    assert asked.commands.calls == {"sacct": 2}
    put(fake, release)
    assert len(asked.runs([1], 0)) == 1
    assert asked.source == source


def test_accounting_that_is_down_in_json(fake: FakeCommands) -> None:
    put(fake, "26.05")
    asked = accounting(fake)
    assert asked.source == "sacct --json"
    error = {"description": "Failed", "error": "Connection refused", "source": "slurmdb_jobs_get"}
    fake.say("sacct", json.dumps({"jobs": [], "errors": [error]}))
    with pytest.raises(SlurmUnavailableError, match=r"slurmdb_jobs_get: Failed: Connection refused; is slurmdbd up\?"):
        asked.runs([1], 0)
    assert asked.commands.calls == {"sacct": 2}


def test_accounting_that_is_disabled(fake: FakeCommands) -> None:
    put(fake, "22.05")
    asked = accounting(fake)
    assert asked.source == "sacct"
    fake.say("sacct", "", 1, "Slurm accounting storage is disabled\n")
    with pytest.raises(SlurmUnavailableError, match=r"accounting storage is disabled; .* AccountingStorageType="):
        asked.runs([1], 0)


def test_neither_sacct_nor_pyslurm(fake: FakeCommands) -> None:
    with pytest.raises(SlurmUnavailableError, match="sacct is not in"):
        accounting(fake, use_pyslurm=True).runs([1], 0)


def test_sacct_wins_over_pyslurm(fake: FakeCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only sacct has the earlier runs of a requeued job."""
    (tmp_path / "pyslurm.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path)]))
    put(fake, "22.05")
    asked = accounting(fake, use_pyslurm=True)
    assert asked.source == "sacct"
    assert len(asked.runs([7], 0)) == 2
