"""Compute nodes: a set of namespaces with a slurmd in it."""

from __future__ import annotations

import signal
from pathlib import Path

import cgroups
from processes import Processes, must, quiet, wait_for
from settings import ClusterError, Settings

HERE = Path(__file__).resolve().parent
PRIVATE = ("/var/spool", "/var/lib/slurmgpu")
NAMESPACES = ("net", "uts", "ipc", "mount", "pid", "cgroup")


def child_of(pid: int) -> int | None:
    """The first child of a process."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


class Nodes:
    """The nodes of one cluster."""

    def __init__(self, settings: Settings, processes: Processes) -> None:
        self.settings = settings
        self.processes = processes

    def inside(self, node: str) -> list[str]:
        """The words that put a command into a node. Raises :class:`ClusterError` when it does not run."""
        self.settings.number(node)
        pid = self.processes.pid(f"node.{node}")
        if pid is None:
            raise ClusterError(f"node {node} does not run: start-node {node}")
        entering = [f"--{namespace}" for namespace in NAMESPACES]
        return [*cgroups.entering(self.settings, node), "nsenter", "-t", str(pid), *entering, "-r", "-w"]

    def start(self, node: str, *slurmd_options: str) -> None:
        """Namespaces, network, then slurmd."""
        s, number = self.settings, self.settings.number(node)
        if self.processes.pid(f"node.{node}"):
            raise ClusterError(f"node {node} runs")
        s.node_dir(node).mkdir(parents=True, exist_ok=True)
        (s.root / "spool" / node).mkdir(parents=True, exist_ok=True)
        (s.node_dir(node) / "ready").unlink(missing_ok=True)
        cgroups.make(s, node)
        unshare = ["unshare", *(f"--{namespace}" for namespace in NAMESPACES), "--fork", "--kill-child", "--mount-proc"]
        init = [str(HERE / "node-init.sh"), node, s.address(10 + number), s.address(1), str(s.gpus), str(s.root)]
        command = [*cgroups.entering(s, node), *unshare, *init, cgroups.name(s, node), *PRIVATE]
        outer = self.processes.spawn(f"unshare.{node}", command)
        self.processes.wait_ready(f"unshare.{node}", 10, lambda: child_of(outer))
        pid = child_of(outer)
        assert pid is not None
        self.processes.record(f"node.{node}", pid)  # PID 1 of the node: with it ends everything inside
        ours = Path("/proc/self/ns/net").readlink()
        wait_for(f"the network of {node}", 10, lambda: Path(f"/proc/{pid}/ns/net").readlink() != ours)
        link = f"{s.bridge}n{number}"
        quiet("ip", "link", "del", link)
        must("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        must("ip", "link", "set", link, "master", s.bridge, "up")
        self.processes.wait_ready(f"node.{node}", 15, (s.node_dir(node) / "ready").exists)
        self.spawn_inside(f"slurmd.{node}", node, ["slurmd", "-D", "-N", node, *slurmd_options])

    def spawn_inside(self, name: str, node: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Start a process of ours inside a node. nsenter forks into the PID namespace: the child is the process."""
        variables = {"SLURM_CONF": str(self.settings.slurm_conf_path), **(environment or {})}
        outer = self.processes.spawn(f"nsenter.{name}", [*self.inside(node), *command], variables)
        self.processes.wait_ready(f"nsenter.{name}", 10, lambda: child_of(outer))
        child = child_of(outer)
        assert child is not None
        self.processes.record(name, child)

    def stop_inside(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process of ours inside a node."""
        self.processes.stop(name, 10, how)
        self.processes.stop(f"nsenter.{name}", 2)

    def stop(self, node: str) -> None:
        """The node is gone, with everything in it."""
        s, number = self.settings, self.settings.number(node)
        self.processes.stop(f"slurmd.{node}", 8)
        self.processes.stop(f"node.{node}", 5, signal.SIGKILL)
        for name in self.processes.names():
            if name.endswith(f".{node}"):
                self.processes.stop(name, 3)
        quiet("ip", "link", "del", f"{s.bridge}n{number}")
        cgroups.remove(s, node)
