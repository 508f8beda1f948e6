"""Jobs that slurmctld has on nodes now, with their GPUs.

One question: ``squeue --json``, which carries each job's GRES node by node in every release that has it (21.08 and
later; scontrol's only from 24.11 on) and leaves out jobs that wait from 24.11 on. Else ``scontrol show job -d``, which
users can forge a little (jobdetail says how) and which is read without user, account and partition.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmgpu.slurm._json import dict_of, has_no_json, jobs_of, number_of, states_of, text_of, word_of
from slurmgpu.slurm.commands import Commands
from slurmgpu.slurm.facts import SlurmUnavailableError
from slurmgpu.slurm.hostlist import HostlistError, expand
from slurmgpu.slurm.indices import Gres, GresError, parse_gres
from slurmgpu.slurm.jobdetail import JobDetail, parse_job_detail
from slurmgpu.slurm.times import TimeError, read_time

log = logging.getLogger(__name__)

_STATES = ("COMPLETING", "SUSPENDED", "RUNNING")  # the first that a job has is shown
_ASKED = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED"
_OF_GPUS = ("gpu", "shard", "mps")


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job on its nodes. ``gpus`` has Slurm's ordinals by node, also of shared GPUs; empty where Slurm names none."""

    job_id: int
    state: str  # RUNNING, SUSPENDED or COMPLETING
    start_s: int | None  # epoch seconds
    sluid: str | None
    user: str
    nodes: tuple[str, ...]
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    account: str = ""
    partition: str = ""
    name: str = ""


def running(commands: Commands) -> list[LiveJob]:
    """All jobs that run, are suspended or complete. Raises SlurmUnavailableError."""
    try:
        jobs = jobs_of(commands.run("squeue", "--local", "--all", "--json", f"--states={_ASKED}"), "squeue")
        return [live for job in jobs if (live := _of_record(job))]
    except SlurmUnavailableError as error:
        if commands.find("squeue") is not None and not has_no_json(error):
            raise
        log.info("%s; scontrol is asked for text", error)
    details = parse_job_detail(commands.run("scontrol", "--local", "--all", "show", "job", "-d"))
    return [_of_detail(detail) for detail in details if detail.state in _STATES]


def _of_record(job: dict[str, Any]) -> LiveJob | None:
    states = states_of(job.get("job_state"))
    state = next((state for state in _STATES if state in states), "")
    job_id = number_of(job.get("job_id"))
    if not state or not job_id:
        return None
    try:
        nodes = tuple(expand(word_of(job.get("nodes"))))
    except HostlistError as error:
        log.warning("job %d: %s", job_id, error)
        nodes = ()
    return LiveJob(
        job_id=job_id,
        state=state,
        start_s=number_of(job.get("start_time")) or None,
        sluid=text_of(dict_of(job.get("step_id")).get("sluid")) or None,
        user=word_of(job.get("user_name")),
        nodes=nodes,
        gpus=_gpus_by_node(job_id, nodes, job.get("gres_detail")),
        account=word_of(job.get("account")),
        partition=word_of(job.get("partition")),
        name=text_of(job.get("name")),
    )


def _gpus_by_node(job_id: int, nodes: tuple[str, ...], details: Any) -> dict[str, tuple[int, ...]]:
    """One text for each node, in the order of the node list; none at all for a job without GRES."""
    if not isinstance(details, list) or not details:
        return {}
    if len(details) != len(nodes):
        log.warning("job %d has %d nodes and GRES of %d: not read", job_id, len(nodes), len(details))
        return {}
    try:
        found = {node: _ordinals(parse_gres(text_of(text))) for node, text in zip(nodes, details, strict=True)}
    except GresError as error:
        log.warning("job %d: %s", job_id, error)
        return {}
    return {node: ordinals for node, ordinals in found.items() if ordinals}


def _ordinals(parts: tuple[Gres, ...]) -> tuple[int, ...]:
    return tuple(sorted({index for part in parts if part.name in _OF_GPUS for index in part.indices}))


def _of_detail(detail: JobDetail) -> LiveJob:
    try:
        start_s = read_time(detail.start)
    except TimeError:
        start_s = None
    gpus = {node: ordinals for node, parts in detail.gres.items() if (ordinals := _ordinals(parts))}
    return LiveJob(
        job_id=detail.job_id,
        state=detail.state,
        start_s=start_s,
        sluid=detail.sluid or None,
        user="",
        nodes=tuple(detail.gres),
        gpus=gpus,
        name=detail.name,
    )
