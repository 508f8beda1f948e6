"""A process for pyslurm: ``python -m slurmgpu.slurm.pyslurm_worker``, JSON on standard input and output.

pyslurm ends its process when it finds no usable configuration, and holds the interpreter's lock in every call; so it
lives here, for one question. Asked ``{"ids": [15]}`` it answers ``{"jobs": [{...}]}`` or ``{"error": "..."}``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Named as in pyslurm. Nothing of steps: their getters raise.
_NUMBERS = (
    *("id", "array_id", "array_task_id", "heterogeneous_id", "heterogeneous_offset", "requeue_count"),
    *("submit_time", "start_time", "end_time", "time_limit", "exit_code", "exit_code_signal"),
)
_TEXTS = ("name", "user_name", "account", "partition", "qos", "state", "nodelist")


def main() -> None:
    """Answer one question."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what libslurm prints is not part of the answer
    ids = json.load(sys.stdin)["ids"]
    try:
        found: dict[str, Any] = {"jobs": _load(ids)}
    except Exception as error:  # whatever a pyslurm of another release raises, it ends here
        found = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        json.dump(found, out)


def _load(ids: list[int]) -> list[dict[str, Any]]:
    import pyslurm

    jobs = pyslurm.db.Jobs.load(pyslurm.db.JobFilter(ids=ids))
    return [_record(job) for job in jobs.values()]


def _record(job: Any) -> dict[str, Any]:
    record: dict[str, Any] = {name: _number(getattr(job, name, None)) for name in _NUMBERS}
    record |= {name: str(getattr(job, name, None) or "") for name in _TEXTS}
    record["gpus"] = {str(name): _number(gpu.count) for name, gpu in (getattr(job, "gpus", None) or {}).items()}
    return record


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


if __name__ == "__main__":
    main()
