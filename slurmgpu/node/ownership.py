"""GPU → job, as half-open intervals: from the hooks' marks, and where those are missing from processes.

Marks win. A disagreement is an event, and so is a process that outlives its job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slurmgpu.node.gpunames import NodeGpuNames
from slurmgpu.node.identity import Identity
from slurmgpu.node.marks import Mark
from slurmgpu.node.nvml import Device
from slurmgpu.node.pids import ProcessJob
from slurmgpu.node.witness import Look, Testimony
from slurmgpu.wire.records import Allocation, Event, HeldGpu

_MOST_ENDED = 10_000  # jobs whose end is remembered
_MOST_TOLD = 10_000
_OF_A_RUN = ("SLURM_JOB_GPUS", "SLURM_JOB_SLUID", "SLURM_JOB_START_TIME", "SLURM_JOB_RESTART_COUNT")
_AGAIN_S = 60.0

Key = tuple[str, str, int]
"""Cluster, node and raw job id: two clusters' slurmd may share a machine, and its hooks a folder."""


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """From ``t`` (unix seconds) on the GPU belongs to these allocations, by their ids."""

    t: float
    gpu: str
    owners: tuple[str, ...]


@dataclass(slots=True)
class News:
    """What was learnt: changes of owner in the order of time, records to hand over, marks that are done with."""

    changes: list[OwnerChange] = field(default_factory=list)
    records: list[Allocation | Event] = field(default_factory=list)
    finished: list[Mark] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    """An allocation that is open. ``stepped_s``: by how much the wall clock was set since it began."""

    allocation: Allocation
    marks: list[Mark]
    stepped_s: float = 0.0
    seen_t: float = 0.0  # of one without marks: when its job was last seen here

    @property
    def witnessed(self) -> bool:
        return not self.marks


