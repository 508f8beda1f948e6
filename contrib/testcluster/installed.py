"""slurmgpu in the cluster: hooks for slurmd, a slurmgpud on a simulated driver in each node, a collector beside."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from nodes import Nodes
from processes import Processes, quiet
from settings import CLUSTER_NAME, ClusterError, Settings

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "contrib" / "simgpu"))

import simgpu  # noqa: E402

BIN = Path(sys.executable).parent

# Something to look at: the GPUs of a node differ, and their load moves.
PLAY = """\
gpus {gpus}
gpu * mem_used_bytes=20e9 sm_clock_mhz=1755
gpu * wave gpu_util_pct mean=55 amplitude=40 period=47
gpu * wave power_mw mean=380000 amplitude=240000 period=47
gpu 1,5 wave gpu_util_pct mean=80 amplitude=15 period=31
gpu 1,5 mem_used_bytes=71e9
gpu 3 wave gpu_util_pct mean=20 amplitude=20 period=90
gpu 7 gpu_util_pct=0 power_mw=71000 mem_used_bytes=524288000
"""


class Slurmgpu:
    """The parts of slurmgpu in one cluster."""

    def __init__(self, settings: Settings, processes: Processes, nodes: Nodes) -> None:
        self.settings = settings
        self.processes = processes
        self.nodes = nodes
        self.config = settings.root / "slurmgpu.toml"
        self.hooks = settings.root / "libexec"

    def install(self) -> None:
        """Hooks, configuration, scenarios and an empty database."""
        s = self.settings
        if not (BIN / "slurmgpud").exists():
            raise ClusterError(f"{BIN}/slurmgpud is missing: run make test or make demo once")
        self.hooks.mkdir()
        for hook in ("prolog", "epilog"):
            shutil.copy(ROOT / hook / "slurmgpu", self.hooks / hook)
            (self.hooks / hook).chmod(0o755)
        self.config.write_text(
            f'cluster = "{CLUSTER_NAME}"\n[collect]\nspool_dirs = ["{s.root}/spool-slurmgpu/*"]\nevery = "1s"\n'
            f'[slurm]\nevery = "2s"\n[store]\nurl = "sqlite:///{s.root}/slurmgpu.db"\n'
        )
        for node in s.node_names:
            s.node_dir(node).mkdir(parents=True, exist_ok=True)
            self.node_config(node).write_text(
                f'cluster = "{CLUSTER_NAME}"\n[node]\nname = "{node}"\nrun_dir = "/run/slurmgpu"\n'
                f'spool_dir = "{self.spool(node)}"\ninterval = {s.interval_s}\nflush = {s.flush_s}\n'
                f"medium = {s.medium_s}\n"
            )
            self.set_scenario(node, PLAY.format(gpus=s.gpus))
        self.command("db", "init")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A slurmgpu command on the admin host."""
        command = [str(BIN / "slurmgpu"), *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True)

    def spool(self, node: str) -> Path:
        return self.settings.root / "spool-slurmgpu" / node

    def node_config(self, node: str) -> Path:
        return self.settings.node_dir(node) / "slurmgpu.toml"

    def scenario(self, node: str) -> Path:
        return self.settings.node_dir(node) / "scenario"

    def set_scenario(self, node: str, text: str) -> None:
        """Change the world of a node's GPUs, at once and whole."""
        fresh = self.scenario(node).with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.scenario(node))

    def start_daemon(self, node: str) -> None:
        """slurmgpud in the node."""
        if self.processes.pid(f"slurmgpud.{node}"):
            raise ClusterError(f"slurmgpud runs on {node}")
        environment = {
            "LD_LIBRARY_PATH": str(simgpu.library_dir()),
            "SIMGPU_SCENARIO": str(self.scenario(node)),
            "SIMGPU_NODE": node,
        }
        command = [str(BIN / "slurmgpud"), "--foreground", "--config", str(self.node_config(node))]
        self.nodes.spawn_inside(f"slurmgpud.{node}", node, command, environment)
        ready = ["test", "-d", "/run/slurmgpu/jobs"]
        self.processes.wait_ready(f"slurmgpud.{node}", 20, lambda: quiet(*self.nodes.inside(node), *ready))

    def stop_daemon(self, node: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.settings.number(node)
        self.nodes.stop_inside(f"slurmgpud.{node}", how)

    def start_collector(self) -> None:
        """slurmgpu collect, on the admin host."""
        if self.processes.pid("collect"):
            raise ClusterError("the collector runs")
        command = [str(BIN / "slurmgpu"), "collect", "--config", str(self.config)]
        self.processes.spawn("collect", command, {"SLURM_CONF": str(self.settings.slurm_conf_path)})

    def stop_collector(self) -> None:
        self.processes.stop("collect", 10)
