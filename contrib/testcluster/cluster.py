#!/usr/bin/env python3
"""A real Slurm on one Debian machine, without systemd: munged, MariaDB, slurmdbd, slurmctld and four slurmd, each node
with its own host name, network, cgroups, /run, /var/spool and eight GPU device files. As root.

    cluster.py up [--slurmgpu]        bring it up; with slurmgpu in it
    cluster.py down                   stop all of it and remove its folder
    cluster.py status                 what runs
    eval "$(cluster.py env)"          SLURM_CONF for squeue, sbatch, scontrol; SLURMGPU_CONF and PATH for slurmgpu
    cluster.py exec NODE COMMAND...   run a command inside a node
    cluster.py logs [NAME...]         the ends of all logs, or whole ones
    cluster.py stop-node|start-node|reboot-node NODE
    cluster.py restart-slurmctld
    cluster.py slurmgpud start|stop|kill NODE
    cluster.py collector start|stop

--instance N (before the command) keeps clusters on one machine apart.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import files
from installed import BIN, Slurmgpu
from nodes import NAMESPACES, Nodes
from processes import Processes, must, quiet, wait_for
from services import Services, as_user, missing_programs
from settings import ClusterError, Settings

FOLDERS = ("etc", "log", "pids", "run", "spool", "state", "nodes", "munge", "mysql")
OWNERS = {"log": "slurm", "run": "slurm", "state": "slurm", "munge": "munge", "mysql": "mysql"}


def _empty_and_ours(path: Path) -> bool:
    return path.is_dir() and path.stat().st_uid == os.geteuid() and not any(path.iterdir())


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
        if not quiet("unshare", *(f"--{name}" for name in NAMESPACES), "--fork", "--mount-proc", "true"):
            return "namespaces are not permitted here"
        return None

    def is_up(self) -> bool:
        """Whether it came up whole and its controller runs."""
        return (self.settings.root / "up").exists() and self.processes.pid("slurmctld") is not None

    def up(self) -> None:
        """Bring all up; what is left of an earlier cluster in the folder is cleared first.

        Raises :class:`ClusterError`; then nothing runs, and the logs are still in the folder.
        """
        s = self.settings
        self._clear_folder()
        old_umask = os.umask(0o022)  # the users of the cluster read its configuration
        try:
            self._bring_up()
        except ClusterError as error:
            words = self.logs_text(lines=3)
            self.halt()
            raise ClusterError(f"{error}; the ends of the logs in {s.log}:\n{words}") from error
        except BaseException:  # Ctrl-C, too, leaves nothing running
            self.halt()
            raise
        finally:
            os.umask(old_umask)
        (s.root / "up").touch()

    def _clear_folder(self) -> None:
        s = self.settings
        if len(str(s.root)) > 80:
            raise ClusterError(f"{s.root} is too long a path for sockets: give a shorter --dir")
        if s.path.exists():
            Cluster(Settings.load(s.instance, s.folder)).down()
        elif s.root.is_symlink() or (s.root.exists() and not _empty_and_ours(s.root)):
            raise ClusterError(f"{s.root} is something else: remove it, or give another --dir")
        if Path(f"/sys/class/net/{s.bridge}").exists():
            raise ClusterError(f"another cluster has the bridge {s.bridge}: give another --instance")

    def _bring_up(self) -> None:
        s = self.settings
        s.root.mkdir(parents=True, exist_ok=True)
        s.save()
        for name in FOLDERS:
            (s.root / name).mkdir()
        self.services.make_users()
        for name, owner in OWNERS.items():
            shutil.chown(s.root / name, owner, owner)
        if s.slurmgpu:
            self.slurmgpu.install()
        files.write_all(s, self.slurmgpu.hooks if s.slurmgpu else None)
        # The network is there before slurmctld, which would otherwise look for the nodes elsewhere.
        must("ip", "link", "add", s.bridge, "type", "bridge")
        must("ip", "addr", "add", f"{s.address(1)}/24", "dev", s.bridge)
        must("ip", "link", "set", s.bridge, "up")
        self.services.start_munge()
        self.services.start_database()
        self.services.start_slurmdbd()
        self.services.start_slurmctld("-i")
        for node in s.node_names:
            self.start_node(node)
        self.wait_idle()
        if s.slurmgpu:
            self.slurmgpu.start_collector()

    def halt(self) -> None:
        """Stop everything of ours; the folder stays. Raises :class:`ClusterError` when something would not go."""
        s, stayed = self.settings, []
        (s.root / "up").unlink(missing_ok=True)
        if self.processes.pid("collect"):
            self.slurmgpu.stop_collector()
        for node in s.node_names:
            try:
                self.nodes.stop(node)
            except ClusterError as error:
                stayed.append(str(error))
        self.services.stop()
        for name in self.processes.names():
            self.processes.stop(name, 2)
        quiet("ip", "link", "del", s.bridge)
        if stayed:
            raise ClusterError("; ".join(stayed))

    def down(self) -> None:
        """Stop everything of ours and remove the folder, if it is ours."""
        if self.settings.path.exists():
            self.halt()
            shutil.rmtree(self.settings.root)
        self.processes.reap()  # also what another process took down

    def wait_idle(self, *nodes: str) -> None:
        """Until these nodes, or all, are idle."""
        wanted = nodes or self.settings.node_names

        def idle() -> bool:
            for node in wanted:
                if self.processes.pid(f"slurmd.{node}") is None:
                    raise ClusterError(f"slurmd.{node} ended before the node was idle")
            rows = self.services.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout.split("\n")
            states = dict(row.split() for row in rows if row.strip())
            return all(states.get(node) == "idle" for node in wanted)

        wait_for(f"{', '.join(wanted)} idle", 60, idle)

    def logs_text(self, *names: str, lines: int = 10) -> str:
        """The ends of all logs that hold something, or these whole. Raises :class:`ClusterError`."""
        folder, text = self.settings.log, ""
        for path in [folder / name for name in names] or sorted(folder.glob("*")):
            try:
                with path.open(errors="replace") as log:
                    last = "".join(log if names else deque(log, maxlen=lines))
            except OSError:
                known = ", ".join(sorted(path.name for path in folder.glob("*")))
                raise ClusterError(f"no log {path.name}: there are {known}") from None
            text += f"==> {path.name} <==\n{last}" if last else ""
        return text

    def restart_slurmctld(self) -> None:
        """Stop and start the controller, with its state; until it knows the nodes again."""
        self.processes.stop("slurmctld", 15)
        self.services.start_slurmctld()

        def known() -> bool:
            states = self.services.run("sinfo", "-h", "-N", "-o", "%T", check=False).stdout
            return bool(states) and "unk" not in states

        wait_for("the state of the nodes", 30, known)

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
        """The job's record of ``scontrol show job -d``, which also gives those of the same array or het job."""
        records = self.services.run("scontrol", "show", "job", "-d", str(job)).stdout.split("\n\n")
        return next((record for record in records if record.startswith(f"JobId={job} ")), "")

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
A real Slurm with slurmgpu in it. To play, first (SLURM_CONF, SLURMGPU_CONF, PATH):

  c="{me}"; eval "$($c env)"; cd /tmp

  runuser -u alice -- sbatch -o /dev/null --gres=gpu:2 --wrap 'sleep 60'
  runuser -u bob -- srun -N2 --gres=gpu:4 -l sh -c 'hostname; ls /dev/nvidia?; sleep 20'
  squeue; sinfo
  slurmgpu report 1                  # while it runs, and after; also --format json

  $c exec n1 ls /run/slurmgpu/jobs   # the marks of the hooks
  $c slurmgpud kill n1               # a crash; slurmgpud start n1: at most {flush:g} s are lost
  $c stop-node n2; $c start-node n2  # a node goes and comes
  $c logs; $c status                 # what runs, and what it says
  {root}/nodes/n1/scenario
                                     # what n1's GPUs do: edit it
  $c down                            # all gone
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", type=int, default=0, choices=range(100), metavar="N", help="0 to 99, default 0")
    parser.add_argument("--dir", default="", help="where everything lives: /var/tmp/slurmgpu-testcluster-N")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="bring it up")
    up.add_argument("--slurmgpu", action="store_true", help="with hooks, slurmgpud and a collector")
    up.add_argument("--prolog-flags", default="Alloc", metavar="FLAGS", help="PrologFlags=; '' for none")
    up.add_argument("--proctrack", default="auto", choices=("auto", "cgroup", "linuxproc"))
    for name in ("down", "status", "env", "restart-slurmctld"):
        commands.add_parser(name)
    for name in ("stop-node", "start-node", "reboot-node"):
        commands.add_parser(name).add_argument("node")
    execute = commands.add_parser("exec", help="run a command inside a node")
    execute.add_argument("node")
    execute.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    commands.add_parser("logs", help="the ends of all logs, or whole ones").add_argument("names", nargs="*")
    daemon = commands.add_parser("slurmgpud", help="that of one node")
    daemon.add_argument("what", choices=("start", "stop", "kill"))
    daemon.add_argument("node")
    commands.add_parser("collector").add_argument("what", choices=("start", "stop"))
    return parser


