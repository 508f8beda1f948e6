"""Compute nodes: a set of namespaces with a slurmd in it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from processes import Processes, wait_for
from settings import Settings

HERE = Path(__file__).resolve().parent
PRIVATE = ("/var/spool", "/var/lib/slurmgpu")
_CGROUPS = ("freezer", "devices", "memory", "cpuset", "cpuacct", "cpu")


def quiet(*command: str) -> bool:
    """Run a command; whether it went well."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


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
        """The words that put a command into a node."""
        pid = self.processes.pid(f"node.{node}")
        if pid is None:
            raise LookupError(f"node {node} does not run")
        return ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w"]

    def start(self, node: str, *slurmd_options: str) -> None:
        """Namespaces, network, then slurmd."""
        s, number = self.settings, self.settings.node_names.index(node) + 1
        s.node_dir(node).mkdir(parents=True, exist_ok=True)
        (s.root / "spool" / node).mkdir(parents=True, exist_ok=True)
        (s.node_dir(node) / "ready").unlink(missing_ok=True)
        init = [str(HERE / "node-init.sh"), node, s.address(10 + number), s.address(1), str(s.gpus), str(s.root)]
        namespaces = [
            "unshare",
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        outer = self.processes.spawn(f"unshare.{node}", [*namespaces, *init, *PRIVATE])
        wait_for(f"the namespace of {node}", 10, lambda: child_of(outer))
        pid = child_of(outer)
        assert pid is not None
        self.processes.record(f"node.{node}", pid)  # PID 1 of the node: with it ends everything inside
        ours = Path("/proc/self/ns/net").readlink()
        wait_for(f"the network of {node}", 10, lambda: Path(f"/proc/{pid}/ns/net").readlink() != ours)
        link = f"{s.bridge}n{number}"
        quiet("ip", "link", "del", link)
        subprocess.run(
            ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)], check=True
        )
        subprocess.run(["ip", "link", "set", link, "master", s.bridge, "up"], check=True)
        wait_for(f"the start of {node}", 15, (s.node_dir(node) / "ready").exists)
        self.spawn_inside(f"slurmd.{node}", node, ["slurmd", "-D", "-N", node, *slurmd_options])

    def spawn_inside(self, name: str, node: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Start a process of ours inside a node. nsenter forks into the PID namespace: the child is the process."""
        variables = {"SLURM_CONF": str(self.settings.slurm_conf_path), **(environment or {})}
        outer = self.processes.spawn(f"nsenter.{name}", [*self.inside(node), *command], variables)
        wait_for(name, 10, lambda: child_of(outer))
        child = child_of(outer)
        assert child is not None
        self.processes.record(name, child)

    def stop_inside(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process of ours inside a node."""
        self.processes.stop(name, 10, how)
        self.processes.stop(f"nsenter.{name}", 2)

    def stop(self, node: str) -> None:
        """The node is gone, with everything in it."""
        s = self.settings
        self.processes.stop(f"slurmd.{node}", 8)
        self.processes.stop(f"node.{node}", 5, signal.SIGKILL)
        for name in self.processes.names():
            if name.endswith(f".{node}"):
                self.processes.stop(name, 3)
        quiet("ip", "link", "del", f"{s.bridge}n{s.node_names.index(node) + 1}")
        for controller in _CGROUPS:
            top = Path(f"/sys/fs/cgroup/{controller}/slurm_{node}")
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:
                    pass
