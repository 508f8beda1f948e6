"""The store in step with Slurm: facts of jobs, ends that no epilog told, owners that no mark named.

Asked in batches and seldom: one question to the accounting in an interval, and one to slurmctld in five.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

from sqlalchemy import Engine, Row

from slurmgpu.collect import live_jobs
from slurmgpu.config import SlurmConfig
from slurmgpu.slurm.accounting import MAX_IDS, Accounting
from slurmgpu.slurm.facts import JobFacts, SlurmUnavailableError
from slurmgpu.slurm.live import LiveJob, running
from slurmgpu.store import correct, facts, late

log = logging.getLogger(__name__)

_SKEW_S = 5
_MARGIN_S = 3600
_LIVE_EVERY = 5  # intervals
_BACK_OFF_S = (60.0, 1800.0)


@dataclass(slots=True)
class _Answer:
    facts: list[JobFacts]
    live: list[LiveJob] | None


class Accounts:
    """Asks Slurm in a thread of its own, so that segments never wait for it."""

    def __init__(self, engine: Engine, config: SlurmConfig, cluster: str, accounting: Accounting) -> None:
        self._engine = engine.execution_options(slurmgpu_writing=True)
        self._config = config
        self._cluster = cluster
        self._accounting = accounting
        self._pending: Future[_Answer] | None = None
        self._asked: Sequence[Row[Any]] = ()
        self._cluster_id: int | None = None
        self._next_s = 0.0
        self._intervals = 0
        self._back_off_s = _BACK_OFF_S[0]
        self._complaint = ""

    def tick(self, monotonic_s: float, wall_s: float) -> None:
        """Called often: asks when it is time to, and takes in an answer that has come. Raises SQLAlchemyError."""
        if self._pending is not None and self._pending.done():
            pending, self._pending = self._pending, None
            self._take(pending, monotonic_s, round(wall_s * 1000))
        if self._pending is None and monotonic_s >= self._next_s:
            self._next_s = monotonic_s + self._config.every
            self._ask(round(wall_s * 1000))

    def finish(self, monotonic_s: float, wall_s: float) -> None:
        """Ask now and wait for the answer: for a single pass. Raises SQLAlchemyError."""
        self._next_s = 0.0
        self.tick(monotonic_s, wall_s)
        if self._pending is not None:
            self._pending.exception()
            self.tick(monotonic_s, wall_s)

    def _ask(self, now_ms: int) -> None:
        with self._engine.begin() as connection:
            late.settle(connection, now_ms)
            self._cluster_id = facts.local_cluster(connection, self._cluster)
            if self._cluster_id is None or not self._config.ask:
                return
            look_back_ms = round(self._config.look_back * 1000)
            self._asked = facts.wanted(connection, self._cluster_id, now_ms, look_back_ms, MAX_IDS)
        with_live = self._intervals % _LIVE_EVERY == 0
        self._intervals += 1
        ids = {row.raw_job_id for row in self._asked}
        since_s = min((row.start_ms for row in self._asked), default=now_ms) // 1000 - _MARGIN_S
        if ids or with_live:
            self._pending = Future()
            arguments = (self._pending, ids, since_s, with_live)
            Thread(target=self._question, args=arguments, name="slurm", daemon=True).start()  # it holds up no end

    def _question(self, answer: Future[_Answer], ids: set[int], since_s: int, with_live: bool) -> None:
        try:
            found = self._accounting.runs(ids, since_s) if ids else []
            answer.set_result(_Answer(found, running(self._accounting.commands) if with_live else None))
        except BaseException as error:
            answer.set_exception(error)

    def _take(self, pending: Future[_Answer], monotonic_s: float, now_ms: int) -> None:
        try:
            answer = pending.result()
        except SlurmUnavailableError as error:
            self._next_s = monotonic_s + max(self._back_off_s, self._config.every)
            self._back_off_s = min(2 * self._back_off_s, _BACK_OFF_S[1])
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("Slurm cannot be asked: %s; jobs lack names and states until it can", error)
            return
        if self._complaint:
            log.info("Slurm answers again")
        self._complaint, self._back_off_s = "", _BACK_OFF_S[0]
        by_job: dict[int, list[JobFacts]] = defaultdict(list)
        for item in answer.facts:
            by_job[item.job_id].append(item)
        with self._engine.begin() as connection:
            for run in self._asked:
                candidates = by_job[run.raw_job_id]
                found = match(run, candidates)
                run_id = facts.learn(connection, run.id, now_ms, _values(found) if found else {})
                if found and found.is_final and found.start_s is not None and found.end_s is not None:
                    span_ms = (found.start_s * 1000, found.end_s * 1000)
                    was_resized = any(item.state.startswith("RESIZ") for item in candidates)
                    done = correct.by_slurm(connection, run_id, span_ms, now_ms, may_widen=not was_resized)
                    facts.finish(connection, run_id, done=done)
            if answer.live is not None and self._cluster_id is not None:
                live_jobs.take(connection, self._cluster_id, answer.live, now_ms)
                facts.ask_again(connection, self._cluster_id, {job.job_id for job in answer.live}, now_ms)
            late.settle(connection, now_ms)


def match(run: Row[Any], candidates: Iterable[JobFacts]) -> JobFacts | None:
    """Slurm's record of a run: by SLUID or start where the node knew them, else the run that was going on then."""
    found = [item for item in candidates if item.start_s is not None]
    for item in found:
        if run.sluid and item.sluid:
            if run.sluid == item.sluid:
                return item
        elif run.slurm_start_s == item.start_s:
            return item
    if run.sluid and any(item.sluid for item in found):
        return None
    if run.slurm_start_s:
        return None
    began_s = run.start_ms // 1000
    fitting = [
        item
        for item in found
        if (item.start_s or 0) <= began_s + _SKEW_S and (item.end_s is None or item.end_s >= began_s - _SKEW_S)
    ]
    return max(fitting, key=lambda item: item.start_s or 0, default=None)


def _values(item: JobFacts) -> dict[str, Any]:
    values = {
        "name": item.name,
        "array_job_id": item.array_job_id,
        "array_task": item.array_task,
        "het_job_id": item.het_job_id,
        "het_offset": item.het_offset,
        "user_name": item.user,
        "account": item.account,
        "partition": item.partition,
        "qos": item.qos,
        "state": item.state,
        "slurm_exit_code": item.exit_code,
        "slurm_exit_signal": item.exit_signal,
        "submit_s": item.submit_s,
        "slurm_start_s": item.start_s,
        "slurm_end_s": item.end_s,
        "time_limit_s": item.time_limit_s,
        "nodelist": item.nodelist,
        "slurm_gpus": item.gpus,
        "sluid": item.sluid,
    }
    return {name: value for name, value in values.items() if value not in (None, "")}
