"""Budgets of sampling, on the simulated driver: CPU per GPU and round beside the plain pynvml loop over the same
readings and beside other samplers; the daemon's CPU and memory at 1 s with everything on.

The simulated driver needs no time of its own: what is compared is what the samplers add.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "contrib" / "simgpu")]

import simgpu  # noqa: E402

GPUS = 8
ROUNDS = 2000
DAEMON_S = 60.0
JOB_S = 30.0  # a job on four of the GPUs starts this often, and ends half-way

# Each prints CPU µs per GPU and round. All read 15 values of the same kind, one call each, as a careful client would.
PLAIN = """
import pynvml as n, time
n.nvmlInit(); hs = [n.nvmlDeviceGetHandleByIndex(i) for i in range({gpus})]
def round_():
    for h in hs:
        u = n.nvmlDeviceGetUtilizationRates(h); u.gpu; u.memory
        n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).used
        n.nvmlDeviceGetPowerUsage(h); n.nvmlDeviceGetTotalEnergyConsumption(h)
        n.nvmlDeviceGetClockInfo(h, 1); n.nvmlDeviceGetClockInfo(h, 2)
        n.nvmlDeviceGetEncoderUtilization(h); n.nvmlDeviceGetDecoderUtilization(h)
        n.nvmlDeviceGetTemperature(h, 0); n.nvmlDeviceGetCurrentClocksEventReasons(h)
        n.nvmlDeviceGetCurrPcieLinkGeneration(h); n.nvmlDeviceGetCurrPcieLinkWidth(h)
        n.nvmlDeviceGetPcieReplayCounter(h); n.nvmlDeviceGetEnforcedPowerLimit(h); n.nvmlDeviceGetPersistenceMode(h)
"""
OURS = """
import sys, time
from slurmgpu.node.nvml import Gate
from slurmgpu.node.readings import Field, Tier, discover
from slurmgpu.node.sampler import Sampler
wanted = {{"gpu_util_pct", "mem_used_bytes", "power_mw", "energy_mj", "sm_clock_mhz", "mem_clock_mhz", "enc_util_pct",
  "dec_util_pct", "temperature_c", "clocks_event_reasons", "pcie_generation", "pcie_width_lanes", "pcie_replays",
  "power_limit_mw", "persistence_mode"}}
readings = [r for r in discover() if r.metrics[0].name in wanted]
assert len(readings) == 15
sampler = Sampler(Gate(), readings); sampler.open()
def round_():
    for g in sampler.gpus:
        sampler.sample(g, tuple(Tier)); tuple(g.row)
"""
NVITOP = """
import time
from nvitop import Device
ds = Device.all()
def round_():
    for d in ds:
        d.as_snapshot()
"""
GPUSTAT = """
import time, gpustat
def round_():
    gpustat.new_query()
"""
MEASURE = """
for _ in range(3): round_()
start = time.process_time()
for _ in range({rounds}): round_()
print((time.process_time() - start) / {rounds} / {gpus} * 1e6)
"""


def main() -> int:
    """Print the figures; 1 when a budget is not kept."""
    kept = True
    print(f"{GPUS} GPUs, CPU µs per GPU and round          median of 5   beside the plain loop")
    for latency_us in (0, 5, 50):
        with tempfile.TemporaryDirectory() as folder:
            environment = _environment(Path(folder), latency_us)
            rounds = ROUNDS if latency_us == 0 else 100
            figures = _side_by_side({"plain pynvml loop": PLAIN, "slurmgpu": OURS}, environment, rounds)
            if latency_us == 0:
                figures |= _side_by_side({"nvitop": NVITOP}, environment, 100)
                figures |= _side_by_side({"gpustat": GPUSTAT}, environment, 3)
        base = figures["plain pynvml loop"]
        for name, value in figures.items():
            print(f"  {name:<22} {latency_us:3d} µs per call {value:12.1f} {value / base:12.2f}")
        kept &= figures["slurmgpu"] <= base
        if latency_us == 0:
            kept &= figures["slurmgpu"] <= min(figures["nvitop"], figures["gpustat"]) / 3
    cpu_pct, rss_mb, threads = _daemon()
    print(f"slurmgpud, 1 s, all tiers, {DAEMON_S:.0f} s: {cpu_pct:.3f} % of a core (budget 0.2), ", end="")
    print(f"{rss_mb:.1f} MB resident (budget 30), {threads} threads")
    return 0 if kept and cpu_pct <= 0.2 and rss_mb <= 30 else 1


def _environment(folder: Path, latency_us: int) -> dict[str, str]:
    lines = [f"gpus {GPUS}", "gpu * wave gpu_util_pct mean=50 amplitude=40 period=30"]
    if latency_us:
        lines.append(f"fault 0-15 function=* sleep_us={latency_us}")
    simgpu.Scenario(lines).write(folder / "scenario")
    library = str(simgpu.library_dir())
    return os.environ | {"LD_LIBRARY_PATH": library, "SIMGPU_SCENARIO": str(folder / "scenario")}


def _side_by_side(programs: dict[str, str], environment: dict[str, str], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(5):
        for name, text in programs.items():
            code = text.format(gpus=GPUS) + MEASURE.format(rounds=rounds, gpus=GPUS)
            out = subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
            )
            found[name].append(float(out.stdout.split()[-1]))
    return {name: sorted(values)[2] for name, values in found.items()}


def _daemon() -> tuple[float, float, int]:
    """CPU in % of a core, resident MB and threads of a slurmgpud with a job's marks coming and going."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "c.toml"
        config.write_text(f'[node]\ninterval = 1\nflush = 60\nrun_dir = "{folder}/run"\nspool_dir = "{folder}/spool"')
        command = [sys.executable, "-m", "slurmgpu.node.main", "--config", str(config)]
        with subprocess.Popen(command, env=_environment(folder, 0), stderr=subprocess.DEVNULL) as process:
            while not (folder / "run" / "jobs").exists():
                time.sleep(0.05)
            time.sleep(3)
            before, start = _cpu_s(process.pid), time.monotonic()
            for number in range(int(DAEMON_S / JOB_S)):
                for hook in ("prolog", "epilog"):
                    _hook(hook, number, folder)
                    time.sleep(JOB_S / 2)
            cpu_pct = (_cpu_s(process.pid) - before) / (time.monotonic() - start) * 100
            status = Path(f"/proc/{process.pid}/status").read_text().split()
            process.terminate()
        return cpu_pct, int(status[status.index("VmRSS:") + 1]) / 1024, int(status[status.index("Threads:") + 1])


def _hook(hook: str, job: int, folder: Path) -> None:
    environment = {"SLURM_JOB_ID": str(job + 1), "SLURM_JOB_GPUS": "0,1,2,3", "SLURMGPU_RUN_DIR": str(folder / "run")}
    subprocess.run([str(ROOT / hook / "slurmgpu")], env=environment, check=True)


def _cpu_s(pid: int) -> float:
    """To the nanosecond, of all threads."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


if __name__ == "__main__":
    sys.exit(main())
