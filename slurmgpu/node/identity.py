"""Slurm's names of the cluster and of this node. The host's name is used only until something better is known."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from slurmgpu.config import Config
from slurmgpu.node.marks import Mark

_SLURM_CONF = Path("/etc/slurm/slurm.conf")
_CLUSTER_NAME = re.compile(r"^\s*ClusterName\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


@dataclass(slots=True)
class Identity:
    """``guessed``: nothing of Slurm's has said one of the names yet."""

    cluster: str
    node: str
    guessed: bool = False

    def take(self, mark: Mark) -> None:
        """What a hook had, where it was guessed so far."""
        if self.guessed:
            self.cluster = mark.get("SLURM_CLUSTER_NAME") or self.cluster
            self.node = mark.get("SLURMD_NODENAME") or self.node
            self.guessed = False


def find(config: Config) -> Identity:
    """The names as configured, else as the environment and slurm.conf have them, else a guess."""
    cluster = config.cluster or _cluster_name()
    node = config.node.name or os.environ.get("SLURMD_NODENAME", "")
    return Identity(cluster or "cluster", node or host_name(), guessed=not (cluster and node))


def host_name() -> str:
    """The host's name without its domain."""
    return socket.gethostname().partition(".")[0]


def _cluster_name() -> str:
    try:
        text = Path(os.environ.get("SLURM_CONF") or _SLURM_CONF).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _CLUSTER_NAME.search(text)
    return found[1] if found else ""
