"""Facts of jobs through pyslurm, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import slurmgpu
from slurmgpu.slurm._json import base_state, number_of, states_of, text_of, word_of
from slurmgpu.slurm.commands import check_configuration, run_child, slurm_environment
from slurmgpu.slurm.facts import FINAL_STATES, JobFacts, SlurmUnavailableError

_MAX_ANSWER_BYTES = 64 << 20


def is_installed() -> bool:
    """Whether there is a pyslurm; whether it works shows when it is asked."""
    return importlib.util.find_spec("pyslurm") is not None


def ask(job_ids: Collection[int], deadline_s: float) -> list[JobFacts]:
    """The newest run of each id, and members of arrays and het jobs. Raises SlurmUnavailableError."""
    environment = slurm_environment(os.environ)
    check_configuration(environment)
    words = [sys.executable, "-m", "slurmgpu.slurm.pyslurm_worker"]
    question = json.dumps({"ids": sorted(job_ids)}).encode()
    home = str(Path(slurmgpu.__file__).parents[1])
    done = run_child(words, environment, deadline_s, _MAX_ANSWER_BYTES, question, home)
    try:
        answer = json.loads(done.out)
        if "error" in answer:
            raise SlurmUnavailableError(f"pyslurm: {text_of(answer['error'])}")
        return [_of_record(record) for record in answer["jobs"]]
    except (ValueError, TypeError, KeyError):  # it ended its process, as it does without a usable configuration
        raise SlurmUnavailableError(f"pyslurm ended without an answer: {done.complaint()}") from None


def _of_record(job: dict[str, Any]) -> JobFacts:
    state = base_state(states_of(job["state"]))
    is_final = state in FINAL_STATES
    minutes = number_of(job["time_limit"])
    start_s, array_job_id, het_job_id = number_of(job["start_time"]) or None, job["array_id"], job["heterogeneous_id"]
    return JobFacts(
        job_id=int(job["id"]),
        start_s=start_s,
        end_s=number_of(job["end_time"]) or None,
        submit_s=number_of(job["submit_time"]) or None,
        sluid=None,
        restarts=number_of(job["requeue_count"]),
        name=text_of(job["name"]),
        array_job_id=array_job_id,
        array_task=number_of(job["array_task_id"]) if array_job_id else None,
        het_job_id=het_job_id,
        het_offset=(number_of(job["heterogeneous_offset"]) or 0) if het_job_id else None,  # None for the leader
        user=word_of(job["user_name"]),
        account=word_of(job["account"]),
        partition=word_of(job["partition"]),
        qos=word_of(job["qos"]),
        state=state,
        exit_code=number_of(job["exit_code"]) if is_final else None,
        exit_signal=number_of(job["exit_code_signal"]) if is_final else None,
        time_limit_s=None if minutes is None else minutes * 60,
        nodelist=word_of(job["nodelist"]),
        gpus=_gpus(job["gpus"]) if start_s else None,  # before that, what was asked for
    )


def _gpus(counts: dict[str, int | None]) -> int | None:
    """``gpu`` is the sum of the typed entries beside it."""
    if "gpu" in counts:
        return counts["gpu"]
    return sum(count or 0 for count in counts.values()) if counts else None
