"""Random histories of a node: marks that come, come late or never, crashes, clocks that are set, requeues.

What must hold whatever happens: no reading counts twice, jobs and idle time add up to the device, and a reading goes
to exactly the jobs that held the GPU by the marks at its time.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slurmgpu.node.attribution import Attribution
from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.node.identity import Identity
from slurmgpu.node.nvml import Device
from slurmgpu.node.processes import GpuProcess
from slurmgpu.node.readings import Kind, Metric
from slurmgpu.store.totals import Totals
from slurmgpu.wire.records import Allocation, Block
from tests.node.test_pids import Proc

GPUS = 3
INTERVAL_S = 10.0
METRICS = (Metric("power_mw", 0, 1 << 40), Metric("energy_mj", 0, 1 << 60, Kind.COUNTER))
POWER_MW = (100_000, 250_000, 700_000)


class Clock:
    """Monotonic time, and a wall clock that is set now and then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.offset = 1.7e9

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.offset

    def uptime(self) -> float:
        return self.now

    def wait(self, seconds: float) -> int | None:
        return None


class Gpus:
    """What Attribution needs of Devices: builders whose labels are monotonic time, so that no label comes twice."""

    processes_are_fresh = False
    on_devices: Any = None
    owners_of: Any = None
    ordinal_of: Any = None
    uses_of: Any = None

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.offset = clock.offset
        self.builders = {f"GPU-{i}": BlockBuilder(f"GPU-{i}", METRICS, INTERVAL_S, 0.0) for i in range(GPUS)}

    def start(self) -> None:
        self.on_devices([Device(None, i, f"GPU-{i}", i, None, None, None) for i in range(GPUS)])
        for uuid, builder in self.builders.items():
            builder.change_owner(self.clock.now, self.owners_of(uuid))

    def read(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            power = POWER_MW[int(uuid[-1])]
            self.builders[uuid].add(self.clock.now, (power, round(power * self.clock.now)))

    def change_owner(self, t_wall: float, uuid: str, owners: tuple[str, ...]) -> None:
        self.builders[uuid].change_owner(min(t_wall - self.offset, self.clock.now), owners)

    def processes(self) -> dict[str, list[GpuProcess]]:
        return {}

    def take(self) -> list[Block]:
        return [block for builder in self.builders.values() for block in builder.take()]


@dataclass
class Truth:
    """A job on GPUs, by its marks: monotonic times; ``end`` is None while no mark has told it."""

    job: int
    gpus: tuple[int, ...]
    start: float
    end: float | None = None


@dataclass
class World:
    """What has reached the spool."""

    blocks: list[Block] = field(default_factory=list)
    allocations: dict[str, Allocation] = field(default_factory=dict)


class History(RuleBasedStateMachine):
    """A node's life. Hooks write marks; the daemon samples, follows, flushes, dies."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="history-"))
        (self.folder / "proc").mkdir()
        self.clock = Clock()
        self.world = World()
        self.truths: list[Truth] = []
        self.running: dict[int, Truth] = {}
        self.pid = self.runs = 0
        self.samples = 0
        self.crashes: list[tuple[float, float]] = []  # (last flush, start again)
        self.flushed_at = self.clock.now
        self.start_daemon()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.follow()
            self.flush()
            self.check()
            shutil.rmtree(self.folder)

    def start_daemon(self) -> None:
        self.gpus = Gpus(self.clock)
        run_dir = self.folder / "run"
        proc = Proc(self.folder / "proc")
        names = Identity("c", "n")
        self.owners = Attribution(run_dir, names, self.gpus, proc, self.clock, "boot")  # type: ignore[arg-type]
        self.owners.prepare()
        self.gpus.start()
        self.unsaved: list[Any] = self.owners.resume()

    def keep(self, records: Iterable[Any]) -> None:
        for record in records:
            if isinstance(record, Allocation):
                self.world.allocations[record.id] = record

    # -- what happens

    def hook(self, kind: str, job: int, **environment: str) -> None:
        self.pid += 1
        values = {"SLURM_JOB_ID": str(job), "SLURMD_NODENAME": "n", "SLURM_CLUSTER_NAME": "c", **environment}
        path = self.folder / "run" / "jobs" / f"{job}.{kind}.{self.pid}"
        block = b"".join(f"{name}={value}".encode() + b"\0" for name, value in values.items())
        path.write_bytes(block + f"{self.clock.now:.2f} 0.00\n".encode())
        wall_ns = round(self.clock.wall() * 1e9)
        os.utime(path, ns=(wall_ns, wall_ns))

    @rule(job=st.integers(1, 4), gpus=st.sets(st.integers(0, GPUS - 1)), restart=st.integers(0, 2))
    def prolog(self, job: int, gpus: set[int], restart: int) -> None:
        before = self.running.pop(job, None)
        if before is not None:  # its epilog never came
            before.end = self.clock.now
        self.runs += 1
        named = ",".join(map(str, sorted(gpus)))
        self.hook(
            "prolog",
            job,
            SLURM_JOB_GPUS=named,
            SLURM_JOB_RESTART_COUNT=str(restart),
            SLURM_JOB_START_TIME=str(self.runs),
        )
        self.running[job] = Truth(job, tuple(gpus), self.clock.now)
        self.truths.append(self.running[job])
        self.clock.now += 0.01

    @rule(job=st.integers(1, 4), restart=st.integers(0, 3))
    def epilog(self, job: int, restart: int) -> None:
        """Also of a job whose prolog never ran; its restart count may be one more."""
        ended = self.running.pop(job, None)
        if ended is not None:
            ended.end = self.clock.now
        self.runs += 1
        self.hook("epilog", job, SLURM_JOB_RESTART_COUNT=str(restart), SLURM_JOB_START_TIME=str(self.runs))
        self.clock.now += 0.01

    @rule()
    def half_a_mark(self) -> None:
        (self.folder / "run" / "jobs" / f".9.prolog.{self.pid}").write_bytes(b"SLURM_JOB_GP")

    @rule(seconds=st.floats(0.2, 15))
    def time_passes(self, seconds: float) -> None:
        """The daemon looks each second and samples each interval; here it does both at the end of a pause."""
        self.clock.now += seconds
        self.gpus.read(self.gpus.builders)
        self.samples += GPUS
        self.unsaved += self.owners.after_round()
        self.follow()

    @rule()
    def follow(self) -> None:
        if self.owners.changed():
            self.unsaved += self.owners.follow()

    @rule()
    def flush(self) -> None:
        self.world.blocks += self.gpus.take()
        self.keep(self.unsaved)
        self.unsaved.clear()
        self.owners.done()
        self.flushed_at = self.clock.now

    @rule(seconds=st.floats(0, 100))
    def crash(self, seconds: float) -> None:
        """Killed: what was not flushed is lost, the marks are still there."""
        self.clock.now += seconds
        self.crashes.append((self.flushed_at, self.clock.now))
        self.start_daemon()

    @rule(by_s=st.sampled_from([3600.0, -3600.0, 1.5, -1.5]))
    def clock_is_set(self, by_s: float) -> None:
        self.clock.offset += by_s
        self.gpus.offset = self.clock.offset
        self.owners.clock_was_set(by_s)

    # -- what must hold

    @invariant()
    def no_overlap(self) -> None:
        if not hasattr(self, "world"):
            return
        for gpu in range(GPUS):
            spans = sorted((b.start_ms, b.end_ms) for b in self.world.blocks if b.gpu == f"GPU-{gpu}")
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))

    def check(self) -> None:
        totals: dict[str, Totals] = {}
        idle_mj = 0
        for block in self.world.blocks:
            for owner in block.owners:
                totals.setdefault(owner, Totals()).add(block, owner)
            idle_mj += 0 if block.owners else block.energy_mj or 0
            self.check_owner(block)
        device_mj = sum(block.energy_mj or 0 for block in self.world.blocks)
        assert idle_mj + sum(total.energy_mj or 0 for total in totals.values()) == device_mj
        assert set(totals) <= set(self.world.allocations)
        for allocation in self.world.allocations.values():
            assert allocation.end_ms is None or allocation.end_ms >= allocation.start_ms
        if not self.crashes:
            assert sum(block.samples for block in self.world.blocks) >= self.samples

    def check_owner(self, block: Block) -> None:
        """In the middle of a block, clear of its edges, the owners are the jobs that held the GPU by the marks."""
        gpu = int(block.gpu[-1])
        if block.end_ms - block.start_ms < 20:
            return
        middle = (block.start_ms + block.end_ms) / 2000
        edges = [t for truth in self.truths for t in (truth.start, truth.end) if t is not None]
        if any(abs(t - middle) < 0.02 for t in edges):
            return
        jobs = [t.job for t in self.truths if gpu in t.gpus and t.start <= middle and (t.end is None or middle < t.end)]
        found = [int(owner.partition("@")[0]) for owner in block.owners]
        assert sorted(found) == sorted(jobs), (block, self.truths)


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
