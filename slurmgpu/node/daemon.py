"""The loop of slurmgpud: look at the marks, take the readings that are due, hand blocks to the spool."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass

from slurmgpu.config import NodeConfig
from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.node.clock import Clock
from slurmgpu.node.inventory import gpu_infos
from slurmgpu.node.marks import Mark, MarkFolder
from slurmgpu.node.nvml import DriverUnavailableError, Gate
from slurmgpu.node.ownership import OwnerChange, Ownership
from slurmgpu.node.readings import Tier, discover
from slurmgpu.node.sampler import SampledGpu, Sampler
from slurmgpu.node.spool import Spool
from slurmgpu.node.systemd import notify
from slurmgpu.wire.records import Event, Record

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_STEP_S = 0.1  # a wall clock that moved by more against the monotonic one was set
_REOPEN_S = (5.0, 300.0)
_MAX_WAITING = 100_000  # records held in memory while the spool cannot be written
_MEDIUM_S, _SLOW_S = 30.0, 60.0


@dataclass(slots=True)
class _Tracked:
    gpu: SampledGpu
    builder: BlockBuilder


class Daemon:
    """One node's slurmgpud. Nothing here waits for anything but the clock and the driver."""

    def __init__(self, config: NodeConfig, gate: Gate, spool: Spool, clock: Clock) -> None:
        self._config = config
        self._gate = gate
        self._spool = spool
        self._clock = clock
        self._marks = MarkFolder(config.run_dir)
        self._ownership = Ownership(spool.cluster, spool.node)
        self._sampler = Sampler(gate, discover())
        self._tracked: dict[str, _Tracked] = {}
        self._waiting: list[Record] = []
        self._finished: list[Mark] = []
        self._wall_offset = clock.wall() - clock.monotonic()
        self._next_open = 0.0
        self._reopen_s = _REOPEN_S[0]
        self._next_tier: dict[Tier, float] = {Tier.MEDIUM: 0.0, Tier.SLOW: 0.0}
        self.rounds = 0
        self.skipped_rounds = 0

    def prepare(self) -> None:
        """Make the folders, open the driver, follow the marks that wait. Raises MarksError, SpoolError."""
        self._marks.prepare()
        self._spool.prepare()
        self._open_driver()
        self._follow_marks()
        if not self._tracked:
            log.info("no GPU to read; marks are followed all the same")

    def once(self) -> None:
        """One look, one reading, one segment."""
        self._sample(self._clock.monotonic())
        self._flush()

    def run(self) -> None:
        """Until SIGTERM or SIGINT; then the last readings are taken and handed over."""
        notify("READY=1")
        log.info("ready: %d GPUs, every %g s", len(self._tracked), self._config.interval)
        start = next_sample = self._clock.monotonic()
        next_flush = start + self._config.flush
        interval = self._config.interval
        while True:
            now = self._clock.monotonic()
            if now >= next_sample:
                late = int((now - next_sample) / interval)
                self.skipped_rounds += late
                next_sample += (late + 1) * interval
                self._sample(now)
            changed = self._marks.changed() and self._follow_marks()
            if changed or now >= next_flush:
                self._flush()
                notify("WATCHDOG=1")
                while next_flush <= now:
                    next_flush += self._config.flush
            now = self._clock.monotonic()
            received = self._clock.wait(min(next_sample - now, next_flush - now, _LOOK_S))
            if received in (signal.SIGTERM, signal.SIGINT):
                break
        notify("STOPPING=1")
        self._sample(self._clock.monotonic())
        self._follow_marks()
        self._flush()
        log.info("stopped after %d rounds, %d skipped", self.rounds, self.skipped_rounds)

    # -- readings

    def _sample(self, now: float) -> None:
        self._check_wall_clock()
        if not self._tracked and not self._open_driver():
            return
        self.rounds += 1
        tiers = [Tier.FAST]
        for tier, every in ((Tier.MEDIUM, _MEDIUM_S), (Tier.SLOW, _SLOW_S)):
            if now >= self._next_tier[tier]:
                self._next_tier[tier] = now + every
                tiers.append(tier)
        self._read(list(self._tracked.values()), tiers)

    def _read(self, tracked: list[_Tracked], tiers: list[Tier]) -> None:
        try:
            for item in tracked:
                if self._sampler.sample(item.gpu, tiers):
                    item.builder.causes = item.gpu.causes
                    item.builder.add(self._clock.monotonic(), tuple(item.gpu.row))
                else:
                    item.builder.lose()
        except DriverUnavailableError as error:
            self._lose_driver(error)

    def _check_wall_clock(self) -> None:
        offset = self._clock.wall() - self._clock.monotonic()
        step = offset - self._wall_offset
        if abs(step) <= _STEP_S:
            return
        self._wall_offset = offset
        self._event("clock.step", f"the wall clock was set by {step:+.1f} s")
        for item in self._tracked.values():
            item.builder.set_wall_offset(offset)

    def _open_driver(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next_open:
            return False
        try:
            self._sampler.open()
        except DriverUnavailableError as error:
            self._next_open = now + self._reopen_s
            self._reopen_s = min(2 * self._reopen_s, _REOPEN_S[1])
            self._gate.tell_once("the driver cannot be used", error.code)
            return False
        self._reopen_s = _REOPEN_S[0]
        self._tracked = {
            gpu.device.uuid: _Tracked(
                gpu, BlockBuilder(gpu.device.uuid, self._sampler.metrics, self._config.interval, self._wall_offset)
            )
            for gpu in self._sampler.gpus
        }
        devices = [gpu.device for gpu in self._sampler.gpus]
        self._ownership.set_devices(devices)
        self._waiting += gpu_infos(self._gate, devices, round(self._clock.wall() * 1000))
        for uuid, item in self._tracked.items():
            item.builder.change_owner(now, self._ownership.owners(uuid))
        return True

    def _lose_driver(self, error: DriverUnavailableError) -> None:
        log.error("%s; tried again in %d s", error, self._reopen_s)
        self._event("driver.unavailable", str(error))
        for item in self._tracked.values():
            item.builder.lose()
            self._waiting += item.builder.take()
        self._gate.close()
        self._next_open = self._clock.monotonic() + self._reopen_s
        self._tracked.clear()

    # -- owners

    def _follow_marks(self) -> bool:
        """Take in new marks. True when an owner or an allocation changed."""
        news = self._ownership.take(self._marks.scan())
        self._waiting += news.records
        self._finished += news.finished
        if news.changes:
            changed = [self._tracked[uuid] for uuid in {c.gpu for c in news.changes} if uuid in self._tracked]
            self._read(changed, [Tier.FAST])
            for change in news.changes:
                self._change_owner(change)
        return bool(news.records)

    def _change_owner(self, change: OwnerChange) -> None:
        item = self._tracked.get(change.gpu)
        if item is not None:
            item.builder.change_owner(min(change.t - self._wall_offset, self._clock.monotonic()), change.owners)

    # -- handing over

    def _flush(self) -> None:
        for item in self._tracked.values():
            self._waiting += item.builder.take()
        if not self._waiting:
            return
        try:
            self._spool.write(self._waiting)
        except OSError as error:
            log.error("spool %s: %s; kept in memory and tried again", self._spool.folder, error.strerror or error)
            if len(self._waiting) > _MAX_WAITING:
                lost = len(self._waiting) - _MAX_WAITING
                del self._waiting[:lost]
                log.error("spool %s: %d records had to be dropped", self._spool.folder, lost)
            return
        self._waiting.clear()
        for mark in self._finished:
            self._marks.remove(mark)
            self._ownership.forget(mark)
        self._finished.clear()

    def _event(self, kind: str, text: str) -> None:
        log.warning("%s: %s", kind, text)
        self._waiting.append(Event(round(self._clock.wall() * 1000), kind, text))
