"""The collector: nothing lost, nothing twice, whatever the files are and whenever it dies."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from slurmgpu.collect.spools import Collector
from slurmgpu.store.schema import block, job_gpu, segment
from slurmgpu.store.writer import Writer
from tests.store import making

SLURMGPU = [sys.executable, "-m", "slurmgpu"]


def test_folders_in_turn_and_bad_segments_aside(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for node in ("n1", "n2"):
        for seq in range(3):
            making.put(tmp_path / "spool" / node, making.head(seq, node), [making.block(f"GPU-{node}", seq, seq + 1)])
    cut = making.put(tmp_path / "spool" / "n1", making.head(9), [making.block("GPU-n1", 9, 10)])
    cut.write_bytes(cut.read_bytes()[:-20])
    (tmp_path / "spool" / "n2" / f"s-{7:08d}.seg").write_bytes(b"")
    strange = making.put(tmp_path / "spool" / "n2", making.head(8, "n2"), [making.block("GPU-n2", 1, 2, ("x",))])
    (tmp_path / "spool" / "n2" / ".unfinished.seg").write_bytes(b"")
    taken = Collector(Writer(engine), [str(tmp_path / "spool" / "*")]).collect()
    assert (taken.written, taken.repeated, taken.aside) == (6, 0, 3)
    assert sorted(p.name for p in (tmp_path / "spool" / "n1").rglob("*.seg")) == [cut.name]
    assert (tmp_path / "spool" / "n2" / "bad" / strange.name).exists()
    assert f"{cut.name}: cut off" in caplog.text
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(block)).scalar() == 6


def test_repeated_segment_goes_without_a_trace(engine: Engine, tmp_path: Path) -> None:
    collector = Collector(Writer(engine), [str(tmp_path / "s")])
    for expected in ((1, 0), (0, 1)):
        path = making.put(tmp_path / "s", making.head(0), [making.block("GPU-0", 0, 1)])
        taken = collector.collect()
        assert (taken.written, taken.repeated) == expected
        assert not path.exists()


def test_killed_fifty_times(url: str, engine: Engine, tmp_path: Path) -> None:
    """`slurmgpu collect --once` is killed at a random moment of its work, fifty times, and then left in peace."""
    rng = random.Random(2)
    spool, segments, per_segment = tmp_path / "s", 400, 4
    expected_energy = 0
    for seq in range(segments):
        records = [making.allocation(1, 0, None)] if seq == 0 else []
        for part in range(per_segment):
            start = (seq * per_segment + part) * 100
            energy = rng.randrange(1000)
            expected_energy += energy
            records.append(making.block("GPU-0", start, start + 100, ("1@0",), energy_mj=energy))  # type: ignore[arg-type]
        making.put(spool, making.head(seq), records)  # type: ignore[arg-type]
    environment = {**os.environ, "SLURMGPU_STORE_URL": url, "SLURMGPU_CONF": str(_empty(tmp_path))}
    command = [*SLURMGPU, "collect", "--once", str(spool)]
    killed = 0
    while killed < 50:
        before = len(list(spool.glob("*.seg")))
        assert before > 0, "the work ended before the kills: make it longer"
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            # Into the work and not into the interpreter's start: wait until the first segment is gone.
            deadline = time.monotonic() + 30
            while len(list(spool.glob("*.seg"))) == before and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(rng.random() * 0.01)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert list(spool.iterdir()) == []
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(segment)).scalar() == segments
        assert connection.execute(select(func.count()).select_from(block)).scalar() == segments * per_segment
        (row,) = connection.execute(select(job_gpu.c.energy_mj, job_gpu.c.covered_ms, job_gpu.c.samples))
    assert tuple(row) == (expected_energy, segments * per_segment * 100, segments * per_segment * 2)


def test_stays_until_told_to_end(url: str, engine: Engine, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[collect]\nspool_dirs = ["{tmp_path}/s"]\nevery = "100ms"\n[store]\nurl = "{url}"')
    with subprocess.Popen([*SLURMGPU, "collect", "--config", str(config)], stderr=subprocess.PIPE) as process:
        path = making.put(tmp_path / "s", making.head(0), [making.block("GPU-0", 0, 1)])
        deadline = time.monotonic() + 20
        while path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        assert process.wait(timeout=10) == 0


def _empty(folder: Path) -> Path:
    path = folder / "empty.toml"
    path.touch()
    return path
