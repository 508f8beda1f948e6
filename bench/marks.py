"""Budget: a thousand marks that wait when slurmgpud starts are taken in less than two seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "contrib" / "simgpu"))

import simgpu  # noqa: E402

from slurmgpu.wire.records import Allocation  # noqa: E402
from slurmgpu.wire.segment import read  # noqa: E402

MARKS = 1000
BUDGET_S = 2.0


def main() -> int:
    """Print the figures; 1 when the budget is not kept."""
    with tempfile.TemporaryDirectory() as name:
        without_s, _ = once(Path(name) / "none", 0)
        with_s, allocations = once(Path(name) / "all", MARKS)
    more_s = with_s - without_s
    print(f"slurmgpud --once: {without_s:.2f} s without marks, {with_s:.2f} s with {MARKS}: {more_s:.2f} s more")
    print(f"{allocations} allocations are in the spool; budget {BUDGET_S} s")
    return 0 if more_s < BUDGET_S and allocations == MARKS // 2 else 1


def once(folder: Path, marks: int) -> tuple[float, int]:
    """A start with marks waiting: half of them of jobs that ended. Seconds, and closed allocations in the spool."""
    jobs = folder / "run" / "jobs"
    jobs.mkdir(parents=True, mode=0o700)
    for number in range(marks):
        hook = ("prolog", "epilog")[number % 2]
        job = number // 2 + 1
        block = f"SLURM_JOB_ID={job}\0SLURM_JOB_GPUS={job % 8}\0SLURM_JOB_USER=alice\0SLURMD_NODENAME=n1\0"
        path = jobs / f"{job}.{hook}.{number + 1}"
        path.write_bytes(block.encode() + b"x" * 3000 + b"=y\0")
        os.utime(path, (1.7e9 + number, 1.7e9 + number))
    config = folder / "c.toml"
    places = f'name = "n1"\nrun_dir = "{folder}/run"\nspool_dir = "{folder}/spool"'
    config.write_text(f'cluster = "c"\n[node]\n{places}\n')
    environment = os.environ | {"LD_LIBRARY_PATH": str(simgpu.library_dir())}
    command = [sys.executable, "-m", "slurmgpu.node.main", "--config", str(config), "--once"]
    start = time.monotonic()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    took_s = time.monotonic() - start
    records = [record for path in (folder / "spool").glob("*.seg") for record in read(path)[1]]
    ended = {record.id for record in records if isinstance(record, Allocation) and record.end_ms is not None}
    return took_s, len(ended)


if __name__ == "__main__":
    sys.exit(main())
