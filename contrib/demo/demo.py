"""One simulated node with eight GPUs, one job, and everything else real: hooks, slurmgpud, collect, SQLite, report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "contrib" / "simgpu"))

import simgpu  # noqa: E402

BIN = Path(sys.executable).parent
JOB_ID = 4711
JOB_S = 20.0
INTERVAL_S = 0.25

CONFIG = """\
cluster = "demo"
[node]
name = "gpu01"
interval = {interval}
flush = 5
run_dir = "{folder}/run"
spool_dir = "{folder}/spool"
[slurm]
ask = false
[store]
url = "sqlite:///{folder}/demo.db"
"""

# What the job does, by GPU: four train in step with a pause for each checkpoint, two starve for input, one stops
# early, one is never used.
IDLE = "gpu_util_pct=0 mem_util_pct=0 mem_used_bytes=500000000 power_mw=71000 sm_clock_mhz=345"
TRAIN = "gpu_util_pct=96 mem_util_pct=62 mem_used_bytes=71500000000 power_mw=642000 sm_clock_mhz=1755"
STARVED = "gpu_util_pct=55 mem_util_pct=18 mem_used_bytes=22000000000 power_mw=310000 sm_clock_mhz=1980"


def scenario(start: float) -> str:
    """The node's GPUs from ``start`` (unix seconds) on."""
    lines = [f"epoch {start}", "gpus 8", f"gpu * {IDLE}"]
    for at in range(0, 20, 5):
        lines += [f"gpu 0-3 @{at} {TRAIN}", f"gpu 0-3 @{at + 4} gpu_util_pct=12 power_mw=180000"]
        lines += [f"gpu 4-5 @{at} {STARVED}", f"gpu 4-5 @{at + 2.5} gpu_util_pct=20 power_mw=140000"]
    lines += [f"gpu 6 @0 {TRAIN}", f"gpu 6 @9 {IDLE}", f"gpu * @{JOB_S} {IDLE}"]
    return "\n".join(lines) + "\n"


def step(word: str, text: str) -> None:
    """One line of the story."""
    print(f"  {word:<9} {text}", flush=True)


def hook(kind: str, folder: Path) -> None:
    """What slurmd does: the hook with the job's environment and nothing else."""
    environment = {
        "SLURM_JOB_ID": str(JOB_ID),
        "SLURM_JOB_USER": "ada",
        "SLURM_JOB_ACCOUNT": "physics",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7",
        "SLURM_JOB_NODELIST": "gpu01",
        "SLURM_JOB_RESTART_COUNT": "0",
        "SLURMD_NODENAME": "gpu01",
        "SLURM_CLUSTER_NAME": "demo",
        "SLURMGPU_RUN_DIR": str(folder / "run"),
    }
    if kind == "epilog":
        environment["SLURM_JOB_EXIT_CODE"] = "0"
    subprocess.run([str(ROOT / kind / "slurmgpu")], env=environment, check=True)


def wait_for(path: Path, pattern: str, process: subprocess.Popen[bytes]) -> None:
    """Until the folder has such a file."""
    deadline = time.monotonic() + 20
    while not list(path.glob(pattern)):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit("demo: slurmgpud did not do its part; its words are above")
        time.sleep(0.05)


def progress(seconds: float) -> None:
    """The job's time, as a bar on a terminal."""
    shown = sys.stdout.isatty()
    start = time.monotonic()
    while (gone := time.monotonic() - start) < seconds:
        if shown:
            full = int(gone / seconds * 40)
            print(f"\r  {'job':<9} {'█' * full}{'░' * (40 - full)} {gone:3.0f} of {seconds:.0f} s", end="", flush=True)
        time.sleep(min(0.2, seconds - gone))
    print("\r\x1b[K" if shown else "", end="")


def main() -> int:
    """Run it; the database stays, so that a person can go on."""
    keep = Path(tempfile.mkdtemp(prefix="slurmgpu-demo-"))
    config = keep / "slurmgpu.toml"
    config.write_text(CONFIG.format(folder=keep, interval=INTERVAL_S))
    (keep / "scenario").write_text(scenario(time.time() + 3600))
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(simgpu.library_dir()),
        "SIMGPU_SCENARIO": str(keep / "scenario"),
        "SIMGPU_NODE": "gpu01",
        "SLURMGPU_CONF": str(config),
    }
    environment.pop("SLURMGPU_STORE_URL", None)
    print("One node, 8 simulated H100, one job. All else is real.")
    log = (keep / "slurmgpud.log").open("wb")
    with subprocess.Popen([str(BIN / "slurmgpud"), "--foreground"], env=environment, stderr=log) as daemon:
        try:
            wait_for(keep / "run", "jobs", daemon)
            time.sleep(4 * INTERVAL_S)  # a first reading, so that the job is covered from its start
            step("slurmgpud", f"reads 8 GPUs every {INTERVAL_S:g} s through NVML")
            (keep / "scenario.new").write_text(scenario(time.time()))
            (keep / "scenario.new").rename(keep / "scenario")
            hook("prolog", keep)
            step("prolog", f"job {JOB_ID} starts: a mark in {keep}/run/jobs")
            progress(JOB_S)
            hook("epilog", keep)
            wait_for(keep / "spool", "*-*", daemon)
            step("epilog", f"job {JOB_ID} ended after {JOB_S:.0f} s")
        finally:
            daemon.terminate()
    log.close()
    segments = len(list((keep / "spool").glob("*.seg")))
    subprocess.run([str(BIN / "slurmgpu"), "db", "init"], env=environment, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(BIN / "slurmgpu"), "collect", "--once"], env=environment, check=True, stdout=subprocess.DEVNULL)
    step("collect", f"{segments} segments into SQLite, each once")
    print(f"\n$ slurmgpu report {JOB_ID}", flush=True)
    status = subprocess.run([str(BIN / "slurmgpu"), "report", str(JOB_ID)], env=environment).returncode
    print(f"More: export SLURMGPU_CONF={config}; {os.path.relpath(BIN)}/slurmgpu report {JOB_ID} --format json")
    if status:
        shutil.copyfileobj((keep / "slurmgpud.log").open(), sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