def main() -> int:
    """The command line."""
    options = _parser().parse_args()
    folder = str(Path(options.dir).absolute()) if options.dir else ""
    try:
        if options.command == "up":
            return _up(options, folder)
        if options.command == "down" and not Settings(instance=options.instance, folder=folder).path.exists():
            print("nothing to take down")
            return 0
        return _command(options, Cluster(Settings.load(options.instance, folder)))
    except ClusterError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1


def _command(options: argparse.Namespace, cluster: Cluster) -> int:
    match options.command:
        case "down":
            cluster.down()
        case "status":
            return _status(cluster)
        case "env":
            _env(cluster.settings)
        case "restart-slurmctld":
            cluster.restart_slurmctld()
        case "stop-node":
            cluster.stop_node(options.node)
        case "start-node":
            cluster.start_node(options.node)
        case "reboot-node":
            cluster.reboot_node(options.node)
        case "exec":
            words = [*cluster.nodes.inside(options.node), *(options.words or ["bash"])]
            os.execvp(words[0], words)
        case "logs":
            print(cluster.logs_text(*options.names), end="")
        case _:
            _slurmgpu(cluster, options)
    return 0


def _up(options: argparse.Namespace, folder: str) -> int:
    reason = Cluster.unusable()
    if reason:
        raise ClusterError(f"no cluster here: {reason}")
    there = Settings(instance=options.instance, folder=folder)
    if there.path.exists() and Cluster(there).is_up():
        print(f"it is up in {there.root}")
        return 0
    start = time.monotonic()
    settings = replace(there, slurmgpu=options.slurmgpu, prolog_flags=options.prolog_flags, proctrack=options.proctrack)
    cluster = Cluster(settings)
    cluster.up()
    print(f"up: {settings.nodes} nodes in {time.monotonic() - start:.1f} s")
    me = f"{sys.executable} {Path(__file__).resolve()}"
    me += f" --instance {settings.instance}" if settings.instance else ""
    me += f" --dir {shlex.quote(folder)}" if folder else ""
    if settings.slurmgpu:
        print(WALK.format(me=me, root=settings.root, flush=settings.flush_s))
    return 0


