"""Endurance of slurmgpud: ten minutes at 1 s without drift, and a simulated day without growth.

``python bench/endurance.py [SECONDS]``: the real-time part takes that long (default 600).
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "contrib" / "simgpu")]

import simgpu  # noqa: E402

from slurmgpu.wire.records import Block  # noqa: E402
from slurmgpu.wire.samples import decode  # noqa: E402
from slurmgpu.wire.segment import read  # noqa: E402

DAY_S = 86_400


def drift(seconds: float) -> bool:
    """Samples of a real slurmgpud at 1 s: how far each lies from start + k s. The budget is 50 ms."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(
            f'[node]\nname = "n"\ninterval = 1\nrun_dir = "{folder}/run"\nspool_dir = "{folder}/spool"'
        )
        command = [sys.executable, "-m", "slurmgpu.node.main", "--config", str(folder / "c.toml")]
        environment = os.environ | {"LD_LIBRARY_PATH": str(simgpu.library_dir())}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGTERM)
            said = process.communicate()[1]
        uuid = simgpu.uuid("sim", 0)
        records = [record for path in sorted((folder / "spool").glob("*.seg")) for record in read(path)[1]]
        times = [
            block.start_ms + int(offset or 0)
            for block in records
            if isinstance(block, Block) and block.gpu == uuid
            for offset in (decode(block.body)["t_ms"] if block.body else ())
        ][:-1]  # the last one is taken at the end, out of turn
    off = [abs(t - times[0] - round((t - times[0]) / 1000) * 1000) for t in times]
    steps = {round((b - a) / 1000) for a, b in itertools.pairwise(times)}
    last_words = said.strip().splitlines()[-1].split(": ", 1)[1]
    print(f"{len(times)} samples in {(times[-1] - times[0]) / 1000:.0f} s, steps of {sorted(steps)} s; {last_words}")
    print(f"off by at most {max(off)} ms (budget 50), median {sorted(off)[len(off) // 2]} ms")
    return max(off) <= 50


DAY = """
import sys, signal, logging, shutil
from pathlib import Path
from slurmgpu.config import NodeConfig, Seconds
from slurmgpu.node.daemon import Daemon
from slurmgpu.node.identity import Identity
from slurmgpu.node.nvml import Gate
from slurmgpu.node.pids import Pids
from slurmgpu.node.spool import Spool
folder = Path(sys.argv[1])

class Fast:
    "A day in as long as its work takes; every hour the resident memory."
    now = 1000.0
    def monotonic(self): return self.now
    def wall(self): return 1.7e9 + self.now
    def uptime(self): return self.now
    def wait(self, seconds):
        self.now += max(0.0, seconds)
        hour = int((self.now - 1000) / 3600)
        if hour > len(seen):
            status = Path("/proc/self/status").read_text().split()
            seen.append(int(status[status.index("VmRSS:") + 1]))
            threads.append(int(status[status.index("Threads:") + 1]))
            for path in (folder / "spool").glob("*.seg"): path.unlink()
        return signal.SIGTERM if self.now > 1000 + {day} else None

seen, threads = [], []
config = NodeConfig(run_dir=folder / "run", spool_dir=folder / "spool", interval=Seconds(1))
names, pids = Identity("c", "n"), Pids(config.cgroup_roots)
daemon = Daemon(config, names, "b", Gate(), Spool(config.spool_dir, names, "b"), Fast(), pids, lambda: config)
daemon.prepare(); daemon.run()
print(daemon.rounds, *seen, *threads[-1:])
"""


def day() -> bool:
    """A simulated day at 1 s, 8 GPUs, all tiers: resident memory after the first hour and after the last."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"LD_LIBRARY_PATH": str(simgpu.library_dir())}
        command = [sys.executable, "-c", DAY.replace("{day}", str(DAY_S)), folder]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    rounds, first, last = int(out[0]), int(out[1]) / 1024, int(out[-2]) / 1024
    print(
        f"{rounds} rounds of a simulated day: {first:.1f} MB after an hour, {last:.1f} MB at the end, {out[-1]} threads"
    )
    return last - first < 1.0


if __name__ == "__main__":
    kept = day()
    kept &= drift(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    sys.exit(0 if kept else 1)
