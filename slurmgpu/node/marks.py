"""What the hooks wrote: one file for each prolog and epilog, ``JOBID.prolog.PID`` or ``JOBID.epilog.PID``.

A mark holds the hook's environment as a NUL-separated block and behind it the machine's uptime; its mtime is the moment
by the wall clock. Whatever stands in it may come from a user: it is read as bytes, by exact names, and never as lines.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path

log = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9]{1,19})\.(prolog|epilog)\.([0-9]+)")
_MAX_BYTES = 4 << 20
_MAX_VALUE = 1024  # of a value that is kept; the longest of use is a node list
_ABANDONED_S = 3600
_TICK_NS = 50_000_000
_STEP_S = 0.1  # a wall clock that moved by more against the uptime was set
_UPTIME = re.compile(rb"([0-9]{1,12}\.[0-9]{2}) [0-9.]+\n")


class MarksError(Exception):
    """The folder of the marks cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Job ``job_id`` started (``prolog``) or ended (``epilog``) on this node at ``t``, unix seconds.

    ``t`` is by the wall clock as it is now. ``stepped_s``: by how much that was set since the mark was written;
    ``t - stepped_s`` is what it showed then. ``environment`` holds only what slurmgpu uses; it is empty when the disk
    was full.
    """

    path: Path
    job_id: int
    hook: str
    t: float
    environment: dict[str, str]
    uptime_s: float | None = None
    stepped_s: float = 0.0

    def by(self, wall_s: float, uptime_s: float) -> Mark:
        """The mark with its time by the clocks as they are now: the wall clock may have been set since."""
        if self.uptime_s is None:
            return replace(self, t=min(self.t, wall_s))
        true_t = min(wall_s, wall_s - uptime_s + self.uptime_s)
        if abs(true_t - self.t) < _STEP_S:
            return replace(self, t=min(self.t, wall_s))  # finer than the uptime
        return replace(self, t=true_t, stepped_s=true_t - self.t)

    def get(self, name: str) -> str | None:
        """A variable's value; None when it is not set or empty."""
        return self.environment.get(name) or None

    def number(self, name: str) -> int | None:
        """A variable that is a number; None when it is not set or no number."""
        value = self.environment.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


def order(mark: Mark) -> tuple[float, bool]:
    """Marks sorted by this are followed as things happened; an end comes before a start at the same moment."""
    return mark.t, mark.hook == "prolog"


class MarkFolder:
    """``RUN_DIR/jobs``. Cheap to look at: one stat unless something changed."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "jobs"
        self._seen_ns = -1

    def prepare(self) -> None:
        """Make the folder, readable by us alone. Raises :class:`MarksError`."""
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            status = self.path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise MarksError(f"{self.path} must be a folder of uid {os.geteuid()}: remove it and start again")
            if status.st_mode & 0o077:
                self.path.chmod(0o700)
            if self.path.parent.stat().st_uid == os.geteuid():
                self.path.parent.chmod(0o755)  # a hook that came first makes it 0700
        except OSError as error:
            raise MarksError(f"{self.path}: {error.strerror}: set node.run_dir to a folder on tmpfs") from error

    def changed(self) -> bool:
        """Whether a mark came or went since the last :meth:`scan`."""
        try:
            return self.path.stat().st_mtime_ns != self._seen_ns
        except OSError:
            return True

    def scan(self) -> list[Mark]:
        """All marks, oldest first. Files that are not marks, or cannot be read, are passed over and said once."""
        marks: list[Mark] = []
        try:
            # Before the listing: what comes during it changes the time again.
            seen_ns = self.path.stat().st_mtime_ns
            entries = list(os.scandir(self.path))
        except FileNotFoundError:
            self.prepare()
            return []
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is None:
                self._clean(entry)
                continue
            try:
                marks.append(_read(Path(entry.path), int(match[1]), match[2]))
            except OSError as error:
                log.warning("mark %s cannot be read: %s", entry.name, error.strerror or error)
        # A folder that changed just now may change again within one tick of its clock, without showing it.
        self._seen_ns = seen_ns if time.time_ns() - seen_ns > _TICK_NS else -1
        return sorted(marks, key=order)

    def remove(self, mark: Mark) -> None:
        """Forget a mark whose news is safe."""
        mark.path.unlink(missing_ok=True)

    @staticmethod
    def _clean(entry: os.DirEntry[str]) -> None:
        """A hook that was killed leaves its unfinished file; it has no use after an hour."""
        try:
            age_s = time.time() - entry.stat(follow_symlinks=False).st_ctime
            if entry.name.startswith(".") and age_s > _ABANDONED_S:
                Path(entry.path).unlink()
        except OSError:
            pass


def _read(path: Path, job_id: int, hook: str) -> Mark:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a plain file")
        block = file.read(_MAX_BYTES)
        uptime = _UPTIME.fullmatch(block.rpartition(b"\0")[2])
        mtime = status.st_mtime_ns / 1e9
        return Mark(path, job_id, hook, mtime, parse_environment(block), float(uptime[1]) if uptime else None)


def parse_environment(block: bytes) -> dict[str, str]:
    """The variables of use from a NUL-separated block; of a name that comes twice, the first.

    Bytes that are not UTF-8 are replaced; a last entry without its NUL was cut off, or is the uptime: it is left out.
    """
    found: dict[str, str] = {}
    for entry in block.split(b"\0")[:-1]:
        name, equals, value = entry.partition(b"=")
        if equals and name in _USED and len(value) <= _LIMITS.get(name, _MAX_VALUE):
            found.setdefault(name.decode(), value.decode("utf-8", errors="replace"))
    return found


_USED = frozenset(
    {
        b"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        b"CUDA_VISIBLE_DEVICES",
        b"GPU_DEVICE_ORDINAL",
        b"SLURMD_NODENAME",
        b"SLURM_CLUSTER_NAME",
        b"SLURM_CONF",
        b"SLURM_HET_JOB_ID",
        b"SLURM_JOB_ACCOUNT",
        b"SLURM_JOB_EXIT_CODE",
        b"SLURM_JOB_GPUS",
        b"SLURM_JOB_NODELIST",
        b"SLURM_JOB_PARTITION",
        b"SLURM_JOB_RESTART_COUNT",
        b"SLURM_JOB_SLUID",
        b"SLURM_JOB_START_TIME",
        b"SLURM_JOB_UID",
        b"SLURM_JOB_USER",
        b"SLURM_NODELIST",
    }
)
_LIMITS = {b"SLURM_JOB_NODELIST": 65536, b"SLURM_NODELIST": 65536, b"CUDA_VISIBLE_DEVICES": 65536}
