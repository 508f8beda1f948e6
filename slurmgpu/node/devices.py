"""The node's GPUs as the daemon has them: opened, read, lost and found again, each with its blocks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slurmgpu.config import NodeConfig
from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.node.clock import Clock
from slurmgpu.node.crew import Crew
from slurmgpu.node.fallback import Fallback
from slurmgpu.node.inventory import gpu_infos
from slurmgpu.node.nvml import VERSION_MISMATCH, Device, DriverUnavailableError, Gate
from slurmgpu.node.processes import GpuProcess, ProcessLists
from slurmgpu.node.readings import Tier
from slurmgpu.node.sampler import SampledGpu, Sampler
from slurmgpu.node.shares import Uses
from slurmgpu.wire.records import Event, GpuInfo, Record

log = logging.getLogger(__name__)

_REOPEN_S = (5.0, 300.0)
_MOST_STRETCH = 16
_LIST_AGAIN_S = 60.0  # while a GPU is lost or MIG is on
_PROBE_AGAIN_S = 3600.0
_STUCK_S = 0.05  # a call that takes longer is left to its thread, and the round goes on
_OPEN_S = 0.4
_HANG_S = 10.0
_DRIVER = "driver"

Sample = tuple[float, tuple[int | None, ...]]


@dataclass(slots=True)
class _Tracked:
    gpu: SampledGpu
    builder: BlockBuilder
    stuck_since: float | None = None
    told: bool = False  # that it hangs, or is lost


class Devices:
    """All that the daemon does with GPUs. Nothing here waits for a call that does not return."""

    def __init__(
        self, gate: Gate, sampler: Sampler, clock: Clock, config: NodeConfig, fallback: Fallback | None = None
    ) -> None:
        self._gate = gate
        self._sampler = sampler
        self._clock = clock
        self._interval_s: float = config.interval
        self._period_s: dict[Tier, float] = {Tier.MEDIUM: config.medium, Tier.SLOW: config.slow}
        self._fallback = fallback
        self._wall_offset = clock.wall() - clock.monotonic()
        self._tracked: dict[str, _Tracked] = {}
        self._readers: Crew[SampledGpu, Sample | None] = Crew(_STUCK_S)
        self._opener: Crew[str, list[GpuInfo]] = Crew(_OPEN_S)
        self._is_open = False
        self._complaint = ""
        self._counted = 0
        self._next_open = 0.0
        self._next_probe = 0.0
        self._reopen_s = _REOPEN_S[0]
        self._next_tier = {tier: 0.0 for tier in self._period_s}
        self._stretch = {tier: 1 for tier in self._period_s}
        self._records: list[Record] = []
        self.library_is_stale = False  # the driver was replaced under us: only a new process loads the new library
        self.on_devices: Callable[[list[Device]], None] = lambda devices: None
        self.owners_of: Callable[[str], tuple[str, ...]] = lambda uuid: ()
        self.ordinal_of: Callable[[str], int | None] = lambda uuid: None
        self.uses_of: Callable[[str, ProcessLists], Uses] = lambda uuid, lists: {}
        self.processes_are_fresh = False  # their lists came with the last round

    def __len__(self) -> int:
        return len(self._tracked)

    # -- opening

    def open(self) -> None:
        """Open the driver when it is time to; list the GPUs again when there is reason to."""
        now = self._clock.monotonic()
        results = self._opener.late()
        if not results and now >= self._next_open and not self._opener.stuck:
            self._next_open = now + self._reopen_s
            results = self._opener.run([_DRIVER], lambda _: self._list())
        for _, result in results:
            if isinstance(result, DriverUnavailableError):
                self._unavailable(result)
            elif isinstance(result, Exception):
                raise result
            else:
                self._listed(now, result)

    def _list(self) -> list[GpuInfo]:
        """In the opener's thread: each of these calls may be slow, or never return."""
        self._sampler.open()
        devices = [gpu.device for gpu in self._sampler.gpus]
        return gpu_infos(self._gate, devices, round(self._clock.wall() * 1000))

    def _unavailable(self, error: DriverUnavailableError) -> None:
        if self._is_open:
            self.library_is_stale = error.code == VERSION_MISMATCH
            log.error("%s; tried again in %d s", error, self._reopen_s)
            self._event("driver.unavailable", str(error))
        elif str(error) != self._complaint:  # said once for each cause
            self._complaint = str(error)
            if self._fallback is None:
                log.error('NVML cannot be used, and node.backend = "nvml" allows nothing else: %s', error)
            else:
                log.warning("NVML cannot be used: %s", error)
        for item in self._tracked.values():
            item.builder.lose()
            self._records += item.builder.take()
        self._tracked.clear()
        self._next_probe = 0.0
        self._gate.close()
        self._is_open = False
        self._next_open = self._clock.monotonic() + self._reopen_s
        self._reopen_s = min(2 * self._reopen_s, _REOPEN_S[1])

    def _listed(self, now: float, infos: list[GpuInfo]) -> None:
        """Take over the sampler's list: GPUs that are new begin, those that are gone end, the others go on."""
        if not self._is_open and self._fallback is not None:
            self._fallback.end()
        self._is_open = True
        self._complaint = ""
        self._reopen_s = _REOPEN_S[0]
        self._counted = self._sampler.counted
        probe_all = now >= self._next_probe
        if probe_all:
            self._next_probe = now + _PROBE_AGAIN_S
        before, self._tracked = self._tracked, {}
        for gpu in self._sampler.gpus:
            uuid = gpu.device.uuid
            known = before.pop(uuid, None)
            if known and (known.gpu in self._readers.stuck or not (probe_all or known.gpu.lost or gpu.device.parent)):
                self._tracked[uuid] = known  # goes on as it is; a second call beside one that is stuck helps nobody
                continue
            builder = known.builder if known else self._builder(uuid)
            self._tracked[uuid] = _Tracked(gpu, builder)
            self._next_tier = dict.fromkeys(self._period_s, 0.0)  # all its readings with the next round
            builder.change_owner(now, self.owners_of(uuid))
            if known and known.gpu.lost:
                self._event("gpu.back", f"{uuid} answers again", uuid)
        for uuid, item in before.items():
            if item.gpu.lost:
                self._tracked[uuid] = item  # it will not be listed until it is reset; it stays known as lost
                continue
            item.builder.lose()
            self._records += item.builder.take()
            self._event("gpu.gone", f"{uuid} is no longer listed by the driver", uuid)
        devices = [item.gpu.device for item in self._tracked.values()]
        restless = any(item.gpu.lost or item.gpu.device.parent for item in self._tracked.values())
        self._next_open = min(now + _LIST_AGAIN_S, self._next_probe) if restless else self._next_probe
        self.on_devices(devices)
        self._records += [replace(info, ordinal=self.ordinal_of(info.uuid)) for info in infos]

    def _builder(self, uuid: str) -> BlockBuilder:
        return BlockBuilder(uuid, self._sampler.metrics, self._interval_s, self._wall_offset)

    # -- reading

    def sample(self, now: float) -> None:
        """A round: every GPU that answers, in the tiers that are due."""
        self.open()
        if not self._is_open:
            self._sample_without_nvml()
            return
        due = [tier for tier in self._period_s if now >= self._next_tier[tier]]
        self.processes_are_fresh = Tier.MEDIUM in due
        start = self._clock.monotonic()
        self._read(list(self._tracked.values()), [Tier.FAST, *due])
        took_s = self._clock.monotonic() - start
        for tier in due:
            self._pace(tier, took_s)
            self._next_tier[tier] = now + self._period_s[tier] * self._stretch[tier]
        self._judge_stuck(now)
        if self._counted != self._sampler.counted:  # a GPU came or went: look at the list with the next round
            self._counted = self._sampler.counted
            self._next_open = now

    def _sample_without_nvml(self) -> None:
        if self._fallback is not None and not self._opener.stuck:
            fresh = self._fallback.sample(self._wall_offset, self.owners_of)
            if fresh:
                self.on_devices(fresh)

    def read(self, uuids: Iterable[str]) -> None:
        """The fast readings of some GPUs, out of turn."""
        self._read([self._tracked[uuid] for uuid in uuids if uuid in self._tracked], [Tier.FAST])

    def _read(self, items: list[_Tracked], tiers: list[Tier]) -> None:
        shared = {item.gpu for item in items if len(item.builder.owners) > 1}

        def work(gpu: SampledGpu) -> Sample | None:
            if Tier.SLOW in tiers and gpu is items[0].gpu:
                self._counted = self._sampler.count()
            # The processes of a shared GPU say whose each sample is; their reading is one of the medium tier.
            mine = [*tiers, Tier.MEDIUM] if gpu in shared and Tier.MEDIUM not in tiers else tiers
            if not self._sampler.sample(gpu, mine):
                return None
            return self._clock.monotonic(), tuple(gpu.row)

        for gpu, result in self._readers.run([item.gpu for item in items], work):
            item = self._tracked.get(gpu.device.uuid)
            if isinstance(result, DriverUnavailableError):
                self._unavailable(result)
                return
            if isinstance(result, Exception):
                log.error("%s: %r", gpu.device.uuid, result)
            elif item is not None and item.gpu is gpu:
                self._came(item, result)

    def _came(self, item: _Tracked, sample: Sample | None) -> None:
        uuid = item.gpu.device.uuid
        if item.stuck_since is not None:
            if item.told:
                self._event("driver.answers", f"{uuid} answers again", uuid)
            item.stuck_since, item.told = None, False
        if sample is not None:
            item.builder.causes = item.gpu.causes
            lists = self._gate.process_lists.get(uuid)
            shared = lists is not None and len(item.builder.owners) > 1
            item.builder.add(*sample, self.uses_of(uuid, lists) if shared and lists else None)
            return
        item.builder.lose()
        if not item.told:
            item.told = True
            self._event("gpu.lost", f"{uuid} is lost: {item.gpu.lost}", uuid)
            self._next_open = min(self._next_open, self._clock.monotonic() + _LIST_AGAIN_S)

    def _pace(self, tier: Tier, took_s: float) -> None:
        """A tier whose calls take a good part of the interval comes less often, until they are quick again."""
        stretch = self._stretch[tier]
        if took_s > 0.2 * self._interval_s and stretch < _MOST_STRETCH:
            self._stretch[tier] = 2 * stretch
            every_s = self._period_s[tier] * 2 * stretch
            log.warning("the %s readings took %.2f s: from now on every %g s", tier.value, took_s, every_s)
        elif took_s < 0.05 * self._interval_s and stretch > 1:
            self._stretch[tier] = stretch // 2

    def _judge_stuck(self, now: float) -> None:
        deadline_s = max(_HANG_S, 3 * self._interval_s)
        for gpu in self._readers.stuck:
            item = self._tracked.get(gpu.device.uuid)
            if item is None or item.gpu is not gpu:
                continue
            if item.stuck_since is None:
                item.stuck_since = now
            elif now - item.stuck_since >= deadline_s and not item.told:
                item.told = True
                uuid = gpu.device.uuid
                self._event(
                    "driver.hang", f"a call to the driver for {uuid} has not returned for {deadline_s:g} s", uuid
                )

    def processes(self) -> dict[str, list[GpuProcess]]:
        """The processes on each GPU, as last read; not of GPUs whose list is not to be had."""
        lists = {uuid: self._gate.process_lists.get(uuid) for uuid in self._tracked}
        return {uuid: found.latest for uuid, found in lists.items() if found is not None and found.latest is not None}

    # -- owners and handing over

    def change_owner(self, t_wall: float, uuid: str, owners: tuple[str, ...]) -> None:
        """From ``t_wall`` (unix seconds) on the GPU belongs to these allocations."""
        t = min(t_wall - self._wall_offset, self._clock.monotonic())
        item = self._tracked.get(uuid)
        if item is not None:
            item.builder.change_owner(t, owners)
        elif self._fallback is not None:
            self._fallback.change_owner(t, uuid, owners)

    def set_interval(self, interval_s: float) -> None:
        """Samples come this often from now on."""
        self._interval_s = interval_s
        for item in self._tracked.values():
            item.builder.set_interval(interval_s)

    def set_wall_offset(self, offset: float) -> None:
        """The wall clock was set."""
        self._wall_offset = offset
        for item in self._tracked.values():
            item.builder.set_wall_offset(offset)

    def take(self, *, also_open: bool = True) -> list[Record]:
        """Blocks, inventory and events since the last time; without ``also_open``, blocks that are filling stay."""
        for item in self._tracked.values():
            self._records += item.builder.take() if also_open else item.builder.take_closed()
        records, self._records = self._records, []
        return records + (self._fallback.take() if self._fallback is not None else [])

    def _event(self, kind: str, text: str, gpu: str | None = None) -> None:
        log.warning("%s: %s", kind, text)
        self._records.append(Event(round(self._clock.wall() * 1000), kind, text, gpu))