def _env(settings: Settings) -> None:
    print(f"export SLURM_CONF={shlex.quote(str(settings.slurm_conf_path))}")
    if settings.slurmgpu:
        print(f"export SLURMGPU_CONF={shlex.quote(str(settings.root / 'slurmgpu.toml'))}")
        print(f"export PATH={shlex.quote(str(BIN))}:$PATH")


def _status(cluster: Cluster) -> int:
    pids = {name: cluster.processes.pid(name) for name in cluster.processes.names()}
    for name, pid in pids.items():
        print(f"{name:<20} {pid or 'dead'}")
    print(cluster.services.run("sinfo", "-N", "-o", "%N %T %G %E", check=False).stdout, end="")
    return 0 if all(pids.values()) else 1


def _slurmgpu(cluster: Cluster, options: argparse.Namespace) -> None:
    if not cluster.settings.slurmgpu:
        raise ClusterError("there is no slurmgpu in it: up --slurmgpu")
    match options.command, options.what:
        case "collector", "start":
            cluster.slurmgpu.start_collector()
        case "collector", _:
            cluster.slurmgpu.stop_collector()
        case _, "start":
            cluster.slurmgpu.start_daemon(options.node)
        case _, what:
            cluster.slurmgpu.stop_daemon(options.node, signal.SIGKILL if what == "kill" else signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
