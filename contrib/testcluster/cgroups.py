"""Control groups (version 1) of the nodes.

Slurm names the root of a node's job cgroups after the node alone, and every cluster here has a node n1: without more,
job 1 of two clusters shares its device limits. So each node lives in cgroups of its own, seen through a cgroup
namespace: inside, paths are ``/slurm_n1/uid_1000/job_1`` as on a real machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from processes import wait_for
from settings import Settings

TOP = Path("/sys/fs/cgroup")
CONTROLLERS = ("freezer", "devices")
_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"'


def usable() -> bool:
    """Whether version 1 can be written here, so that Slurm can limit devices with it."""
    return all(os.access(TOP / controller / "cgroup.procs", os.W_OK) for controller in CONTROLLERS)


def name(s: Settings, node: str) -> str:
    """The path of the node below a controller."""
    return f"{s.name}/{node}"


def _folders(s: Settings, node: str) -> list[Path]:
    return [TOP / controller / name(s, node) for controller in CONTROLLERS]


def make(s: Settings, node: str) -> None:
    """The cgroups of a node; nothing where version 1 cannot be written."""
    for folder in _folders(s, node) if usable() else []:
        folder.mkdir(parents=True, exist_ok=True)


def entering(s: Settings, node: str) -> list[str]:
    """The words that run a command in the cgroups of a node."""
    there = [str(folder) for folder in _folders(s, node) if folder.is_dir()]
    return ["sh", "-ec", _ENTER, "sh", *there, "--"]


def remove(s: Settings, node: str) -> None:
    """All cgroups of a node. Raises :class:`ClusterError` when a process stays in one."""
    for top in _folders(s, node):
        wait_for(f"the end of {top}", 5, lambda top=top: _removed(top))  # type: ignore[misc]
        if top.parent.is_dir() and not any(path.is_dir() for path in top.parent.iterdir()):
            top.parent.rmdir()


def _removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:  # the kernel takes a moment after the last process
            return False
    return True
