"""What a cluster is made of, kept beside it so that later commands find it as it was brought up."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

CLUSTER_NAME = "simcluster"
ACCOUNTS = {"research": ("alice", "root"), "prod": ("bob",)}


class ClusterError(Exception):
    """The cluster cannot be brought up or used; the message says why."""


@dataclass(frozen=True)
class Settings:
    """``instance`` keeps clusters on one machine apart: it gives folder, network, bridge and ports."""

    instance: int = 0
    folder: str = ""  # where everything lives; empty: /var/tmp/slurmgpu-testcluster-N
    nodes: int = 4
    gpus: int = 8
    cpus: int = 16
    memory_mb: int = 4000
    prolog_flags: str = "Alloc"
    proctrack: str = "auto"
    slurmgpu: bool = False
    slurm_conf: tuple[str, ...] = field(default=())  # further lines
    gres_files: str = ""  # device files of gres.conf; empty: /dev/nvidia[0-(gpus-1)]
    gres_gpus: int = 0  # how many those are; 0: as many as there are
    interval_s: float = 1.0
    flush_s: float = 5.0
    medium_s: float = 2.0  # between looks at the processes on the GPUs

    @property
    def name(self) -> str:
        return f"slurmgpu-testcluster-{self.instance}"

    @property
    def root(self) -> Path:
        return Path(self.folder) if self.folder else Path("/var/tmp") / self.name

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def slurm_conf_path(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def bridge(self) -> str:
        return f"sgtest{self.instance}"

    def address(self, host: int) -> str:
        """The address of host 1 (the controller) or 10 + N (node N) on the cluster's own network."""
        return f"10.79.{self.instance}.{host}"

    def port(self, offset: int) -> int:
        return 17000 + 100 * self.instance + offset

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    def number(self, node: str) -> int:
        """1 for n1. Raises :class:`ClusterError` for a name that is none of ours."""
        if node not in self.node_names:
            raise ClusterError(f"no node {node}: there are {', '.join(self.node_names)}")
        return self.node_names.index(node) + 1

    def node_dir(self, node: str) -> Path:
        return self.root / "nodes" / node

    @property
    def munge_socket(self) -> Path:
        return self.root / "munge" / "munge.socket"

    @property
    def mysql_socket(self) -> Path:
        return self.root / "mysql" / "my.sock"

    @property
    def path(self) -> Path:
        return self.root / "settings.json"

    def save(self) -> None:
        self.path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, instance: int, folder: str = "") -> Settings:
        """As it was brought up. Raises :class:`ClusterError` when it was not, or not by us."""
        path = cls(instance=instance, folder=folder).path
        if not path.exists():
            raise ClusterError(f"no cluster in {path.parent}: bring it up first")
        if path.parent.lstat().st_uid != os.geteuid():
            raise ClusterError(f"{path.parent} is somebody else's")
        values = json.loads(path.read_text())
        return cls(**{**values, "slurm_conf": tuple(values["slurm_conf"]), "folder": folder})
