"""Reports say what the blocks add up to, in every format alike, and never more than is known."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slurmgpu.report import formats, listing
from slurmgpu.report.build import NoSuchJobError, job_runs
from slurmgpu.report.facts import RunFacts
from slurmgpu.report.style import Style
from slurmgpu.report.text import render
from slurmgpu.slurm.jobid import JobRef
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import Event, Record
from tests.store import making


def written(engine: Engine, records: list[Record], node: str = "n1", seq: int = 0) -> None:
    Writer(engine).write(making.head(seq, node), records)


def runs(engine: Engine, job_id: int = 7) -> list[RunFacts]:
    with engine.connect() as connection:
        return job_runs(connection, JobRef(job_id))


def minutes(gpu: str, busy: list[float], start_ms: int = 0, owner: str = "7@0") -> list[Record]:
    return [
        making.block(gpu, start_ms + n * 60_000, start_ms + (n + 1) * 60_000, (owner,), busy=value)
        for n, value in enumerate(busy)
    ]


def test_averages_are_weighted_by_gpu_time(engine: Engine) -> None:
    """Node n1 held one GPU for 3 min at 100 %, node n2 one for 1 min at 20 %: (300 + 20) / 4 = 80 %."""
    written(engine, [making.info("GPU-0"), making.allocation(7, 0, 180_000), *minutes("GPU-0", [100] * 3)])
    late = making.allocation(7, 120_000, 180_000, ("GPU-8",), node="n2")
    written(engine, [making.info("GPU-8"), late, *minutes("GPU-8", [20], 120_000, "7@120000")], "n2")
    (run,) = runs(engine)
    assert [gpu.gpu_busy_pct for gpu in run.gpus] == [100, 20]
    assert (run.gpu_busy_pct, run.coverage, run.energy_mj) == (80, 1, 2400)
    assert (run.nodes, run.start_ms, run.end_ms) == (("n1", "n2"), 0, 180_000)


def test_missing_time_is_said_and_energy_becomes_a_bound(engine: Engine) -> None:
    """One of four minutes has no block."""
    blocks = [*minutes("GPU-0", [50]), *minutes("GPU-0", [50, 50], 120_000)]
    written(engine, [making.info("GPU-0"), making.allocation(7, 0, 240_000), *blocks])
    (run,) = runs(engine)
    (gpu,) = run.gpus
    assert (gpu.coverage, gpu.energy_mj, gpu.energy_is_lower_bound) == (0.75, 1800, True)
    assert [(gap.start_ms, gap.end_ms) for gap in run.gaps] == [(60_000, 120_000)]
    text = render(run, Style())
    assert "Readings cover 75.0 % of the GPUs' time." in text
    assert "No readings on n1 for 1 GPU from 1970-01-01T" in text
    assert "lower bound" in text


def test_few_samples_give_no_average(engine: Engine) -> None:
    block = making.block("GPU-0", 0, 100, ("7@0",))
    object.__setattr__(block, "samples", 1)
    written(engine, [making.info("GPU-0"), making.allocation(7, 0, 100), block])
    (run,) = runs(engine)
    assert "not enough samples" in render(run, Style())
    (row,) = csv.DictReader(io.StringIO(formats.to_csv([run])))
    assert row["gpu_busy_pct"] == ""


def test_no_samples_yet(engine: Engine) -> None:
    written(engine, [making.info("GPU-0"), making.allocation(7, 1_000_000, None)])
    (run,) = runs(engine)
    assert "not enough samples" in render(run, Style())
    assert run.gpus[0].gpu_busy_pct is None


def test_idle_is_zero_and_unknown_is_a_dash(engine: Engine) -> None:
    idle = minutes("GPU-0", [0])
    blind = making.block("GPU-1", 0, 60_000, ("7@0",), energy_mj=None)
    blind.stats.clear()
    written(engine, [making.allocation(7, 0, 60_000, ("GPU-0", "GPU-1")), *idle, blind])
    (run,) = runs(engine)
    assert [gpu.gpu_busy_pct for gpu in run.gpus] == [0, None]
    rows = [line for line in render(run, Style()).splitlines() if line.startswith(("n1", "    "))]
    assert "0 %" in rows[0] or "0 %" in rows[1]
    assert run.energy_mj == 600
    assert run.energy_is_lower_bound
    second = json.loads(formats.to_ndjson([run]).splitlines()[1])
    assert second["gpu_busy_pct"] is None


def test_every_format_says_the_same(engine: Engine) -> None:
    gpus = ("GPU-0", "GPU-1")
    written(
        engine,
        [
            *map(making.info, gpus),
            making.allocation(7, 0, 120_000, gpus),
            *minutes("GPU-0", [90, 70]),
            *minutes("GPU-1", [10, 0]),
        ],
    )
    found = runs(engine)
    document = json.loads(formats.to_json(found))
    by_csv = list(csv.DictReader(io.StringIO(formats.to_csv(found))))
    by_ndjson = [json.loads(line) for line in formats.to_ndjson(found).splitlines()]
    assert document["schema"] == "slurmgpu.report/1"
    (run,) = document["runs"]
    assert list(by_csv[0]) == list(formats.COLUMNS) == list(by_ndjson[0])
    for gpu, row, line in zip(run["gpus"], by_csv, by_ndjson, strict=True):
        gpu.pop("busy_timeline_pct"), gpu.pop("unavailable")
        assert line == line | gpu
        assert {name: listing.cell(value) for name, value in line.items()} == {
            name: type(listing.cell(line[name]))(value) if line[name] is not None else value
            for name, value in row.items()
        }
    text = render(found[0], Style())
    assert re.search(r"n1 +0 .* 80 % ", text)
    assert re.search(r"\n +1 .* 5 % ", text)
    assert re.search(r"all +2 .* 42 % ", text) or re.search(r"all +2 .* 43 % ", text)


def test_timeline_follows_the_time(engine: Engine) -> None:
    """Twelve minutes busy, twelve idle: the first half of the line is high, the second low, and a hole is a hole."""
    blocks = [*minutes("GPU-0", [100] * 12), *minutes("GPU-0", [0] * 6, 18 * 60_000)]
    written(engine, [making.allocation(7, 0, 24 * 60_000), *blocks])
    (gpu,) = runs(engine)[0].gpus
    assert gpu.busy_timeline_pct == (*[100] * 12, *[None] * 6, *[0] * 6)


def test_timeline_of_a_long_job_comes_from_the_blocks(engine: Engine) -> None:
    written(engine, [making.allocation(7, 0, 240 * 60_000), *minutes("GPU-0", [100] * 120 + [20] * 120)])
    (gpu,) = runs(engine)[0].gpus
    assert gpu.busy_timeline_pct == pytest.approx([100] * 12 + [20] * 12)


def test_requeued_job_has_two_reports(engine: Engine) -> None:
    written(engine, [making.allocation(7, 0, 60_000), *minutes("GPU-0", [100])])
    again = making.allocation(7, 120_000, 180_000, ("GPU-3",), restart_count=1, exit_code=768)
    written(engine, [again, *minutes("GPU-3", [10], 120_000, "7@120000")], seq=1)
    first, second = runs(engine)
    assert [gpu.uuid for gpu in first.gpus] == ["GPU-0"]
    assert [gpu.uuid for gpu in second.gpus] == ["GPU-3"]
    assert (second.run, second.runs, second.exit_code, second.state) == (2, 2, 3, "ended, exit 3")
    assert "run 2 of 2" in render(second, Style())


def test_job_without_gpus(engine: Engine) -> None:
    written(engine, [making.allocation(7, 0, 60_000, ())])
    assert "The job held no GPU." in render(runs(engine)[0], Style())


def test_unresolved_gpus_are_shown(engine: Engine) -> None:
    event = Event(0, "gpu.unresolved", "text", allocation="7@0")
    written(engine, [making.allocation(7, 0, 60_000, (), unresolved=("9",)), event])
    assert "GPUs that no device answers to: 9" in render(runs(engine)[0], Style())


def test_what_happened_to_the_gpu_is_told(engine: Engine) -> None:
    """A GPU that was lost in mid-job, one that lacks a reading: what and why, and nothing of another time."""
    lacking = making.block("GPU-1", 0, 60_000, ("7@0",))
    lacking.stats.pop("gpu_util_pct")
    lacking.missing["gpu_util_pct"] = ("NOT_SUPPORTED", 60)
    gpus = ("GPU-0", "GPU-1")
    records = [*map(making.info, gpus), making.allocation(7, 0, 120_000, gpus), *minutes("GPU-0", [50]), lacking]
    events = [
        Event(61_000, "gpu.lost", "GPU-0 is lost: GPU_IS_LOST", gpu="GPU-0"),
        Event(500_000, "gpu.back", "GPU-0 answers again", gpu="GPU-0"),
    ]
    written(engine, [*records, *events])
    text = render(runs(engine)[0], Style())
    assert "n1: GPU-0 is lost: GPU_IS_LOST" in text
    assert "answers again" not in text
    assert "No GPU busy of 1 GPU: the driver says NOT_SUPPORTED." in text
    assert "No readings on n1 for 2 GPUs" in text


def test_control_characters_never_reach_the_terminal(engine: Engine) -> None:
    hostile = making.allocation(7, 0, 1, (), user="a\x1b[31mb\n\u202e", account="\x9b5m", partition="p\r")
    written(engine, [hostile])
    text = render(runs(engine)[0], Style())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_unknown_job(engine: Engine) -> None:
    with pytest.raises(NoSuchJobError, match="nothing is known of job 99"):
        runs(engine, 99)


def test_lines_fit_80_columns(engine: Engine) -> None:
    gpus = tuple(f"GPU-{n}" for n in range(8))
    blocks = [block for gpu in gpus for block in minutes(gpu, [97] * 10)]
    for block in blocks:
        object.__setattr__(block, "energy_mj", 30_000_000_000)
    written(engine, [*map(making.info, gpus), making.allocation(7, 0, 3_600_000, gpus), *blocks])
    text = render(runs(engine)[0], Style())
    assert max(map(len, text.splitlines())) <= 80


class TestCommand:
    """The program itself, as a user meets it, on the default database."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'store.db'}"

    @staticmethod
    def call(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        config = Path(url.removeprefix("sqlite:///")).with_name("c.toml")
        config.touch()
        variables = {**os.environ, "SLURMGPU_STORE_URL": url, "SLURMGPU_CONF": str(config), **environment}
        command = [sys.executable, "-m", "slurmgpu", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, encoding="utf-8")

    @pytest.mark.parametrize(
        ("arguments", "status", "words"),
        [
            (["report", "99"], 3, "nothing is known of job 99"),
            (["report", "99", "-M", "other"], 3, "job 99 of cluster other"),
            (["report", "x1"], 2, "job id 'x1': accepted are 123"),
            (["report", "0"], 2, "job id '0': job ids go from 1"),
            (["report", "٣"], 2, "accepted are 123"),
            (["report"], 2, "JOBID"),
            (["report", "1", "--format", "xml"], 2, "xml"),
            (["nonsense"], 2, "nonsense"),
        ],
    )
    def test_mistakes(self, engine: Engine, url: str, arguments: list[str], status: int, words: str) -> None:
        result = self.call(url, *arguments)
        assert (result.returncode, result.stdout) == (status, "")
        assert words in result.stderr
        assert "Traceback" not in result.stderr

    def test_no_database(self, url: str) -> None:
        result = self.call(url, "report", "7")
        assert result.returncode == 5
        assert result.stderr.count("\n") == 1
        assert "slurmgpu db init" in result.stderr

    def test_a_database_that_is_none(self, url: str, tmp_path: Path) -> None:
        Path(url.removeprefix("sqlite:///")).write_text("not a database, and long enough to be taken for one" * 50)
        result = self.call(url, "report", "7")
        assert (result.returncode, result.stderr.count("\n")) == (5, 1)

    def test_init_twice_and_upgrade(self, url: str) -> None:
        assert "is ready" in self.call(url, "db", "init").stdout
        assert "was there" in self.call(url, "db", "init").stdout
        assert "is at revision" in self.call(url, "db", "upgrade").stdout

    def test_pipes_colours_and_encodings(self, engine: Engine, url: str) -> None:
        written(engine, [making.info("GPU-0"), making.allocation(7, 0, 60_000), *minutes("GPU-0", [100])])
        plain = self.call(url, "report", "7").stdout
        assert "\x1b" not in plain
        assert "█" in plain
        ascii_only = self.call(url, "report", "7", PYTHONIOENCODING="ascii").stdout
        assert ascii_only.isascii()
        assert "100 %" in ascii_only

    def test_reader_that_goes_away(self, engine: Engine, url: str) -> None:
        written(engine, [making.allocation(7, 0, 60_000), *minutes("GPU-0", [100])])
        config = Path(url.removeprefix("sqlite:///")).with_name("c.toml")
        config.touch()
        command = f"{sys.executable} -m slurmgpu report 7 --format json | true; echo ${{PIPESTATUS[0]}}"
        variables = {**os.environ, "SLURMGPU_STORE_URL": url, "SLURMGPU_CONF": str(config)}
        result = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True)
        assert result.stderr == ""
        assert result.stdout.strip() in ("0", "141")

    def test_version_needs_no_heavy_library(self) -> None:
        code = (
            "import sys; from slurmgpu.cli import main; main(['--version']);"
            "print(*sorted({m.split('.')[0] for m in sys.modules} & {'typer', 'sqlalchemy', 'rich', 'alembic'}))"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout.split("\n")[1] == ""
