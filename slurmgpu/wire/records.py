"""What a segment holds: one data class for each kind of record.

Times are ``*_ms``, milliseconds since 1970 UTC by the node's wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Stat:
    """One gauge over the covered time of a block, in the metric's unit.

    ``weight_ms``: time with a value. ``sum``: Σ(value·dt), unit·ms.
    """

    weight_ms: int
    sum: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Share:
    """One owner's part of a shared GPU in a block. The parts of all owners add up to no more than 1.

    ``source``: sm, by the use of the SMs that the driver measured for each process; equal, where it does not tell.
    Memory is that of the owner's processes: Σ(bytes·dt) in byte·ms, the time that it covers, and the most.
    """

    part: float
    source: str
    mem_weight_ms: int = 0
    mem_sum: float = 0.0
    mem_max_bytes: int | None = None

    def as_list(self) -> list[float | str | int | None]:
        """The fields in their order: JSON's types."""
        return [self.part, self.source, self.mem_weight_ms, self.mem_sum, self.mem_max_bytes]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive samples of one GPU under one owner, without a gap, at most one flush period long.

    The time from ``start_ms`` to ``end_ms`` is covered throughout: each sample stands for the time since the one before
    it (the first: since the start), the last one also for the time up to the end. A block without samples may have
    ``stats`` all the same: those of the owner's last sample before it.
    """

    RECORD: ClassVar[str] = "block"

    gpu: str  # UUID
    start_ms: int
    end_ms: int
    samples: int
    owners: tuple[str, ...] = ()  # ids of the allocations that held the GPU; none: idle
    stats: dict[str, Stat] = field(default_factory=dict)
    energy_mj: int | None = None
    energy_source: str | None = None  # counter, power (its integral), mixed
    missing: dict[str, tuple[str, int]] = field(default_factory=dict)  # metric: (cause, samples without it)
    dropped: dict[str, int] = field(default_factory=dict)  # metric: values out of range, not used
    shares: dict[str, Share] = field(default_factory=dict)  # owner: its part; where there are several owners
    body: bytes = b""  # slurmgpu.wire.samples


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU that an allocation holds, and what Slurm called it.

    ``told`` by mark; processes, that were seen there; or epilog, when the readings had gone to nobody.
    """

    uuid: str
    ordinal: int | None = None
    told: str = "mark"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Job J owns GPUs on this node from ``start_ms`` to ``end_ms`` (half-open; None while it runs).

    Sent when it opens and again when it closes; the later word counts.
    """

    RECORD: ClassVar[str] = "allocation"

    id: str  # unique on the node
    node: str
    cluster: str
    job_id: int  # the raw job id
    start_ms: int
    end_ms: int | None
    source: str  # what told the start: prolog, epilog, cgroup, stepd, environment, slurm
    end_source: str | None = None  # what told the end: epilog, prolog (of the next run), processes, boot, lost, slurm
    gpus: tuple[HeldGpu, ...] = ()
    unresolved: tuple[str, ...] = ()  # Slurm's words for GPUs that no device answers to
    restart_count: int | None = None  # the prolog's
    slurm_start_s: int | None = None  # Slurm's own start of the run, 23.11 and later
    sluid: str | None = None
    het_job_id: int | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    partition: str | None = None
    nodelist: str | None = None  # nodes of the whole job, a hostlist
    exit_code: int | None = None  # a wait status, from the epilog


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A GPU, or a MIG instance with its parent, as the driver describes it."""

    RECORD: ClassVar[str] = "gpu"

    uuid: str
    t_ms: int
    index: int  # NVML's; may change between boots
    minor: int | None = None
    serial: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    pci_address: str | None = None  # dddddddd:bb:dd.f, lower case
    ordinal: int | None = None  # Slurm's number
    numa_node: int = -1  # -1: unknown
    driver_version: str | None = None
    cuda_version: str | None = None
    parent: str | None = None  # UUID of the GPU that a MIG instance is a part of
    modes: dict[str, str] = field(default_factory=dict)  # persistence, compute, ecc, mig: in words
    nvlink_peers: dict[str, int] = field(default_factory=dict)  # UUID of a GPU of the node: links to it
    health: str = "unknown"  # one word: ok, lost, reset, reboot, replace, unknown


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was said or noticed once."""

    RECORD: ClassVar[str] = "event"

    t_ms: int
    kind: str  # one lower-case word with dots: gpu.unresolved, clock.step, daemon.start
    text: str
    gpu: str | None = None
    allocation: str | None = None


@dataclass(frozen=True, slots=True)
class NodeStart:
    """slurmgpud has started: what is not open now has ended, whatever became of its epilog's mark."""

    RECORD: ClassVar[str] = "start"

    t_ms: int
    boot_id: str
    version: str
    open: tuple[str, ...] = ()  # ids of the allocations that are open


Record = Block | Allocation | GpuInfo | Event | NodeStart

_CLASSES: dict[str, type[Record]] = {cls.RECORD: cls for cls in (Block, Allocation, GpuInfo, Event, NodeStart)}


def to_plain(record: Record) -> dict[str, Any]:
    """A record as JSON's types, without its body; fields at their default are left out."""
    plain: dict[str, Any] = {"record": record.RECORD}
    for spec in fields(record):
        value = getattr(record, spec.name)
        if spec.name == "body" or value == spec.default or value in ((), {}):
            continue
        if spec.name == "gpus":
            value = [[gpu.uuid, gpu.ordinal, gpu.told] for gpu in value]
        elif spec.name == "stats":
            value = {name: [s.weight_ms, s.sum, s.min, s.max] for name, s in value.items()}
        elif spec.name == "shares":
            value = {owner: share.as_list() for owner, share in value.items()}
        plain[spec.name] = value
    return plain


def from_plain(plain: dict[str, Any], body: bytes = b"") -> Record:
    """The record of :func:`to_plain`'s form. Fields that this version does not know are passed over.

    Raises KeyError for an unknown record, TypeError or ValueError for fields that are missing or wrong.
    """
    cls = _CLASSES[plain["record"]]
    known = {spec.name for spec in fields(cls)}
    values = {name: value for name, value in plain.items() if name in known}
    if cls is Block:
        values["owners"] = tuple(values.get("owners", ()))
        values["stats"] = {name: Stat(*numbers) for name, numbers in values.get("stats", {}).items()}
        values["missing"] = {name: (cause, n) for name, (cause, n) in values.get("missing", {}).items()}
        values["shares"] = {owner: Share(*parts) for owner, parts in values.get("shares", {}).items()}
        values["body"] = body
    elif cls is Allocation:
        values["gpus"] = tuple(HeldGpu(*parts) for parts in values.get("gpus", ()))
        values["unresolved"] = tuple(values.get("unresolved", ()))
    elif cls is NodeStart:
        values["open"] = tuple(values.get("open", ()))
    return cls(**values)
