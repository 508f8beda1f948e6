"""What this node's own driver says, asked of the node program: nothing else here talks to NVML."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

_DEADLINE_S = 60


class LocalError(Exception):
    """The node program cannot say; the message tells why."""


def inventory(config: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The node (cluster, node, GPUs that the driver counts) and a record for each GPU that answers.

    Raises :class:`LocalError`.
    """
    beside = Path(sys.executable).with_name("slurmgpud")
    program = str(beside) if beside.exists() else shutil.which("slurmgpud")
    if program is None:
        raise LocalError("slurmgpud is not installed beside slurmgpu")
    command = [program, "--inventory", *(["--config", config] if config else [])]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise LocalError(f"the driver has not answered for {_DEADLINE_S} s") from error
    if result.returncode:
        words = result.stderr.strip().splitlines() or ["slurmgpud failed"]
        raise LocalError(words[-1].removeprefix("slurmgpud: "))
    head, *records = [json.loads(line) for line in result.stdout.splitlines()]
    return head, records
