"""What Slurm's accounting says of runs, kept beside what the nodes saw."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select, update

from slurmgpu.store import runs
from slurmgpu.store.schema import cluster, job

_RUNNING_AGAIN_MS = 600_000  # a job that runs changes little
_JUST_STARTED_MS = 2_000  # by its node's clock


def local_cluster(connection: Connection, configured: str) -> int | None:
    """The cluster that this host's Slurm commands speak for: as configured, else the only one there is."""
    known = {name: cluster_id for name, cluster_id in connection.execute(select(cluster.c.name, cluster.c.id))}
    if configured:
        return known.get(configured)
    return next(iter(known.values())) if len(known) == 1 else None


def wanted(connection: Connection, cluster_id: int, now_ms: int, look_back_ms: int, limit: int) -> Sequence[Row[Any]]:
    """Runs of which Slurm should be asked now: those never asked of, those that ended, those that run and have long
    not been asked of. A run of which Slurm says nothing final is asked of ever less often, until it is too old.
    """
    since_end = now_ms - job.c.end_ms
    again = or_(
        job.c.asked_ms.is_(None),
        and_(job.c.end_ms.is_(None), job.c.asked_ms < now_ms - _RUNNING_AGAIN_MS),
        and_(job.c.end_ms.is_not(None), now_ms - job.c.asked_ms > since_end / 8),
    )
    young = or_(job.c.end_ms.is_(None), job.c.end_ms > now_ms - look_back_ms)
    query = (
        select(job)
        .where(job.c.cluster_id == cluster_id, job.c.is_final.is_(False), again, young)
        .order_by(job.c.asked_ms.is_not(None), job.c.end_ms.is_(None), job.c.asked_ms)
        .limit(limit)
    )
    return connection.execute(query).all()


def ask_again(connection: Connection, cluster_id: int, running: Collection[int], now_ms: int) -> None:
    """Runs that go on here though Slurm no longer has their job running: to be asked of next."""
    query = select(job.c.id, job.c.raw_job_id).where(
        job.c.cluster_id == cluster_id,
        job.c.end_ms.is_(None),
        job.c.is_final.is_(False),
        job.c.asked_ms.is_not(None),
        job.c.start_ms < now_ms - _JUST_STARTED_MS,
    )
    for row in connection.execute(query).all():
        if row.raw_job_id not in running:
            connection.execute(update(job).where(job.c.id == row.id).values(asked_ms=None))


def learn(connection: Connection, run_id: int, now_ms: int, values: Mapping[str, Any]) -> int:
    """Keep Slurm's word on a run, or with no values that it had none; the run's id, for two runs may prove one."""
    known = connection.execute(select(job).where(job.c.id == run_id)).first()
    if known is None:
        return run_id  # joined with another one meanwhile
    start_s = values.get("slurm_start_s")
    if start_s:
        same = select(func.min(job.c.id)).where(
            job.c.cluster_id == known.cluster_id, job.c.raw_job_id == known.raw_job_id, job.c.slurm_start_s == start_s
        )
        first = connection.execute(same).scalar()
        if first is not None and first != run_id:
            runs.join(connection, first, run_id)
            run_id = first
    connection.execute(update(job).where(job.c.id == run_id).values(asked_ms=now_ms, **values))
    return run_id


def finish(connection: Connection, run_id: int, *, done: bool) -> None:
    """Whether all is known of a run that has ended; what is not done is asked for again."""
    connection.execute(update(job).where(job.c.id == run_id).values(is_final=done))
