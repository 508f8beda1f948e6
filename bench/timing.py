"""Whole commands timed in turn, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """Wall-clock milliseconds of one command's runs."""

    name: str
    runs_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.runs_ms)

    @property
    def spread(self) -> str:
        low, high = statistics.quantiles(self.runs_ms, n=10)[0], statistics.quantiles(self.runs_ms, n=10)[-1]
        return f"{low:.2f} to {high:.2f}"


def in_turn(
    commands: Mapping[str, Sequence[str]], runs: int, environment: Mapping[str, str], warm_up: int = 5
) -> dict[str, Timed]:
    """Run the commands A B C A B C …; output goes nowhere. Raises RuntimeError when one fails."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    for number in range(runs + warm_up):
        for name, command in commands.items():
            start = time.perf_counter()
            pid = os.posix_spawn(command[0], command, environment, file_actions=nowhere)
            _, status = os.waitpid(pid, 0)
            took = (time.perf_counter() - start) * 1000
            if status:
                raise RuntimeError(f"{' '.join(command)} failed: wait status {status}")
            if number >= warm_up:
                times[name].append(took)
    return {name: Timed(name, tuple(values)) for name, values in times.items()}
