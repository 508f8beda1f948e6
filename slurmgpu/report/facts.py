"""What is known of a run, as plain data: every figure of a report stands here once, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass, field

ENOUGH_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Gap:
    """A time for which a GPU has no samples."""

    node: str
    gpu: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU of a run. A figure that is not known is None, never 0.

    ``gpu_busy_pct`` is NVML's utilisation: the share of time in which a kernel ran, whatever it filled of the GPU.
    ``energy_is_lower_bound``: part of the time has no energy reading.
    """

    node: str
    ordinal: int | None
    uuid: str
    model: str | None
    start_ms: int
    end_ms: int
    samples: int
    covered_ms: int
    gpu_busy_pct: float | None
    gpu_busy_max_pct: float | None
    mem_busy_pct: float | None
    mem_used_mean_bytes: float | None
    mem_used_max_bytes: int | None
    mem_total_bytes: int | None
    power_mean_mw: float | None
    power_max_mw: float | None
    energy_mj: int | None
    energy_source: str | None
    energy_is_lower_bound: bool
    sm_clock_mean_mhz: float | None
    temperature_max_c: float | None
    shared_ms: int
    busy_timeline_pct: tuple[float | None, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)  # figure: why the driver does not give it

    @property
    def allocated_ms(self) -> int:
        """How long the job held the GPU."""
        return self.end_ms - self.start_ms

    @property
    def coverage(self) -> float | None:
        """The share of the allocated time for which samples exist, 0 to 1."""
        return min(1.0, self.covered_ms / self.allocated_ms) if self.allocated_ms > 0 else None

    @property
    def enough_samples(self) -> bool:
        """Whether an average says anything."""
        return self.samples >= ENOUGH_SAMPLES and self.covered_ms > 0


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Something that was said or noticed once during the run."""

    t_ms: int
    node: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class AllocationFacts:
    """The run's time on one node, and what told its start and end: hooks, processes, or Slurm."""

    node: str
    start_ms: int
    end_ms: int | None
    source: str | None
    end_source: str | None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run of a job. What accounting says (name, state, array and het ids …) is None until Slurm was asked.

    Averages over GPUs are weighted by GPU-time. ``end_ms`` is None while it runs; ``seen_ms`` is the time up to which
    the figures go.
    """

    cluster: str
    job_id: int
    run: int
    runs: int
    user: str | None
    account: str | None
    partition: str | None
    nodes: tuple[str, ...]
    start_ms: int
    end_ms: int | None
    seen_ms: int
    exit_code: int | None
    signal: int | None
    gpus: tuple[GpuFacts, ...]
    gpu_busy_pct: float | None
    power_mean_mw: float | None
    mem_used_max_bytes: int | None
    energy_mj: int | None
    energy_is_lower_bound: bool
    coverage: float | None
    name: str | None = None
    qos: str | None = None
    slurm_state: str | None = None
    array_job_id: int | None = None
    array_task: int | None = None
    het_job_id: int | None = None
    het_offset: int | None = None
    submit_ms: int | None = None
    time_limit_s: int | None = None
    allocations: tuple[AllocationFacts, ...] = ()
    unresolved: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    events: tuple[EventFacts, ...] = field(default=())

    @property
    def elapsed_ms(self) -> int:
        """The run's time so far."""
        return (self.seen_ms if self.end_ms is None else self.end_ms) - self.start_ms

    @property
    def label(self) -> str:
        """The id as squeue prints it: 22_3 of an array, 23+1 of a het job."""
        if self.array_job_id is not None and self.array_task is not None:
            return f"{self.array_job_id}_{self.array_task}"
        if self.het_job_id is not None and self.het_offset is not None:
            return f"{self.het_job_id}+{self.het_offset}"
        return str(self.job_id)

    @property
    def state(self) -> str:
        """running, or ended with what Slurm, or until it was asked the job's script, said."""
        if self.end_ms is None:
            return (self.slurm_state or "running").lower()
        if self.slurm_state and self.slurm_state not in ("RUNNING", "COMPLETING", "SUSPENDED", "FAILED"):
            return self.slurm_state.lower().replace("_", " ")
        if self.signal:
            return f"ended by signal {self.signal}"
        return "ended" if self.exit_code is None else f"ended, exit {self.exit_code}"
