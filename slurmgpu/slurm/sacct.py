"""What ``sacct`` prints of runs: its parsable text and its JSON."""

from __future__ import annotations

import re
from typing import Any

from slurmgpu.slurm._json import base_state, dict_of, jobs_of, number_of, states_of, text_of, word_of
from slurmgpu.slurm.facts import FINAL_STATES, JobFacts, NoAnswerReadError
from slurmgpu.slurm.indices import GresError, gpu_count, parse_tres
from slurmgpu.slurm.times import TimeError, read_time

# Text of users stands last.
COLUMNS = (
    *("JobIDRaw", "JobID", "State", "ExitCode", "Submit", "Start", "End", "TimelimitRaw", "AllocTRES"),
    *("User", "Account", "Partition", "QOS", "NodeList"),
)
NEWER_COLUMNS = ("Restarts", "SLUID")  # 24.11
LAST_COLUMN = "JobName"

_NUMBER = re.compile(r"[0-9]{1,10}")
_JOB_ID = re.compile(r"(?P<job>[0-9]{1,10})(?:_(?:(?P<task>[0-9]{1,10})|\[.*)|\+(?P<offset>[0-9]{1,10}))?")
_EXIT_CODE = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")


def parse_text(text: str, columns: tuple[str, ...], delimiter: str) -> list[JobFacts]:
    """The runs of ``sacct -n -p``, where the delimiter also ends a record. Raises NoAnswerReadError.

    No user can know the delimiter of a call, so whatever stands in a name, the fields can be counted.
    """
    fields = text.split(delimiter)
    if (len(fields) - 1) % len(columns) or fields[-1].strip():
        raise NoAnswerReadError("sacct: unreadable answer: its fields do not come out even")
    runs = []
    for at in range(0, len(fields) - 1, len(columns)):
        row = dict(zip(columns, fields[at : at + len(columns)], strict=True))
        row["JobIDRaw"] = row["JobIDRaw"].removeprefix("\n")
        if _NUMBER.fullmatch(row["JobIDRaw"]):
            runs.append(_of_row(row))
    return runs


def _of_row(row: dict[str, str]) -> JobFacts:
    ids = _JOB_ID.fullmatch(row["JobID"])
    is_array, is_het = "_" in row["JobID"], "+" in row["JobID"]
    state = base_state(states_of(row["State"]))
    codes = _EXIT_CODE.fullmatch(row["ExitCode"]) if state in FINAL_STATES else None
    minutes = _number(row["TimelimitRaw"])
    return JobFacts(
        job_id=int(row["JobIDRaw"]),
        start_s=_time(row["Start"]),
        end_s=_time(row["End"]),
        submit_s=_time(row["Submit"]),
        sluid=row.get("SLUID") or None,
        restarts=_number(row.get("Restarts")),
        name=row[LAST_COLUMN],
        array_job_id=_number(ids["job"]) if ids and is_array else None,
        array_task=_number(ids["task"]) if ids else None,
        het_job_id=_number(ids["job"]) if ids and is_het else None,
        het_offset=_number(ids["offset"]) if ids else None,
        user=word_of(row["User"]),
        account=word_of(row["Account"]),
        partition=word_of(row["Partition"]),
        qos=word_of(row["QOS"]),
        state=state,
        exit_code=int(codes[1]) if codes else None,
        exit_signal=int(codes[2]) if codes else None,
        time_limit_s=None if minutes is None else minutes * 60,
        nodelist=word_of(row["NodeList"]),
        gpus=_gpus_of_text(row["AllocTRES"]),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None


def _time(text: str) -> int | None:
    try:
        return read_time(text)
    except TimeError:
        return None


def _gpus_of_text(text: str) -> int | None:
    try:
        return _gpus(parse_tres(text))
    except GresError:
        return None


def _gpus(tres: dict[str, int]) -> int | None:
    """Shards, MPS, or a site that does not account for GPUs: no entry, which is not "no GPU"."""
    return gpu_count(tres) if any(key.split(":")[0] == "gres/gpu" for key in tres) else None


def parse_json(text: str) -> list[JobFacts]:
    """The runs of ``sacct --json``. Raises SlurmUnavailableError.

    Not for 22.05: its exit codes are 0 for every job that ended by itself.
    """
    return [_of_record(job) for job in jobs_of(text, "sacct") if number_of(job.get("job_id"))]


def _of_record(job: dict[str, Any]) -> JobFacts:
    time, array, het = dict_of(job.get("time")), dict_of(job.get("array")), dict_of(job.get("het"))
    state = base_state(states_of(dict_of(job.get("state")).get("current")))
    code, signal = _exit(dict_of(job.get("exit_code"))) if state in FINAL_STATES else (None, None)
    minutes = number_of(time.get("limit"))
    array_job_id, het_job_id = number_of(array.get("job_id")) or None, number_of(het.get("job_id")) or None
    return JobFacts(
        job_id=number_of(job.get("job_id")) or 0,
        start_s=number_of(time.get("start")) or None,
        end_s=number_of(time.get("end")) or None,
        submit_s=number_of(time.get("submission")) or None,
        sluid=text_of(job.get("sluid")) or None,
        restarts=number_of(job.get("restart_cnt")),
        name=text_of(job.get("name")),
        array_job_id=array_job_id,
        array_task=number_of(array.get("task_id")) if array_job_id else None,
        het_job_id=het_job_id,
        het_offset=number_of(het.get("job_offset")) if het_job_id else None,
        user=word_of(job.get("user")) or word_of(dict_of(job.get("association")).get("user")),
        account=word_of(job.get("account")),
        partition=word_of(job.get("partition")),
        qos=word_of(job.get("qos")),
        state=state,
        exit_code=code,
        exit_signal=signal,
        time_limit_s=None if minutes is None else minutes * 60,
        nodelist=word_of(job.get("nodes")),
        gpus=_gpus_of_list(dict_of(job.get("tres")).get("allocated")),
    )


def _exit(exit_code: dict[str, Any]) -> tuple[int | None, int | None]:
    """Exit code and signal, as sacct's text has them: 0 beside a signal, and signal 0 beside a code."""
    code = number_of(exit_code.get("return_code"))
    signal = dict_of(exit_code.get("signal"))
    number = number_of(signal.get("id", signal.get("signal_id")))
    return (code or 0, number or 0) if (code, number) != (None, None) else (None, None)


def _gpus_of_list(entries: Any) -> int | None:
    tres = {}
    for entry in entries if isinstance(entries, list) else ():
        count = number_of(dict_of(entry).get("count"))
        if count is not None and entry.get("type") == "gres":
            tres[f"gres/{text_of(entry.get('name'))}"] = count
    return _gpus(tres)
