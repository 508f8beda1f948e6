"""Processes by name, recorded with their start time, so that a pid that came round again is never taken for ours."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from settings import ClusterError


def start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def wait_for(what: str, seconds: float, condition: Callable[[], object]) -> None:
    """Until the condition holds. Raises :class:`ClusterError` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.1)


def quiet(*command: str) -> bool:
    """Run a command; whether it went well."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def must(*command: str) -> None:
    """Run a command that has to go well. Raises :class:`ClusterError` with its words."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")


class Processes:
    """The processes of one cluster, recorded in a folder."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self._children: list[subprocess.Popen[bytes]] = []  # those that this very process started, to be collected

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []

    def record(self, name: str, pid: int) -> None:
        (self.folder / name).write_text(f"{pid} {start_time(pid)}")

    def pid(self, name: str) -> int | None:
        """The pid while that very process runs."""
        try:
            pid, started = (self.folder / name).read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if start_time(int(pid)) == started else None

    def wait_ready(self, name: str, seconds: float, condition: Callable[[], object]) -> None:
        """Until the condition holds. Raises :class:`ClusterError` when it does not in time or the process has ended."""

        def ready() -> bool:
            if condition():
                return True
            if self.pid(name) is None:
                raise ClusterError(f"{name} ended before it was ready")
            return False

        wait_for(name, seconds, ready)

    def spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Start in a session of its own, output to the log folder."""
        with (self.log / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )
        self._children.append(process)
        self.record(name, process.pid)
        return process.pid

    def stop(self, name: str, seconds: float = 10, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end; after the time, make it."""
        pid = self.pid(name)
        if pid is not None:
            for number in (first, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
                try:
                    wait_for(name, seconds, lambda: self._gone(name))
                    break
                except ClusterError:
                    continue
        (self.folder / name).unlink(missing_ok=True)

    def reap(self) -> None:
        """Collect those of our own children that have ended."""
        self._children = [child for child in self._children if child.poll() is None]

    def _gone(self, name: str) -> bool:
        self.reap()
        return self.pid(name) is None
