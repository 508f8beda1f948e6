#!/usr/bin/env python3
"""A real Slurm on one Debian machine, without systemd: munged, MariaDB, slurmdbd, slurmctld and four slurmd, each node
with its own host name, network, /run, /var/spool and eight GPU device files. As root.

    cluster.py up [--slurmgpu]        bring it up; with slurmgpu in it
    cluster.py down                   stop all of it and remove its folder
    cluster.py status                 what runs
    eval "$(cluster.py env)"          SLURM_CONF for squeue, sbatch, scontrol
    cluster.py exec NODE COMMAND...   run a command inside a node
    cluster.py stop-node|start-node|reboot-node NODE
    cluster.py restart-slurmctld
    cluster.py slurmgpud start|stop|kill NODE
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import files
from installed import BIN, Slurmgpu
from nodes import Nodes, quiet
from processes import Processes, wait_for
from services import Services, as_user, missing_programs
from settings import ClusterError, Settings

FOLDERS = ("etc", "log", "pids", "run", "spool", "state", "nodes", "munge", "mysql")


class Cluster:
    """One cluster: what tests and the command line do with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.processes = Processes(settings.root / "pids", settings.log)
        self.services = Services(settings, self.processes)
        self.nodes = Nodes(settings, self.processes)
        self.slurmgpu = Slurmgpu(settings, self.processes, self.nodes)

    # -- up and down

    @staticmethod
    def unusable() -> str | None:
        """Why no cluster can run on this machine, or None."""
        if os.geteuid():
            return "it needs root"
        missing = missing_programs()
        if missing:
            return f"not installed: {', '.join(missing)}"
        if not quiet("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "true"):
            return "namespaces are not permitted here"
        return None

    def up(self) -> None:
        """Bring all up; what is left of an earlier try is cleared first. Raises :class:`ClusterError`."""
        s = self.settings
        if s.root.exists():
            self.down()
        self.services.make_users()
        for name in FOLDERS:
            (s.root / name).mkdir(parents=True)
        for name, owner in (
            ("log", "slurm"),
            ("run", "slurm"),
            ("state", "slurm"),
            ("munge", "munge"),
            ("mysql", "mysql"),
        ):
            shutil.chown(s.root / name, owner, owner)
        s.save()
        if s.slurmgpu:
            self.slurmgpu.install()
        files.write_all(s, self.slurmgpu.hooks if s.slurmgpu else None)
        # The network is there before slurmctld, which would otherwise look for the nodes elsewhere.
        quiet("ip", "link", "del", s.bridge)
        subprocess.run(["ip", "link", "add", s.bridge, "type", "bridge"], check=True)
        subprocess.run(["ip", "addr", "add", f"{s.address(1)}/24", "dev", s.bridge], check=True)
        subprocess.run(["ip", "link", "set", s.bridge, "up"], check=True)
        self.services.start_munge()
        self.services.start_database()
        self.services.start_slurmdbd()
        self.services.start_slurmctld("-i")
        for node in s.node_names:
            self.nodes.start(node)
            if s.slurmgpu:
                self.slurmgpu.start_daemon(node)
        self.wait_idle()
        if s.slurmgpu:
            self.slurmgpu.start_collector()

    def down(self) -> None:
        """Stop everything of ours and remove the folder."""
        s = self.settings
        if self.processes.pid("collect"):
            self.slurmgpu.stop_collector()
        for node in s.node_names:
            self.nodes.stop(node)
        self.services.stop()
        for name in self.processes.names():
            self.processes.stop(name, 2)
        quiet("ip", "link", "del", s.bridge)
        shutil.rmtree(s.root, ignore_errors=True)

    def wait_idle(self, *nodes: str) -> None:
        """Until these nodes, or all, are idle."""
        wanted = nodes or self.settings.node_names

        def idle() -> bool:
            rows = self.services.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout.split("\n")
            states = dict(row.split() for row in rows if row.strip())
            return all(states.get(node) == "idle" for node in wanted)

        wait_for(f"{', '.join(wanted)} idle", 60, idle)

    # -- nodes

    def node_exec(self, node: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node."""
        return subprocess.run([*self.nodes.inside(node), *command], capture_output=True, text=True)

    def start_node(self, node: str, *slurmd_options: str) -> None:
        """Bring a node (back), with its slurmgpud."""
        self.nodes.start(node, *slurmd_options)
        if self.settings.slurmgpu:
            self.slurmgpu.start_daemon(node)

    def stop_node(self, node: str) -> None:
        """A node goes away at once."""
        self.nodes.stop(node)

    def reboot_node(self, node: str) -> None:
        """A node goes and comes back with a new boot id, and slurmd says that it rebooted."""
        self.nodes.stop(node)
        self.start_node(node, "-b")

    # -- jobs

    def run(self, *command: str, user: str = "alice", check: bool = True) -> subprocess.CompletedProcess[str]:
        """A Slurm command as a user."""
        variables = {"PATH": os.environ["PATH"], "HOME": "/tmp", "LC_ALL": "C", **self.services.environment}
        result = subprocess.run([*as_user(user), *command], capture_output=True, text=True, env=variables, cwd="/tmp")
        if check and result.returncode:
            raise ClusterError(f"{' '.join(command)}: {result.stderr.strip()}")
        return result

    def sbatch(self, script: str, *options: str, user: str = "alice") -> int:
        """Submit a script of /bin/sh lines; the raw job id."""
        command = ["sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script]
        return int(self.run(*command, user=user).stdout.split(";")[0])

    def state(self, job: int) -> str:
        """The job's state as slurmctld has it; empty when it has forgotten it."""
        text = self.run("squeue", "-h", "-j", str(job), "-t", "all", "-o", "%T", user="root", check=False).stdout
        return text.split("\n")[0].strip()

    def wait_state(self, job: int, *states: str, seconds: float = 60) -> str:
        """Until the job is in one of the states."""
        wait_for(f"job {job} {' or '.join(states)}", seconds, lambda: self.state(job) in states)
        return self.state(job)

    def wait_done(self, job: int, seconds: float = 60) -> str:
        """Until the job has ended on all its nodes, epilogs and all."""
        return self.wait_state(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "", seconds=seconds)

    def show_job(self, job: int) -> str:
        """The text of ``scontrol show job -d``."""
        return self.services.run("scontrol", "show", "job", "-d", str(job)).stdout

    def gpu_indices(self, job: int) -> dict[str, list[int]]:
        """node → Slurm's numbers of the GPUs that a running job holds there."""
        found: dict[str, list[int]] = {}
        for names, gres in re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)", self.show_job(job)):
            numbers: list[int] = []
            for index in re.findall(r"gpu[^(,]*\(IDX:([\d,-]+)\)", gres):
                for part in index.split(","):
                    first, _, last = part.partition("-")
                    numbers += range(int(first), int(last or first) + 1)
            for node in self.services.run("scontrol", "show", "hostnames", names).stdout.split():
                found[node] = numbers
        return found


WALK = """\
A real Slurm with slurmgpu in it. To play, first:

  export SLURM_CONF={conf}
  export SLURMGPU_CONF={config}
  PATH={bin}:$PATH; c="{me}"; cd /tmp

  runuser -u alice -- sbatch -o /dev/null --gres=gpu:2 --wrap 'sleep 60'
  squeue; sinfo
  slurmgpu report 1                  # while it runs, and after; also --format json

  $c exec n1 ls /run/slurmgpu/jobs   # the marks of the hooks
  $c slurmgpud kill n1               # a crash; slurmgpud start n1: at most {flush:g} s are lost
  $c stop-node n2; $c start-node n2  # a node goes and comes
  {root}/nodes/n1/scenario
                                     # what n1's GPUs do: edit it
  $c down                            # all gone
"""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", type=int, default=0, help="clusters side by side: 0 to 99")
    parser.add_argument("command")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        return _command(options.command, options.arguments, options.instance)
    except (ClusterError, LookupError) as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1


def _command(command: str, arguments: list[str], instance: int) -> int:
    if command == "up":
        return _up(Settings(instance=instance, slurmgpu="--slurmgpu" in arguments))
    if command == "down" and not Settings(instance=instance).root.exists():
        print("nothing to take down")
        return 0
    cluster = Cluster(Settings.load(instance))
    if command == "exec" and len(arguments) > 1:
        os.execvp("nsenter", [*cluster.nodes.inside(arguments[0]), *arguments[1:]])
    simple = {
        "down": cluster.down,
        "env": lambda: print(f"export SLURM_CONF={cluster.settings.slurm_conf_path}"),
        "status": lambda: _status(cluster),
        "stop-node": lambda: cluster.stop_node(arguments[0]),
        "start-node": lambda: cluster.start_node(arguments[0]),
        "reboot-node": lambda: cluster.reboot_node(arguments[0]),
        "restart-slurmctld": lambda: _restart(cluster),
        "slurmgpud": lambda: _daemon(cluster, *arguments),
    }
    if command not in simple:
        print(__doc__, file=sys.stderr)
        return 2
    simple[command]()
    return 0


def _up(settings: Settings) -> int:
    reason = Cluster.unusable()
    if reason:
        raise ClusterError(f"no cluster here: {reason}")
    if (settings.root / "settings.json").exists() and Cluster(settings).processes.pid("slurmctld"):
        print("it is up; down first")
        return 1
    start = time.monotonic()
    cluster = Cluster(settings)
    cluster.up()
    print(f"up: {settings.nodes} nodes in {time.monotonic() - start:.1f} s")
    if settings.slurmgpu:
        print(
            WALK.format(
                conf=settings.slurm_conf_path,
                config=cluster.slurmgpu.config,
                bin=BIN,
                me=f"{sys.executable} {Path(__file__).resolve()}",
                root=settings.root,
                flush=settings.flush_s,
            )
        )
    return 0


def _status(cluster: Cluster) -> None:
    for name in cluster.processes.names():
        print(f"{name:<20} {cluster.processes.pid(name) or 'dead'}")
    print(cluster.services.run("sinfo", "-N", "-o", "%N %T %G %E", check=False).stdout, end="")


def _restart(cluster: Cluster) -> None:
    cluster.processes.stop("slurmctld", 15)
    cluster.services.start_slurmctld()


def _daemon(cluster: Cluster, what: str, node: str) -> None:
    if what == "start":
        cluster.slurmgpu.start_daemon(node)
    elif what in ("stop", "kill"):
        cluster.slurmgpu.stop_daemon(node, signal.SIGKILL if what == "kill" else signal.SIGTERM)
    else:
        raise ClusterError("slurmgpud start|stop|kill NODE")


if __name__ == "__main__":
    sys.exit(main())
