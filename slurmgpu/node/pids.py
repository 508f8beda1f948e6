"""Process → job: by its control group (v1, v2), else by the slurmstepd above it, else by its environment.

slurmstepd is root's, one for each step, and calls itself ``slurmstepd: [JOB.STEP]``: where one lives, its job is on
this node. It also says which job a control group is of that Slurm 26.05 names by SLUID. The environment is the user's
to write: it is asked only where Slurm tracks processes without control groups.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_JOB = r"/(?:uid_\d+/)?(?:job_(\d{1,19})|(s[0-9A-HJKMNP-TV-Z]{13}))(?:/|$)"
_STEPD = re.compile(rb"slurmstepd: \[(\d{1,19})[.\]+_]")
_MOST_PARENTS = 64
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessJob:
    """The job that a process belongs to, by its id or its SLUID. ``source``: cgroup, stepd (above it), environment."""

    source: str
    job_id: int | None = None
    sluid: str | None = None


@dataclass(slots=True)
class Stepds:
    """What the slurmstepd processes of the node say at one time."""

    jobs: set[int] = field(default_factory=set)
    by_sluid: dict[str, int] = field(default_factory=dict)
    in_cgroups: bool = False  # Slurm tracks processes by control groups here


class Pids:
    """Asks /proc. Processes end while they are looked at: what cannot be read is not known."""

    def __init__(self, cgroup_roots: Iterable[str], proc: Path = Path("/proc")) -> None:
        roots = "|".join(re.escape(root).replace(r"\*", "[^/]*") for root in cgroup_roots)
        # Seen from another cgroup namespace, a path begins with "/..".
        self._cgroup = re.compile(rf"^[0-9]+:[^:]*:(?:/\.\.)*(?:{roots}){_JOB}", re.MULTILINE)
        self._proc = str(proc)

    def job_of(self, pid: int) -> ProcessJob | None:
        """The job of a process by what only root can write; None: none, or not known."""
        group = self._group_of(pid)
        if group is not None:
            return ProcessJob("cgroup", int(group[1]) if group[1] else None, group[2])
        ancestor = pid
        for _ in range(_MOST_PARENTS):
            ancestor = self._parent_of(ancestor)
            if ancestor <= 1:
                break
            job_id = self._stepd(ancestor)
            if job_id is not None:
                return ProcessJob("stepd", job_id)
        return None

    def by_environment(self, pid: int) -> ProcessJob | None:
        """The job that the process names itself, which its user may have written."""
        for entry in self._read(f"{pid}/environ").split(b"\0"):
            if entry.startswith(b"SLURM_JOB_ID=") and entry[13:].isdigit() and len(entry) < 33:
                return ProcessJob("environment", int(entry[13:]))
        return None

    def stepds(self) -> Stepds:
        """Look through all processes for slurmstepd: some ten microseconds for each process of the node."""
        found = Stepds()
        for name in os.listdir(self._proc):  # noqa: PTH208 - Path costs more than the call
            if not name.isdigit():
                continue
            pid = int(name)
            job_id = self._stepd(pid)
            if job_id is None:
                continue
            found.jobs.add(job_id)
            group = self._group_of(pid)
            if group is not None:
                found.in_cgroups = True
                if group[2]:
                    found.by_sluid[group[2]] = job_id
        return found

    def uid_of(self, pid: int) -> int | None:
        """Whose process it is."""
        try:
            return os.stat(f"{self._proc}/{pid}").st_uid  # noqa: PTH116 - Path costs more than the call
        except OSError:
            return None

    def age_s(self, pid: int) -> float | None:
        """Seconds since the process began."""
        try:
            began_ticks = int(self._stat_of(pid)[19])
            uptime_s = float(self._read("uptime").split()[0])
        except (IndexError, ValueError):
            return None
        return max(0.0, uptime_s - began_ticks / os.sysconf("SC_CLK_TCK"))

    def _stepd(self, pid: int) -> int | None:
        """The job of a slurmstepd; None for every other process, whatever it calls itself."""
        if self._read(f"{pid}/comm") != b"slurmstepd\n":
            return None
        title = _STEPD.match(self._read(f"{pid}/cmdline"))
        return int(title[1]) if title is not None and self.uid_of(pid) == 0 else None

    def _group_of(self, pid: int) -> re.Match[str] | None:
        return self._cgroup.search(self._read(f"{pid}/cgroup").decode("utf-8", errors="replace"))

    def _parent_of(self, pid: int) -> int:
        fields = self._stat_of(pid)
        return int(fields[1]) if len(fields) > 1 else 0

    def _stat_of(self, pid: int) -> list[bytes]:
        """The fields after the name, which may hold blanks and brackets: state, parent, …"""
        return self._read(f"{pid}/stat").rpartition(b")")[2].split()

    def _read(self, name: str) -> bytes:
        try:
            with open(f"{self._proc}/{name}", "rb") as file:  # noqa: PTH123 - Path costs more than the call
                return file.read(_MOST_BYTES)
        except OSError:
            return b""
