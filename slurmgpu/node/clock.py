"""Time and signals: how the daemon waits. A test puts its own in place."""

from __future__ import annotations

import signal
import time
from typing import Protocol


class Clock(Protocol):
    """What the daemon asks of time."""

    def monotonic(self) -> float:
        """Seconds that only go forward, for differences."""
        ...

    def wall(self) -> float:
        """Unix seconds, for labels."""
        ...

    def uptime(self) -> float:
        """Seconds since the machine started, as in /proc/uptime."""
        ...

    def wait(self, seconds: float) -> int | None:
        """Wait, at most so long; the number of the signal that ended the wait."""
        ...


class SystemClock:
    """The machine's clocks. Signals are taken while waiting only, so that nothing is ever interrupted half-way."""

    SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self.SIGNALS)

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def uptime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, seconds: float) -> int | None:
        info = signal.sigtimedwait(self.SIGNALS, max(0.0, seconds))
        return None if info is None else info.si_signo
