"""All budgets, one after the other: ``make bench``. The exit status says whether all were kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = (["hooks.py"], ["sampling.py"], ["marks.py"], ["endurance.py", "60"], ["storage.py"])


def main() -> int:
    """Run each part in a process of its own."""
    kept = True
    for part in PARTS:
        print(f"== {part[0]}", flush=True)
        kept &= subprocess.run([sys.executable, str(HERE / part[0]), *part[1:]], check=False).returncode == 0
    print("all budgets kept" if kept else "A BUDGET WAS NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
