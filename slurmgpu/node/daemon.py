"""The loop of slurmgpud: look at the marks, take the readings that are due, hand blocks to the spool."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from dataclasses import replace

from slurmgpu import __version__
from slurmgpu.config import ConfigError, NodeConfig
from slurmgpu.node.attribution import Attribution
from slurmgpu.node.clock import Clock
from slurmgpu.node.devices import Devices
from slurmgpu.node.fallback import Fallback
from slurmgpu.node.identity import Identity
from slurmgpu.node.nvml import Gate
from slurmgpu.node.pids import Pids
from slurmgpu.node.readings import discover
from slurmgpu.node.sampler import Sampler
from slurmgpu.node.spool import Spool
from slurmgpu.node.systemd import notify
from slurmgpu.wire.records import Event, NodeStart, Record

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_STEP_S = 0.1  # a wall clock that moved by more against the monotonic one was set
_MAX_WAITING = 100_000  # records held in memory while the spool cannot be written


class Daemon:
    """One node's slurmgpud. Nothing here waits for anything but the clock."""

    def __init__(
        self,
        config: NodeConfig,
        names: Identity,
        boot_id: str,
        gate: Gate,
        spool: Spool,
        clock: Clock,
        pids: Pids,
        reload: Callable[[], NodeConfig],
    ) -> None:
        self._config = config
        self._reload = reload
        self._spool = spool
        self._clock = clock
        self._boot_id = boot_id
        sampler = Sampler(gate, discover())
        fallback = Fallback(sampler.metrics, clock) if config.backend == "auto" else None
        self._devices = Devices(gate, sampler, clock, config, fallback)
        self._owners = Attribution(config.run_dir, names, self._devices, pids, clock, boot_id)
        self._waiting: list[Record] = []
        self._wall_offset = clock.wall() - clock.monotonic()
        self.rounds = 0
        self.skipped_rounds = 0

    def prepare(self) -> None:
        """Make the folders, open the driver, follow the marks that wait. Raises MarksError, SpoolError."""
        self._owners.prepare()
        self._spool.prepare()
        self._devices.open()
        self._waiting += self._owners.resume()
        now_ms = round(self._clock.wall() * 1000)
        self._waiting.append(NodeStart(now_ms, self._boot_id, __version__, self._owners.open_ids()))

    def once(self) -> None:
        """One look, one reading, one segment."""
        self._sample(self._clock.monotonic())
        self._flush()

    def run(self) -> bool:
        """Until SIGTERM or SIGINT; then the last readings are taken and handed over.

        False: the driver was replaced, and a new process must take over with the new library.
        """
        notify("READY=1")
        log.info("ready: %d GPUs, every %g s", len(self._devices), self._config.interval)
        start = next_sample = self._clock.monotonic()
        next_flush = start + self._config.flush
        while not self._devices.library_is_stale:
            now = self._clock.monotonic()
            if now >= next_sample:
                interval = self._config.interval
                late = int((now - next_sample) / interval)
                self.skipped_rounds += late
                next_sample += (late + 1) * interval
                self._sample(now)
            changed = self._owners.changed() and self._follow_marks()
            if now >= next_flush:
                self._flush()
                while next_flush <= now:
                    next_flush += self._config.flush
            elif changed:  # what ended is safe at once; the blocks of the other GPUs go on
                self._flush(also_open=False)
            notify("WATCHDOG=1")
            now = self._clock.monotonic()
            received = self._clock.wait(min(next_sample - now, next_flush - now, _LOOK_S))
            if received in (signal.SIGTERM, signal.SIGINT):
                break
            if received == signal.SIGHUP:
                self._take_configuration()
        notify("STOPPING=1")
        if not self._devices.library_is_stale:
            self._sample(self._clock.monotonic())
        self._follow_marks()
        self._flush()
        log.info("stopped after %d rounds, %d skipped", self.rounds, self.skipped_rounds)
        return not self._devices.library_is_stale

    def _take_configuration(self) -> None:
        """SIGHUP: the interval and the flush period change at once; folders and names need a restart."""
        try:
            fresh = self._reload()
        except ConfigError as error:
            log.error("%s; the configuration stays as it was", error)
            return
        self._config = replace(self._config, interval=fresh.interval, flush=fresh.flush)
        self._devices.set_interval(fresh.interval)
        log.info("configuration read again: every %g s, flush %g s", fresh.interval, fresh.flush)

    def _sample(self, now: float) -> None:
        self._check_wall_clock()
        self.rounds += 1
        self._devices.sample(now)
        self._waiting += self._owners.after_round()

    def _check_wall_clock(self) -> None:
        offset = self._clock.wall() - self._clock.monotonic()
        step = offset - self._wall_offset
        if abs(step) > _STEP_S:
            self._wall_offset = offset
            text = f"the wall clock was set by {step:+.1f} s"
            log.warning("clock.step: %s", text)
            self._waiting.append(Event(round(self._clock.wall() * 1000), "clock.step", text))
            self._devices.set_wall_offset(offset)
            self._owners.clock_was_set(step)

    def _follow_marks(self) -> bool:
        """Take in new marks. True when an owner or an allocation changed."""
        self._check_wall_clock()
        records = self._owners.follow()
        self._waiting += records
        return bool(records)

    def _flush(self, *, also_open: bool = True) -> None:
        self._waiting += self._devices.take(also_open=also_open)
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
        self._owners.done()
