"""What the processes on the GPUs say of owners: looked at where the marks do not explain them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slurmgpu.node.pids import Pids, ProcessJob, Stepds
from slurmgpu.node.processes import GpuProcess


@dataclass(frozen=True, slots=True)
class Testimony:
    """A process of a job on a GPU. ``began``: unix seconds; ``source`` as in :class:`ProcessJob`."""

    gpu: str
    pid: int
    job_id: int
    source: str
    sluid: str | None
    began: float
    uid: int | None
    job_is_here: bool  # a slurmstepd of the job lives


@dataclass(slots=True)
class Look:
    """What one look at the processes of all GPUs found. ``jobs``: those that are on this node, where it was asked."""

    testimonies: list[Testimony]
    jobs: set[int] | None = None


class Witness:
    """Looks at processes. ``knows`` says whether a job holds a GPU by what is known already; then nothing is asked."""

    def __init__(self, pids: Pids, wall: Callable[[], float] = time.time) -> None:
        self._pids = pids
        self._wall = wall

    def look(
        self,
        processes: Mapping[str, Iterable[GpuProcess]],
        knows: Callable[[str, ProcessJob], bool],
        job_of_sluid: Callable[[str], int | None],
        *,
        count_jobs: bool = False,
    ) -> Look:
        """The processes that are not explained. ``count_jobs``: say which jobs are here in any case."""
        strange: list[tuple[str, int, ProcessJob | None]] = []
        for gpu, listed in processes.items():
            for pid in {process.pid for process in listed}:
                job = self._pids.job_of(pid)
                if job is None or not knows(gpu, job):
                    strange.append((gpu, pid, job))
        if not strange and not count_jobs:
            return Look([])
        stepds = self._pids.stepds()
        found = (self._testimony(gpu, pid, job, stepds, job_of_sluid) for gpu, pid, job in strange)
        return Look([item for item in found if item is not None], stepds.jobs)

    def _testimony(
        self,
        gpu: str,
        pid: int,
        job: ProcessJob | None,
        stepds: Stepds,
        job_of_sluid: Callable[[str], int | None],
    ) -> Testimony | None:
        if job is None and not stepds.in_cgroups:
            job = self._pids.by_environment(pid)
        if job is None:
            return None
        job_id = job.job_id
        if job_id is None and job.sluid:
            job_id = stepds.by_sluid.get(job.sluid) or job_of_sluid(job.sluid)
        age_s = self._pids.age_s(pid)
        if job_id is None or age_s is None:
            return None
        here = job_id in stepds.jobs
        return Testimony(gpu, pid, job_id, job.source, job.sluid, self._wall() - age_s, self._pids.uid_of(pid), here)
