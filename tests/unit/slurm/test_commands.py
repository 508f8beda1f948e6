"""How Slurm's commands are started: environment, deadline, limits, errors in one line."""

import os
import time
from pathlib import Path

import pytest

from slurmgpu.slurm.commands import Commands, run_child
from slurmgpu.slurm.facts import NoAnswerReadError, SlurmUnavailableError
from tests.unit.slurm.fakes import FakeCommands


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return FakeCommands(tmp_path / "bin")


def commands(fake: FakeCommands, deadline_s: float = 30.0) -> Commands:
    return Commands(str(fake.folder), deadline_s)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_words_pass_without_a_shell(fake: FakeCommands) -> None:
    fake.say("squeue", "out\n")
    asked = commands(fake)
    assert asked.run("squeue", "$(id)", "a b", "; exit 3", "*") == "out\n"
    assert fake.asked("squeue") == ["$(id)", "a b", "; exit 3", "*"]
    assert asked.calls == {"squeue": 1}


def test_environment(fake: FakeCommands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What changes the output is left out; configuration, credentials and time zone stay."""
    conf = tmp_path / "slurm.conf"
    conf.touch()
    for name in ("SACCT_FORMAT", "SQUEUE_FORMAT", "SQUEUE_STATES", "SINFO_FORMAT", "SCONTROL_FUTURE"):
        monkeypatch.setenv(name, "x")
    for name in ("SLURM_CLUSTERS", "SLURM_JSON", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("SLURM_JWT", "secret")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    fake.say("sacct", "")
    commands(fake).run("sacct", "-n")
    environment = fake.environment("sacct")
    prefixes = ("SLURM_", "SACCT_", "SQUEUE_", "SINFO_", "SCONTROL_", "LC_ALL", "TZ")
    assert {name: value for name, value in environment.items() if name.startswith(prefixes)} == {
        "SLURM_CONF": str(conf),
        "SLURM_JWT": "secret",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
        "TZ": "Europe/Berlin",
        "LC_ALL": "C",
    }


def test_no_time_format_with_json(fake: FakeCommands) -> None:
    """sacct --json of 22.05 fails with any: "Unable to parse time format"."""
    fake.say("sacct", "{}")
    commands(fake).run("sacct", "--json")
    assert "SLURM_TIME_FORMAT" not in fake.environment("sacct")


def test_found_in_the_search_path(fake: FakeCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its absolute path, and never in the working directory."""
    fake.say("squeue", "mine")
    monkeypatch.setenv("PATH", f"/nowhere:{fake.folder}:/usr/bin:/bin")
    assert Commands().run("squeue") == "mine"
    monkeypatch.chdir(fake.folder)
    fake.say("scancel-no-such", "")
    for path in ("", ".", ":.:"):
        monkeypatch.setenv("PATH", path)
        assert Commands().find("scancel-no-such") is None


def test_missing_command(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailableError, match=r"^sacct is not in .*; slurm.bin_dir says where it is$"):
        Commands(str(tmp_path)).run("sacct")


def test_command_that_does_not_start(fake: FakeCommands) -> None:
    fake.put("sacct", "")
    (fake.folder / "sacct").write_text("#!/no/such/interpreter\n")
    with pytest.raises(SlurmUnavailableError, match="sacct does not start: No such file"):
        commands(fake).run("sacct")


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ("\nsacct: error: one\ntwo\n", "sacct: error: one"),
        ("bad \x1b[31m\x07 text", "sacct: bad ?[31m? text"),
        ("", "sacct: ended with status 3 without a word"),
        (
            "Slurm accounting storage is disabled",
            "sacct: Slurm accounting storage is disabled; names and states of jobs need "
            "AccountingStorageType=accounting_storage/slurmdbd",
        ),
        (
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
            "host:127.0.0.1:6819: Connection refused\nsacct: error: Problem talking to the database\n",
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
            "host:127.0.0.1:6819: Connection refused; is slurmdbd up?",
        ),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "sacct: slurm_load_jobs error: Unable to contact slurm controller (connect failure); is slurmctld up?",
        ),
    ],
)
def test_errors_in_one_line(fake: FakeCommands, errors: str, message: str) -> None:
    fake.say("sacct", "", 3, errors)
    with pytest.raises(SlurmUnavailableError) as caught:
        commands(fake).run("sacct")
    assert str(caught.value) == (message if message.startswith("sacct: ") else f"sacct: {message}")


def test_complaints_on_success_are_no_errors(fake: FakeCommands) -> None:
    fake.say("sacct", "x", 0, "sacct: error: something\n")
    assert commands(fake).run("sacct") == "x"


def test_bytes_that_are_no_utf8(fake: FakeCommands) -> None:
    fake.say("squeue", b"a\xff\x80\xc3\xa9\r\n")
    assert commands(fake).run("squeue") == "a\ufffd\ufffd\u00e9\r\n"


def test_missing_configuration(fake: FakeCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    """libslurm would look for it for a minute, so nothing is started."""
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    fake.say("sacct", "")
    asked = commands(fake)
    with pytest.raises(SlurmUnavailableError, match=r"SLURM_CONF names /nowhere/slurm.conf, which cannot be read"):
        asked.run("sacct")
    assert not asked.calls


def test_deadline_ends_the_child_and_no_other(fake: FakeCommands) -> None:
    """Also a child that closed its output, and one whose own child holds the pipe."""
    for number, script in enumerate(
        ("exec sleep 60", "exec sleep 60 >&- 2>&-", "sleep 60 & echo $! > $HERE/child; wait")
    ):
        fake.put("squeue", f"echo $$ > $HERE/pid\n{script}")
        begin_s = time.monotonic()
        with pytest.raises(SlurmUnavailableError, match=r"squeue gave no answer within 1 s"):
            commands(fake, 1.0).run("squeue")
        assert time.monotonic() - begin_s < 30
        assert is_gone(int((fake.folder / "pid").read_text()))
        if number == 2:
            child = int((fake.folder / "child").read_text())
            assert not is_gone(child)
            os.kill(child, 9)


def test_too_much_output(fake: FakeCommands) -> None:
    fake.put("squeue", "echo $$ > $HERE/pid\nexec yes")
    asked = commands(fake)
    asked.max_output_bytes = 100_000
    with pytest.raises(NoAnswerReadError, match="squeue printed more than 100000 bytes"):
        asked.run("squeue")
    assert is_gone(int((fake.folder / "pid").read_text()))


def test_much_on_both_streams(fake: FakeCommands) -> None:
    """Neither pipe blocks the child; of the errors the first mebibyte is kept."""
    fake.put("squeue", "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero")
    assert len(commands(fake).run("squeue")) == 3_000_000
    done = run_child([str(fake.folder / "squeue")], os.environ, 30, 1 << 30)
    assert 1 << 20 <= len(done.err) < 3_000_000


def test_standard_input(fake: FakeCommands) -> None:
    """Empty for commands; a child that does not read what it is given does no harm."""
    fake.put("sacct", "cat")
    assert commands(fake).run("sacct") == ""
    assert run_child(["/bin/cat"], os.environ, 30, 1000, b"x" * 900).out == b"x" * 900
    assert run_child(["/bin/true"], os.environ, 30, 1000, b"x" * 60_000).status == 0
