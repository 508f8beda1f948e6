"""How a GPU's readings move: training, inference, idle, starved of data, stuck. An H100 SXM, second by second.

A pattern says what share of the GPU works; the board makes power, clocks, temperatures and counters of it, with the
noise of real ones: some watts, tenths of a per cent, milliseconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from slurmgpu.node.readings import Metric, Tier, discover

GIB, MIB = 1 << 30, 1 << 20
MEMORY_BYTES = 85_520_809_984
_PERIOD_S = {Tier.FAST: 1, Tier.MEDIUM: 30, Tier.SLOW: 60}
_OLDER = ("l1_", "l2_", "registers_", "retired_")  # of ecc_ and repair: before Ampere
_NEWER = (
    "nvlink_tx_bytes",
    "nvlink_rx_bytes",
    "nvlink_malformed_packets",
    "nvlink_buffer_overruns",
    "nvlink_receive_errors",
    "nvlink_recoveries_failed",
    "nvlink_effective_errors",
    "nvlink_symbol_errors",
)


@cache
def metrics() -> tuple[Metric, ...]:
    """All metrics of the node program, in its order."""
    return tuple(metric for reading in discover() for metric in reading.metrics)


@cache
def tiers() -> dict[str, Tier]:
    """Metric → how often it is read."""
    return {metric.name: reading.tier for reading in discover() for metric in reading.metrics}


def lacks(name: str) -> bool:
    """Whether an H100 has no such metric."""
    return name in _NEWER or name.removeprefix("ecc_").startswith(_OLDER)


@dataclass(slots=True)
class Load:
    """What works in a second: shares of 1; MiB/s; bytes."""

    util: float = 0.0  # time with a kernel
    sm: float = 0.0
    occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    pcie_tx: float = 0.0
    pcie_rx: float = 0.0
    nvlink: float = 0.0
    mem_bytes: int = 634 * MIB
    processes: int = 0


def training(rng: random.Random) -> Iterator[Load]:
    """Steps of computing and communication that beat against the sampling, checkpoints, now and then an evaluation."""
    step_s, comm = rng.uniform(0.4, 2.7), rng.uniform(0.08, 0.25)
    tensor, memory = rng.uniform(0.35, 0.62), int(rng.uniform(45, 76)) * GIB
    every, lasts = rng.randrange(600, 1500), rng.randrange(15, 45)
    evaluate = rng.randrange(2000, 4000)
    t = 0
    while True:
        t += 1
        load = Load(mem_bytes=memory + (0 if t % evaluate > 90 else 6 * GIB), processes=1)
        if t % every < lasts:  # the state goes to disk
            load.util, load.sm, load.dram = abs(rng.gauss(0.04, 0.03)), abs(rng.gauss(0.02, 0.01)), 0.01
            load.pcie_tx = rng.gauss(5200, 900)
        else:
            beat = 0.06 * math.sin(2 * math.pi * t / step_s)
            at_work = 1 - comm - beat
            load.util = 1.0 if rng.random() < 0.8 else rng.uniform(0.95, 1)
            load.sm = at_work + rng.gauss(0, 0.012)
            load.occupancy = 0.31 * at_work + rng.gauss(0, 0.006)
            load.tensor = tensor * at_work + rng.gauss(0, 0.012)
            load.dram = 0.48 * at_work + rng.gauss(0, 0.015)
            load.fp32 = 0.05 * at_work + rng.gauss(0, 0.002)
            load.fp16 = 0.03 * at_work + rng.gauss(0, 0.0015)
            load.pcie_rx = rng.gauss(310, 40)
            load.pcie_tx = rng.gauss(60, 9)
            load.nvlink = (comm + beat) * 420_000 + rng.gauss(0, 4000)
        yield load


def inference(rng: random.Random) -> Iterator[Load]:
    """Requests come by chance, more by day; a request keeps the GPU busy for some seconds."""
    rate, memory = rng.uniform(1.5, 6), int(rng.uniform(66, 77)) * GIB
    phase, active, t = rng.uniform(0, 86_400), 0.0, 0
    while True:
        t += 1
        by_day = 1 + 0.7 * math.sin(2 * math.pi * (t + phase) / 86_400)
        active = 0.78 * active + _poisson(rng, rate * by_day)
        full = min(1.0, active / 30)
        load = Load(mem_bytes=memory + int(active / 6) * 2 * MIB, processes=1)
        load.util = min(1.0, 0.25 + full) if active >= 0.5 else 0.0
        load.sm = load.util * (0.55 + 0.3 * full) + rng.gauss(0, 0.01)
        load.occupancy = 0.18 * load.sm + rng.gauss(0, 0.004)
        load.tensor = 0.12 * full + rng.gauss(0, 0.004)
        load.dram = 0.62 * load.util + rng.gauss(0, 0.02)
        load.fp32 = 0.02 * full + rng.gauss(0, 0.001)
        load.fp16 = 0.06 * full + rng.gauss(0, 0.002)
        load.pcie_rx = 14 * active + rng.gauss(6, 2)
        load.pcie_tx = 3 * active + rng.gauss(4, 1)
        yield load


def idle(rng: random.Random) -> Iterator[Load]:
    """Nothing at all."""
    while True:
        yield Load()


def starved(rng: random.Random) -> Iterator[Load]:
    """Waits for its data most of the time."""
    memory, period = int(rng.uniform(8, 30)) * GIB, rng.randrange(4, 11)
    t = 0
    while True:
        t += 1
        on = t % period < 2
        load = Load(mem_bytes=memory, processes=1)
        load.util = rng.uniform(0.2, 0.7) if on else max(0.0, rng.gauss(0.01, 0.02))
        load.sm = 0.6 * load.util
        load.occupancy, load.tensor = 0.2 * load.sm, 0.25 * load.sm
        load.dram, load.fp32 = 0.3 * load.util, 0.05 * load.util
        load.pcie_rx = rng.gauss(2400, 500) if on else rng.gauss(900, 300)
        load.pcie_tx = rng.gauss(40, 12)
        yield load


def stuck(rng: random.Random) -> Iterator[Load]:
    """A collective operation that waits for a rank which never comes: busy by NVML, and no work."""
    memory = int(rng.uniform(40, 70)) * GIB
    while True:
        yield Load(util=1.0, sm=0.9997, occupancy=0.0163, mem_bytes=memory, processes=1)


PATTERNS: dict[str, Callable[[random.Random], Iterator[Load]]] = {
    "training": training,
    "inference": inference,
    "idle": idle,
    "starved": starved,
    "stuck": stuck,
}


def _poisson(rng: random.Random, mean: float) -> int:
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


class Board:
    """An H100 under a pattern's load."""

    def __init__(self, pattern: str, rng: random.Random) -> None:
        self._rng = rng
        self._loads = PATTERNS[pattern](rng)
        self._slots = {metric.name: place for place, metric in enumerate(metrics())}
        self._row: list[int | None] = [None if lacks(metric.name) else 0 for metric in metrics()]
        self.causes = {metric.name: "NOT_SUPPORTED" for metric in metrics() if lacks(metric.name)}
        self._last = -1
        self._watts, self._celsius = 70.0 + rng.uniform(-3, 3), 31.0
        self._idle_watts = self._watts
        self._energy_mj = rng.randrange(1 << 40)
        self._nvlink_kib = self._pcie_tx = self._pcie_rx = rng.randrange(1 << 44)
        self._power_ns = self._low_ns = rng.randrange(1 << 45)
        self._set_constants()

    def when(self, t: int) -> float:
        """The second at which sample ``t`` is taken: some milliseconds late, not at the end of a minute."""
        return t if t % 60 == 0 else t + abs(self._rng.gauss(0, 0.0012))

    def row(self, t: int) -> tuple[int | None, ...]:
        """The readings of second ``t``, in the order of :func:`metrics`."""
        self._fast(next(self._loads))
        for tier, change in ((Tier.MEDIUM, self._medium), (Tier.SLOW, self._slow)):
            if self._last < 0 or t // _PERIOD_S[tier] != self._last // _PERIOD_S[tier]:
                change()
        self._last = t
        return tuple(self._row)

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            self._row[self._slots[name]] = int(value)

    def _set_constants(self) -> None:
        self._set(mem_clock_mhz=2619, power_limit_mw=700_000, persistence_mode=1, ecc_mode=1, fabric_state=3)
        self._set(pcie_generation=5, pcie_width_lanes=16, nvlink_active_links=18, mem_reserved_bytes=580 * MIB)
        self._set(ecc_corrected_aggregate=self._rng.randrange(3), bar1_used_bytes=2 * MIB)

    def _fast(self, load: Load) -> None:
        gauss = self._rng.gauss
        sm, tensor, dram = _share(load.sm), _share(load.tensor), _share(load.dram)
        wanted = self._idle_watts + (45 if load.processes else 0) + 180 * sm + 520 * tensor + 260 * dram
        noise = 0.25 if sm == 0 else 0.6 + 9 * sm * (tensor + dram)
        self._watts += 0.7 * (min(wanted, 698) - self._watts)
        watts = self._watts + gauss(0, noise)
        self._energy_mj += int(1000 * (self._watts + gauss(0, noise / 2)))
        self._celsius += 0.03 * (27 + watts / 17 - self._celsius)
        capped = wanted > 660
        clock = (1980 if load.processes else 345) - (15 * int(abs(gauss(0, 3)) + (wanted - 660) / 6) if capped else 0)
        self._power_ns += int(1e9 * min(1, (wanted - 660) / 200)) if capped else 0
        self._low_ns += 0 if load.processes else 1_000_000_000
        self._nvlink_kib += int(load.nvlink * 1024)
        self._pcie_tx += int(max(0, load.pcie_tx) * MIB)
        self._pcie_rx += int(max(0, load.pcie_rx) * MIB)
        row, slots = self._row, self._slots
        row[slots["gpu_util_pct"]] = round(100 * _share(load.util))
        row[slots["mem_util_pct"]] = round(85 * dram)
        row[slots["mem_used_bytes"]] = load.mem_bytes
        row[slots["power_mw"]] = int(1000 * watts)
        row[slots["energy_mj"]] = self._energy_mj
        row[slots["sm_clock_mhz"]] = clock
        first = slots["sm_active_pct"]
        row[first : first + 11] = [
            int(10_000 * sm),
            int(10_000 * _share(load.occupancy)),
            int(10_000 * tensor),
            int(10_000 * dram),
            0,
            int(10_000 * _share(load.fp32)),
            int(10_000 * _share(load.fp16)),
            int(100 * max(0, load.pcie_tx)),
            int(100 * max(0, load.pcie_rx)),
            int(100 * max(0, load.nvlink)),
            int(100 * max(0, load.nvlink + gauss(0, load.nvlink * 0.004))),
        ]
        self._load, self._capped = load, capped

    def _medium(self) -> None:
        load, gauss = self._load, self._rng.gauss
        self._set(
            temperature_c=self._celsius + gauss(0, 0.3),
            mem_temperature_c=self._celsius + 11 + gauss(0, 0.3),
            temperature_margin_c=87 - self._celsius,
            power_instant_mw=1000 * (self._watts + gauss(0, 20 if load.processes else 0.5)),
            clocks_event_reasons=4 if self._capped else 0 if load.processes else 1,
            violation_power_ns=self._power_ns,
            violation_low_utilization_ns=self._low_ns,
            nvlink_tx_kib=self._nvlink_kib,
            nvlink_rx_kib=self._nvlink_kib,
            pcie_tx_bytes=self._pcie_tx,
            pcie_rx_bytes=self._pcie_rx,
            compute_processes=load.processes,
            processes_mem_bytes=load.mem_bytes - 634 * MIB,
            processes_sm_util_pct=100 * _share(load.util),
        )

    def _slow(self) -> None:
        self._set(mem_free_bytes=MEMORY_BYTES - self._load.mem_bytes - 580 * MIB)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
