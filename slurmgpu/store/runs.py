"""Which run of a job an allocation belongs to.

Slurm's SLUID or start time says it where the hooks have them (25.11, 23.11). Before that: the allocations of one run
all end with the job, so they overlap in time; two runs of one job id never do, and one node sees a run once.
"""

from __future__ import annotations

from sqlalchemy import Connection, Row, delete, func, or_, select, text, update

from slurmgpu.store.names import insert
from slurmgpu.store.schema import job, job_node
from slurmgpu.wire.records import Allocation

INFERRED = ("boot", "lost", "processes", "slurm")
"""``end_source`` of an end that no hook told."""
_SKEW_MS = 5_000  # clocks of two nodes may differ by this much


def run_of(connection: Connection, cluster_id: int, node_id: int, allocation: Allocation) -> int:
    """The id of the run in ``job``; it is made when this is its first allocation."""
    if connection.dialect.name == "postgresql":  # two collectors must not both find it missing
        connection.execute(
            text("SELECT pg_advisory_xact_lock(:cluster, :job)"),
            {"cluster": cluster_id, "job": allocation.job_id & 0x7FFFFFFF},
        )
    near = (
        select(job)
        .where(job.c.cluster_id == cluster_id, job.c.raw_job_id == allocation.job_id)
        .order_by(job.c.start_ms.desc())
        .limit(50)
    )
    for run in connection.execute(near):
        if _same_run(connection, run, allocation) and not _on_this_node(connection, run.id, node_id, allocation.id):
            return int(run.id)
    made = insert(connection, job).values(
        cluster_id=cluster_id, raw_job_id=allocation.job_id, start_ms=allocation.start_ms, **_facts(allocation)
    )
    return int(connection.execute(made.returning(job.c.id)).scalar_one())


def may_be_of(connection: Connection, run_id: int, allocation: Allocation) -> bool:
    """Whether nothing speaks against an allocation being of this run."""
    run = connection.execute(select(job).where(job.c.id == run_id)).one()
    return _same_run(connection, run, allocation)


def _same_run(connection: Connection, run: Row[tuple[object, ...]], allocation: Allocation) -> bool:
    if run.sluid and allocation.sluid:
        return bool(run.sluid == allocation.sluid)
    if run.slurm_start_s and allocation.slurm_start_s:
        return bool(run.slurm_start_s == allocation.slurm_start_s)
    known = (run.restart_count, allocation.restart_count)
    if None not in known and known[0] != known[1]:
        return False
    if allocation.end_ms is not None and allocation.end_ms < run.start_ms - _SKEW_MS:
        return False
    return run.end_ms is None or allocation.start_ms <= run.end_ms + _SKEW_MS or _end_is_inferred(connection, run.id)


def _end_is_inferred(connection: Connection, run_id: int) -> bool:
    """No hook has told the end of the run on one of its nodes: it may go on."""
    inferred = select(job_node.c.id).where(job_node.c.job_id == run_id, job_node.c.end_source.in_(INFERRED))
    return connection.execute(inferred.limit(1)).first() is not None


def _on_this_node(connection: Connection, run_id: int, node_id: int, allocation: str) -> bool:
    """The node already has another allocation of the run, which hooks began and ended or which goes on."""
    c = job_node.c
    other = select(c.id).where(
        c.job_id == run_id,
        c.node_id == node_id,
        c.allocation != allocation,
        c.source != "slurm",
        or_(c.end_source.is_(None), c.end_source.not_in(INFERRED)),
    )
    return connection.execute(other.limit(1)).first() is not None


def refresh(connection: Connection, run_id: int, allocation: Allocation) -> None:
    """Bring a run's facts and times in step with its allocations."""
    values = {name: func.coalesce(job.c[name], value) for name, value in _facts(allocation).items()}
    connection.execute(update(job).where(job.c.id == run_id).values(**values))
    refresh_times(connection, run_id)


def refresh_times(connection: Connection, run_id: int) -> None:
    """Bring a run's times in step with its allocations."""
    times = connection.execute(
        select(
            func.min(job_node.c.start_ms),
            func.max(job_node.c.end_ms),
            func.count().filter(job_node.c.end_ms.is_(None)),
            func.max(job_node.c.exit_code),
        ).where(job_node.c.job_id == run_id)
    ).one()
    start_ms, end_ms, still_open, exit_code = times
    values = {"start_ms": start_ms, "end_ms": None if still_open else end_ms, "exit_code": exit_code}
    connection.execute(update(job).where(job.c.id == run_id).values(**values))


def join(connection: Connection, run_id: int, other_id: int) -> None:
    """Two that were taken for two runs are one: the other's allocations are the first one's, and the other goes."""
    connection.execute(update(job_node).where(job_node.c.job_id == other_id).values(job_id=run_id))
    connection.execute(delete(job).where(job.c.id == other_id))
    refresh_times(connection, run_id)


def _facts(allocation: Allocation) -> dict[str, object]:
    return {
        "restart_count": allocation.restart_count,
        "slurm_start_s": allocation.slurm_start_s,
        "sluid": allocation.sluid,
        "het_job_id": allocation.het_job_id,
        "user_name": allocation.user,
        "uid": allocation.uid,
        "account": allocation.account,
        "partition": allocation.partition,
        "nodelist": allocation.nodelist,
    }
