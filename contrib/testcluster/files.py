"""Slurm's configuration files."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import cgroups
from settings import CLUSTER_NAME, Settings


def slurm_version() -> tuple[int, int]:
    """(22, 5) for Slurm 22.05."""
    text = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def process_tracking(wanted: str) -> str:
    """cgroup where version 1 can be written, so that device limits are real; else linuxproc."""
    if wanted != "auto":
        return wanted
    return "cgroup" if cgroups.usable() else "linuxproc"


def write_all(s: Settings, hooks: Path | None) -> None:
    """All of etc/. ``hooks``: the folder of prolog and epilog, if they run."""
    tracking = process_tracking(s.proctrack)
    (s.etc / "slurm.conf").write_text(_slurm_conf(s, tracking, hooks))
    (s.etc / "site.conf").write_text("\n".join(["# local lines", *s.slurm_conf]) + "\n")
    (s.etc / "gres.conf").write_text(_gres_conf(s))
    (s.etc / "cgroup.conf").write_text(_cgroup_conf(tracking))
    hosts = [f"127.0.0.1 localhost\n{s.address(1)} {_host()}"]
    hosts += [f"{s.address(10 + number)} {node}" for number, node in enumerate(s.node_names, start=1)]
    (s.etc / "hosts").write_text("\n".join(hosts) + "\n")
    dbd = s.etc / "slurmdbd.conf"
    dbd.write_text(_slurmdbd_conf(s))
    shutil.chown(dbd, "slurm", "slurm")
    dbd.chmod(0o600)  # slurmdbd insists on both


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def second_gres(s: Settings, number: int) -> str | None:
    """The last node also offers shards, the one before MPS."""
    if s.nodes < 4:
        return None
    return {s.nodes: f"shard:{s.gpus * 4}", s.nodes - 1: f"mps:{s.gpus * 100}"}.get(number)


def _slurm_conf(s: Settings, tracking: str, hooks: Path | None) -> str:
    lines = f"""\
ClusterName={CLUSTER_NAME}
SlurmctldHost={_host()}({s.address(1)})
SlurmctldPort={s.port(17)}
SlurmUser=slurm
# cred_expire is also the delay before a requeued job may start again
AuthInfo=socket={s.munge_socket},cred_expire=5
StateSaveLocation={s.root}/state
SlurmdSpoolDir={s.root}/spool/%n
SlurmctldPidFile={s.root}/run/slurmctld.pid
SlurmdPidFile={s.root}/run/slurmd.%n.pid
SlurmctldLogFile={s.log}/slurmctld.log
SlurmdLogFile={s.log}/slurmd.%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{"cgroup" if tracking == "cgroup" else "none"}
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# requeued and heterogeneous jobs start from the backfill loop only
SchedulerParameters=bf_interval=1,sched_interval=2
GresTypes=gpu,mps,shard
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={s.port(19)}
# the connection to slurmdbd takes the munge socket from here, not from AuthInfo
AccountingStoragePass={s.munge_socket}
AccountingStorageTRES=gres/gpu,gres/gpu:h100
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
MailProg=/bin/true
RebootProgram=/bin/true
KillWait=2
SlurmdTimeout=20
""".splitlines()
    if s.prolog_flags:
        lines.append(f"PrologFlags={s.prolog_flags}")
    if hooks:
        lines += [f"Prolog={hooks}/prolog", f"Epilog={hooks}/epilog"]
    for number, node in enumerate(s.node_names, start=1):
        extra = second_gres(s, number)
        gres = ",".join(filter(None, [f"gpu:h100:{s.gres_gpus or s.gpus}", extra]))
        lines.append(
            f"NodeName={node} NodeHostname={node} NodeAddr={s.address(10 + number)} Port={s.port(18)}"
            f" CPUs={s.cpus} RealMemory={s.memory_mb} Gres={gres} State=UNKNOWN"
        )
    lines += ["PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP", f"Include {s.etc}/site.conf"]
    return "\n".join(lines) + "\n"


def _gres_conf(s: Settings) -> str:
    lines = []
    for number, node in enumerate(s.node_names, start=1):
        files = s.gres_files or f"/dev/nvidia[0-{s.gpus - 1}]"
        lines.append(f"NodeName={node} Name=gpu Type=h100 File={files}")
        extra = second_gres(s, number)
        if extra:
            name, count = extra.split(":")
            lines.append(f"NodeName={node} Name={name} Count={count}")
    return "\n".join(lines) + "\n"


def _cgroup_conf(tracking: str) -> str:
    if tracking == "cgroup":
        return "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\nConstrainCores=no\nConstrainRAMSpace=no\n"
    return "# no limits\n" if slurm_version() < (23, 11) else "CgroupPlugin=disabled\n"


def _slurmdbd_conf(s: Settings) -> str:
    return f"""\
AuthInfo=socket={s.munge_socket}
DbdHost={_host()}
DbdAddr=127.0.0.1
DbdPort={s.port(19)}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={s.port(6)}
StorageUser=slurm
StoragePass=slurmpw
StorageLoc=slurm_acct_db
LogFile={s.log}/slurmdbd.log
PidFile={s.root}/run/slurmdbd.pid
"""