class Ownership:
    """The allocations that are open on this node.

    A prolog opens one. An epilog closes the open allocation of its raw job id, whatever its restart count says. A
    prolog of a job id that is still open means that its epilog was lost: the old run ends where the new one starts.
    Without marks, a job owns the GPUs that its processes run on, while a slurmstepd of it lives.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._names = NodeGpuNames()
        self._open: dict[Key, _Held] = {}
        self._by_id: dict[str, _Held] = {}
        self._ended: dict[Key, Allocation] = {}
        self._epilogs: dict[Key, Mark] = {}  # the latest of each job
        self._owners: dict[str, tuple[str, ...]] = {}
        self._followed: set[str] = set()
        self._told: set[tuple[object, ...]] = set()
        self._suspects: set[tuple[str, int]] = set()

    def set_devices(self, devices: Iterable[Device]) -> None:
        """The GPUs of the node as they are now."""
        self._names.set_devices(devices)

    def ordinal_of(self, uuid: str) -> int | None:
        """Slurm's number of a GPU; None where it is not known."""
        return self._names.current(self._identity.node).ordinals.get(uuid)

    def owners(self, uuid: str) -> tuple[str, ...]:
        """The ids of the allocations that hold the GPU now."""
        return self._owners.get(uuid, ())

    def job_of(self, allocation: str) -> int | None:
        """The raw job id of an open allocation."""
        held = self._by_id.get(allocation)
        return held.allocation.job_id if held else None

    def open_allocations(self) -> list[Allocation]:
        """All that are open now."""
        return [held.allocation for held in self._open.values()]

    def witnessed(self) -> list[Allocation]:
        """Those that no mark speaks for."""
        return [held.allocation for held in self._open.values() if held.witnessed]

    # -- marks

    def take(self, marks: Iterable[Mark]) -> News:
        """Follow all marks of the folder, oldest first; those that were followed before are passed over."""
        news = News()
        for mark in marks:
            if not self.is_new(mark):
                continue
            self._followed.add(str(mark.path))
            if mark.hook == "prolog":
                self._start(mark, news)
            else:
                self._end(mark, news)
        return news

    def resolve_again(self) -> News:
        """GPUs are there that were not: what marks named and nothing answered to is theirs from now on."""
        news = News()
        for held in self._open.values():
            if not held.allocation.unresolved or held.witnessed:
                continue
            gpus, unresolved = self._names.current(self._identity.node, held.marks[0].get("SLURM_CONF")).resolve(
                held.marks[0]
            )
            if unresolved == held.allocation.unresolved:
                continue
            had = {gpu.uuid for gpu in held.allocation.gpus}
            self._change(held, news, gpus=gpus, unresolved=unresolved)
            for gpu in gpus:
                if gpu.uuid not in had:  # from the beginning: there are no readings of it yet
                    t = held.allocation.start_ms / 1000 + held.stepped_s
                    self._set(t, gpu.uuid, (*self.owners(gpu.uuid), held.allocation.id), news)
        return news

    def is_new(self, mark: Mark) -> bool:
        """Whether the mark has not been followed yet."""
        return str(mark.path) not in self._followed

    def forget(self, mark: Mark) -> None:
        """The mark's file is gone."""
        self._followed.discard(str(mark.path))

    def clock_was_set(self, by_s: float) -> None:
        """The wall clock moved: what is open keeps its start, and its length stays true."""
        for held in self._open.values():
            held.stepped_s += by_s

    def _key(self, mark: Mark) -> Key:
        cluster = mark.get("SLURM_CLUSTER_NAME") or self._identity.cluster
        return cluster, mark.get("SLURMD_NODENAME") or self._identity.node, mark.job_id

    def _start(self, mark: Mark, news: News) -> None:
        key = self._key(mark)
        before = self._open.get(key)
        if before is not None and before.witnessed:
            self._adopt(before, mark, news)
            return
        if before is not None and _again(before.marks[0], mark):
            before.marks.append(mark)
            return
        if before is not None:
            self._close(key, before, mark.t, "prolog", None, news)
        allocation = self._allocation(key, mark, round((mark.t - mark.stepped_s) * 1000), None, "prolog")
        self._keep(key, _Held(allocation, [mark], mark.stepped_s))
        news.records.append(allocation)
        if allocation.unresolved:
            news.records.append(_unresolved(allocation, mark))
        for gpu in allocation.gpus:
            self._set(mark.t, gpu.uuid, (*self.owners(gpu.uuid), allocation.id), news)

    def _adopt(self, held: _Held, mark: Mark, news: News) -> None:
        """The prolog of a job whose processes were seen before it: the same run, with the GPUs that the mark says."""
        old = held.allocation
        fresh = self._allocation(self._key(mark), mark, old.start_ms, None, old.source)
        held.allocation = replace(fresh, id=old.id)
        held.marks.append(mark)
        news.records.append(held.allocation)
        kept = {gpu.uuid for gpu in held.allocation.gpus}
        for gpu in {gpu.uuid for gpu in old.gpus} - kept:
            self._release(mark.t, gpu, old.id, news)
            self._tell(news, (old.id, gpu), _disagrees(mark.t, old, gpu, "its prolog names other GPUs"))
        for gpu in kept - {gpu.uuid for gpu in old.gpus}:
            self._set(mark.t, gpu, (*self.owners(gpu), old.id), news)

    def _end(self, mark: Mark, news: News) -> None:
        key = self._key(mark)
        held = self._open.get(key)
        exit_code = mark.number("SLURM_JOB_EXIT_CODE")
        if held is not None:
            named, _ = self._resolve(mark)
            had = {gpu.uuid for gpu in held.allocation.gpus}
            late = tuple(replace(gpu, told="epilog") for gpu in named if gpu.uuid not in had)
            if late:  # the prolog did not name them: readings up to now went to nobody
                self._change(held, news, gpus=(*held.allocation.gpus, *late))
            held.marks.append(mark)
            self._close(key, held, mark.t, "epilog", exit_code, news)
            self._epilogs[key] = mark
            return
        before = self._epilogs.get(key)
        if before is not None and _again(before, mark):
            news.finished.append(mark)
            return
        # No prolog ran, or its mark is lost: what the epilog says is all there is.
        end_ms = round((mark.t - mark.stepped_s) * 1000)
        start_s = mark.number("SLURM_JOB_START_TIME")
        start_ms = min(start_s * 1000, end_ms) if start_s else end_ms
        made = self._allocation(key, mark, start_ms, end_ms, "epilog")
        made = replace(
            made,
            exit_code=exit_code,
            end_source="epilog",
            restart_count=None,  # it may already be that of the next run
            gpus=tuple(replace(gpu, told="epilog") for gpu in made.gpus),
        )
        self._remember(key, made)
        news.records.append(made)
        news.finished.append(mark)

    def _close(self, key: Key, held: _Held, t: float, source: str, exit_code: int | None, news: News) -> None:
        end_ms = max(round((t - held.stepped_s) * 1000), held.allocation.start_ms)
        closed = replace(held.allocation, end_ms=end_ms, end_source=source, exit_code=exit_code)
        del self._open[key]
        del self._by_id[closed.id]
        self._remember(key, closed)
        news.records.append(closed)
        news.finished += held.marks
        for gpu in closed.gpus:
            self._release(t, gpu.uuid, closed.id, news)

    # -- processes

    def knows(self, gpu: str, job: ProcessJob) -> bool:
        """Whether the job holds the GPU by what is known."""
        return any(self.is_of(owner, job) for owner in self.owners(gpu))

    def is_of(self, allocation: str, job: ProcessJob) -> bool:
        """Whether an open allocation is of the job."""
        known = self._by_id[allocation].allocation
        return known.job_id == job.job_id or bool(job.sluid and known.sluid == job.sluid)

    def job_of_sluid(self, sluid: str) -> int | None:
        """The raw id of a job that is open, or whose end is remembered."""
        known = [held.allocation for held in self._open.values()] + list(self._ended.values())
        return next((allocation.job_id for allocation in known if allocation.sluid == sluid), None)

    def witness(self, t: float, look: Look) -> News:
        """Take in a look at the processes at ``t`` (unix seconds)."""
        news = News()
        for key, held in list(self._open.items()):
            if not held.witnessed or look.jobs is None:
                continue
            if held.allocation.job_id in look.jobs:
                held.seen_t = t
            else:
                self._close(key, held, held.seen_t, "processes", None, news)
        suspects = set()
        for item in look.testimonies:
            key = (self._identity.cluster, self._identity.node, item.job_id)
            held_now = self._open.get(key)
            if held_now is not None:
                self._runs_elsewhere(held_now, item, t, news)
            elif not item.job_is_here:
                suspects.add((item.gpu, item.pid))
                if (item.gpu, item.pid) in self._suspects:  # still there at the second look
                    self._tell(news, ("leftover", item.gpu, item.pid), self._leftover(key, item, t))
            elif any(not self._by_id[owner].witnessed for owner in self.owners(item.gpu)):
                self._tell(news, (item.job_id, item.gpu), self._intruder(item, t))
            else:
                self._found(key, item, t, news)
        self._suspects = suspects
        return news

    def _found(self, key: Key, item: Testimony, t: float, news: News) -> None:
        """A job that no mark spoke of, on a GPU that no job with marks holds."""
        ended = self._ended.get(key)
        began = min(item.began, t)
        if ended is not None and ended.end_ms is not None:
            began = max(began, ended.end_ms / 1000)
        start_ms = round(began * 1000)
        allocation = Allocation(
            id=f"{item.job_id}@{start_ms}",
            node=self._identity.node,
            cluster=self._identity.cluster,
            job_id=item.job_id,
            start_ms=start_ms,
            end_ms=None,
            source=item.source,
            gpus=(HeldGpu(item.gpu, self.ordinal_of(item.gpu), told="processes"),),
            uid=item.uid,
            sluid=item.sluid,
        )
        self._keep(key, _Held(allocation, [], seen_t=t))
        news.records.append(allocation)
        self._set(began, item.gpu, (*self.owners(item.gpu), allocation.id), news)

    def _runs_elsewhere(self, held: _Held, item: Testimony, t: float, news: News) -> None:
        """A job that is open runs on a GPU that it does not hold."""
        if held.allocation.id in self.owners(item.gpu):
            return
        none_named = all(gpu.told == "processes" for gpu in held.allocation.gpus) and not held.allocation.unresolved
        if none_named and not self.owners(item.gpu):  # slurmd 24.11 may start a prolog without naming the GPUs
            found = HeldGpu(item.gpu, self.ordinal_of(item.gpu), told="processes")
            self._change(held, news, gpus=(*held.allocation.gpus, found))
            began = max(item.began, held.allocation.start_ms / 1000 + held.stepped_s)
            self._set(min(began, t), item.gpu, (held.allocation.id,), news)
        else:
            text = f"its process {item.pid} runs there ({item.source})"
            self._tell(news, (held.allocation.id, item.gpu), _disagrees(t, held.allocation, item.gpu, text))

    def _leftover(self, key: Key, item: Testimony, t: float) -> Event:
        ended = self._ended.get(key)
        user = (ended.user if ended else None) or ("uid unknown" if item.uid is None else f"uid {item.uid}")
        return Event(
            t_ms=round(t * 1000),
            kind="process.leftover",
            text=f"process {item.pid} of {user} is still on {item.gpu}, though job {item.job_id} has ended",
            gpu=item.gpu,
            allocation=ended.id if ended else None,
        )

    def _intruder(self, item: Testimony, t: float) -> Event:
        jobs = ", ".join(str(self.job_of(owner)) for owner in self.owners(item.gpu))
        return Event(
            t_ms=round(t * 1000),
            kind="owner.disagrees",
            text=f"process {item.pid} of job {item.job_id} ({item.source}) is on {item.gpu}, which job {jobs} holds",
            gpu=item.gpu,
            allocation=self.owners(item.gpu)[0],
        )

    def go_on(self, allocations: Iterable[Allocation], t: float) -> News:
        """Take up allocations without marks that an earlier process of the daemon had open."""
        news = News()
        for allocation in allocations:
            key = (allocation.cluster, allocation.node, allocation.job_id)
            if key in self._open:
                continue
            self._keep(key, _Held(allocation, [], seen_t=t))
            for gpu in allocation.gpus:
                self._set(t, gpu.uuid, (*self.owners(gpu.uuid), allocation.id), news)
        return news

    # -- inside

    def _keep(self, key: Key, held: _Held) -> None:
        self._open[key] = self._by_id[held.allocation.id] = held

    def _change(
        self, held: _Held, news: News, *, gpus: tuple[HeldGpu, ...], unresolved: tuple[str, ...] | None = None
    ) -> None:
        unresolved = held.allocation.unresolved if unresolved is None else unresolved
        held.allocation = replace(held.allocation, gpus=gpus, unresolved=unresolved)
        news.records.append(held.allocation)

    def _remember(self, key: Key, closed: Allocation) -> None:
        self._ended.pop(key, None)
        self._ended[key] = closed
        if len(self._ended) > _MOST_ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._epilogs.pop(oldest, None)

    def _tell(self, news: News, about: tuple[object, ...], event: Event) -> None:
        """An event, once for what it is about."""
        if about in self._told:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told.add(about)
        news.records.append(event)

    def _release(self, t: float, uuid: str, allocation: str, news: News) -> None:
        if allocation in self.owners(uuid):
            self._set(t, uuid, tuple(owner for owner in self.owners(uuid) if owner != allocation), news)

    def _set(self, t: float, uuid: str, owners: tuple[str, ...], news: News) -> None:
        self._owners[uuid] = owners
        news.changes.append(OwnerChange(t, uuid, owners))

    def _resolve(self, mark: Mark) -> tuple[tuple[HeldGpu, ...], tuple[str, ...]]:
        return self._names.current(self._key(mark)[1], mark.get("SLURM_CONF")).resolve(mark)

    def _allocation(self, key: Key, mark: Mark, start_ms: int, end_ms: int | None, source: str) -> Allocation:
        cluster, node, job_id = key
        gpus, unresolved = self._resolve(mark)
        whose = "" if (cluster, node) == (self._identity.cluster, self._identity.node) else f"{cluster}/{node}/"
        return Allocation(
            id=f"{whose}{job_id}@{start_ms}",
            node=node,
            cluster=cluster,
            job_id=job_id,
            start_ms=start_ms,
            end_ms=end_ms,
            source=source,
            gpus=gpus,
            unresolved=unresolved,
            restart_count=mark.number("SLURM_JOB_RESTART_COUNT"),
            slurm_start_s=mark.number("SLURM_JOB_START_TIME"),
            sluid=mark.get("SLURM_JOB_SLUID"),
            het_job_id=mark.number("SLURM_HET_JOB_ID"),
            user=mark.get("SLURM_JOB_USER"),
            uid=mark.number("SLURM_JOB_UID"),
            account=mark.get("SLURM_JOB_ACCOUNT"),
            partition=mark.get("SLURM_JOB_PARTITION"),
            nodelist=mark.get("SLURM_JOB_NODELIST") or mark.get("SLURM_NODELIST"),
        )


def _again(first: Mark, second: Mark) -> bool:
    """The same hook of the same run once more, since slurm.conf names it twice."""
    same = all(first.get(name) == second.get(name) for name in _OF_A_RUN)
    return same and second.t - first.t < _AGAIN_S


def _unresolved(allocation: Allocation, mark: Mark) -> Event:
    return Event(
        t_ms=allocation.start_ms,
        kind="gpu.unresolved",
        text=f"job {allocation.job_id}: no GPU of this node is {', '.join(allocation.unresolved)}"
        f" (SLURM_JOB_GPUS={mark.get('SLURM_JOB_GPUS')}, CUDA_VISIBLE_DEVICES={mark.get('CUDA_VISIBLE_DEVICES')})",
        allocation=allocation.id,
    )


def _disagrees(t: float, allocation: Allocation, gpu: str, why: str) -> Event:
    return Event(
        t_ms=round(t * 1000),
        kind="owner.disagrees",
        text=f"job {allocation.job_id} does not hold {gpu}, but {why}",
        gpu=gpu,
        allocation=allocation.id,
    )
