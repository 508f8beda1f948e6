"""Budget: a hook costs at most 3 ms more than an empty script; ``slurmgpu --version`` at most 100 ms."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bench.timing import in_turn  # noqa: E402

RUNS = 300


def main() -> int:
    """Print the figures; 1 when a budget is not kept."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        empty = Path(folder, "empty.sh")
        empty.write_text("#!/bin/sh\nexit 0\n")
        empty.chmod(0o755)
        environment = _hook_environment(folder)
        commands = {"empty script": [str(empty)]}
        commands |= {hook: [str(ROOT / hook / "slurmgpu")] for hook in ("prolog", "epilog")}
        timed = in_turn(commands, RUNS, environment)
        version = in_turn({"version": [str(Path(sys.executable).with_name("slurmgpu")), "--version"]}, 20, {})[
            "version"
        ]
    base = timed["empty script"].median_ms
    print(f"{'':<20} {'median ms':>9}  {'10 % to 90 %':>16}  {'more, ms':>8}  budget")
    for name, item in timed.items():
        more = "" if name == "empty script" else f"{item.median_ms - base:8.2f}  3 ms"
        print(f"{name:<20} {item.median_ms:9.2f}  {item.spread:>16}  {more}")
    print(f"{'slurmgpu --version':<20} {version.median_ms:9.2f}  {version.spread:>16}  {'':8}  100 ms in all")
    kept = all(timed[hook].median_ms - base <= 3 for hook in ("prolog", "epilog")) and version.median_ms <= 100
    return 0 if kept else 1


def _hook_environment(folder: str) -> dict[str, str]:
    """What slurmd gives to a hook, by a recorded one, and where the mark goes."""
    recorded = (ROOT / "tests" / "data" / "slurm-env" / "22.05.prolog.plain.n1.env").read_text()
    return dict(line.split("=", 1) for line in recorded.splitlines()) | {"SLURMGPU_RUN_DIR": folder}


if __name__ == "__main__":
    sys.exit(main())
