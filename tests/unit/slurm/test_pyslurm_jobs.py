"""pyslurm behind its process: with what a real one returned, and with all the ways in which it ends or hangs."""

import json
import sys
import time
from pathlib import Path

import pytest

from slurmgpu.slurm.accounting import Accounting
from slurmgpu.slurm.commands import Commands
from slurmgpu.slurm.facts import SlurmUnavailableError

RECORDED = Path(__file__).parents[2] / "data" / "slurm-pyslurm"

# As pyslurm 25.11: objects whose steps must not be looked at, ids of arrays and het jobs that bring their members.
PACKAGE = """
import json, pathlib
print("libslurm says something on standard output")

class RPCError(Exception):
    pass

class Gpu:
    def __init__(self, values):
        self.count = values["count"]

class Job:
    def __init__(self, values):
        self.__dict__.update(values)
        self.gpus = {name: Gpu(gpu) for name, gpu in values["gpus"].items()}
    @property
    def stats(self):
        raise TypeError("int() argument must be a string")

class db:
    class JobFilter:
        def __init__(self, ids):
            assert isinstance(ids, list) and all(isinstance(job, int) for job in ids)
            self.ids = ids
    class Jobs(dict):
        @classmethod
        def load(cls, wanted):
            found = cls()
            for file in pathlib.Path(RECORDED).glob("dbjob_*.json"):
                values = json.loads(file.read_text())["value"]
                values.pop("stats", None)
                if {values["id"], values["array_id"], values["heterogeneous_id"]} & set(wanted.ids):
                    found[values["id"]] = Job(values)
            return found
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the worker, and whoever looks for pyslurm, finds it first."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def put(home: Path, code: str = f"RECORDED = {str(RECORDED)!r}\n{PACKAGE}") -> None:
    (home / "pyslurm.py").write_text(code, encoding="utf-8")


def accounting(home: Path, deadline_s: float = 30.0) -> Accounting:
    """Of a host without sacct."""
    (home / "empty").mkdir(exist_ok=True)
    return Accounting(Commands(str(home / "empty"), deadline_s))


def test_recorded_jobs(home: Path) -> None:
    put(home)
    asked = accounting(home)
    runs = {run.job_id: run for run in asked.runs(range(1, 30), 0)}
    assert asked.source == "pyslurm"
    assert sorted(runs) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert not asked.commands.calls
    assert "pyslurm" not in sys.modules
    done = runs[8]
    assert (done.name, done.user, done.account, done.partition, done.qos) == ("done", "root", "root", "gpu", "normal")
    assert (done.submit_s, done.start_s, done.end_s) == (1796099152, 1796099153, 1796099154)
    assert (done.state, done.exit_code, done.exit_signal, done.is_final) == ("COMPLETED", 0, 0, True)
    assert (done.time_limit_s, done.nodelist, done.gpus, done.sluid, done.restarts) == (1800, "gpu2", 1, None, 0)
    assert (done.array_job_id, done.array_task, done.het_job_id, done.het_offset) == (None, None, None, None)
    assert (runs[9].state, runs[9].exit_code, runs[9].exit_signal) == ("FAILED", 3, 0)
    assert (runs[10].state, runs[10].exit_code, runs[10].exit_signal) == ("FAILED", 0, 11)
    assert (runs[11].state, runs[11].is_final) == ("CANCELLED", True)
    assert (runs[1].state, runs[1].end_s, runs[1].exit_code, runs[1].gpus) == ("RUNNING", None, None, 2)
    assert (runs[2].nodelist, runs[2].gpus) == ("gpu[1-2]", 4)
    assert (runs[7].gpus, runs[14].user, runs[12].restarts) == (None, "alice", 1)


def test_array_and_het(home: Path) -> None:
    """Offset 0 is None in pyslurm, and 4294967294 for other jobs; what waits has no nodes and no GPUs yet."""
    put(home)
    runs = {run.job_id: run for run in accounting(home).runs(range(1, 30), 0)}
    assert (runs[5].het_job_id, runs[5].het_offset) == (5, 0)
    assert (runs[6].het_job_id, runs[6].het_offset, runs[6].gpus) == (5, 1, 2)
    assert (runs[15].array_job_id, runs[15].array_task) == (4, 3)
    assert (runs[4].array_job_id, runs[4].array_task, runs[4].state) == (4, None, "PENDING")
    assert (runs[13].start_s, runs[13].nodelist, runs[13].gpus) == (None, "", None)


def test_only_what_was_asked(home: Path) -> None:
    """By id, and by the time at which it ended: pyslurm has no window beside ids."""
    put(home)
    asked = accounting(home)
    assert [run.job_id for run in asked.runs([5], 0)] == [5]
    assert [run.job_id for run in asked.runs([8, 11], 1796099156)] == [11]
    assert asked.runs([99999], 0) == []


def test_use_pyslurm_is_a_choice(home: Path) -> None:
    put(home)
    with pytest.raises(SlurmUnavailableError, match="sacct is not in"):
        Accounting(accounting(home).commands, use_pyslurm=False).runs([1], 0)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import os; os.write(2, b'python: error: no config\\n'); os._exit(1)",
            "pyslurm ended without an answer: python: error: no config",
        ),
        ("import sys; sys.exit(1)", "pyslurm ended without an answer: ended with status 1 without a word"),
        (
            "import os; os.kill(os.getpid(), 11)",
            "pyslurm ended without an answer: ended with status -11 without a word",
        ),
        ("raise ImportError('libslurmfull.so: cannot open')", "pyslurm: ImportError: libslurmfull.so: cannot open"),
        ("", "pyslurm: AttributeError: module 'pyslurm' has no attribute 'db'"),
        (
            PACKAGE
            + "\n    def load(wanted): raise RPCError('Failed to get Jobs from slurmdbd')\n    Jobs.load = load",
            "pyslurm: RPCError: Failed to get Jobs from slurmdbd",
        ),
    ],
)
def test_ways_to_fail(home: Path, code: str, message: str) -> None:
    put(home, code)
    with pytest.raises(SlurmUnavailableError) as caught:
        accounting(home).runs([1], 0)
    assert str(caught.value) == message


def test_a_call_that_hangs(home: Path) -> None:
    put(home, "import time\ntime.sleep(60)")
    begin_s = time.monotonic()
    with pytest.raises(SlurmUnavailableError, match=r"gave no answer within 0.5 s"):
        accounting(home, 0.5).runs([1], 0)
    assert time.monotonic() - begin_s < 30


def test_missing_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyslurm would look for it for a minute and then end its process: it is not started."""
    put(home, f"open({str(home / 'started')!r}, 'w')")
    monkeypatch.setenv("SLURM_CONF", str(home / "nowhere.conf"))
    with pytest.raises(SlurmUnavailableError, match=r"SLURM_CONF names .*nowhere.conf, which cannot be read"):
        accounting(home).runs([1], 0)
    assert not (home / "started").exists()


def test_names_of_any_kind(home: Path) -> None:
    """A name is no part of the JSON between the processes, and half a surrogate pair does no harm."""
    values = json.loads((RECORDED / "dbjob_finished.json").read_text())["value"]
    job = {key: value for key, value in values.items() if key not in ("gpus", "steps", "stats")}
    name = 'x\n\ud800\x1b{"jobs":[]}'
    put(
        home,
        "from types import SimpleNamespace as Of\n"
        f"job = Of(**{job | {'name': name}!r})\n"
        "db = Of(Jobs=Of(load=lambda wanted: {8: job}), JobFilter=lambda ids: None)\n",
    )
    [run] = accounting(home).runs([8], 0)
    assert (run.name, run.gpus) == ('x\n?\x1b{"jobs":[]}', None)
