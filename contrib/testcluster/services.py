"""munged, MariaDB, slurmdbd and slurmctld."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

from processes import Processes, must
from settings import ACCOUNTS, CLUSTER_NAME, ClusterError, Settings

PROGRAMS = (
    *("munged", "mariadbd", "mariadb-install-db", "slurmctld", "slurmd", "slurmdbd", "squeue"),
    *("ip", "unshare", "nsenter", "setpriv", "useradd"),
)

OWN_NAMES = """
mount --bind "$1" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf
shift
exec "$@"
"""


def missing_programs() -> list[str]:
    """What is not installed of all that a cluster needs."""
    if "/usr/sbin" not in os.environ["PATH"].split(":"):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if not shutil.which(name)]


def as_user(user: str) -> list[str]:
    """The words that run a command as a user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]


class Services:
    """The controller's side of one cluster."""

    def __init__(self, settings: Settings, processes: Processes) -> None:
        self.settings = settings
        self.processes = processes
        self.environment = {"SLURM_CONF": str(settings.slurm_conf_path)}

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A Slurm command of this cluster, as root."""
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment})
        if check and result.returncode:
            raise ClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
        return result

    def works(self, *command: str) -> bool:
        """Whether a command answers well within five seconds."""
        try:
            return (
                subprocess.run(
                    command, timeout=5, capture_output=True, env={**os.environ, **self.environment}
                ).returncode
                == 0
            )
        except subprocess.TimeoutExpired:
            return False

    def make_users(self) -> None:
        """slurm, and the people of the examples."""
        known = {entry.pw_name for entry in pwd.getpwall()}
        if "slurm" not in known:
            must("useradd", "-r", "-M", "-d", "/nonexistent", "-s", "/usr/sbin/nologin", "slurm")
        for user in {user for users in ACCOUNTS.values() for user in users} - known:
            must("useradd", "-m", user)

    def start_munge(self) -> None:
        s, folder = self.settings, self.settings.root / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
        options = [f"--socket={s.munge_socket}", f"--key-file={key}", f"--pid-file={folder}/munged.pid"]
        options += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/seed"]
        self.processes.spawn("munged", [*as_user("munge"), "munged", "-F", *options])
        self.processes.wait_ready("munged", 10, lambda: self.works("munge", "-S", str(s.munge_socket), "-n"))

    def start_database(self) -> None:
        s, folder = self.settings, self.settings.root / "mysql"
        common = ["--no-defaults", "--user=mysql", f"--datadir={folder}"]
        self.run("mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db")
        self.processes.spawn(
            "mariadbd",
            [
                "mariadbd",
                *common,
                f"--socket={s.mysql_socket}",
                f"--pid-file={folder}/my.pid",
                "--bind-address=127.0.0.1",
                f"--port={s.port(6)}",
                "--innodb-buffer-pool-size=128M",
                "--innodb-log-file-size=64M",
                "--innodb-lock-wait-timeout=900",
                "--innodb-flush-log-at-trx-commit=0",
            ],
        )
        client = ["--no-defaults", "-S", str(s.mysql_socket)]
        self.processes.wait_ready("mariadbd", 30, lambda: self.works("mariadb-admin", *client, "ping"))
        grants = " ".join(
            f"create user slurm@'{host}' identified by 'slurmpw'; grant all on slurm_acct_db.* to slurm@'{host}';"
            for host in ("127.0.0.1", "localhost")
        )
        self.run("mariadb", *client, "-e", f"create database slurm_acct_db; {grants}")

    def start_slurmdbd(self) -> None:
        self.processes.spawn("slurmdbd", [*as_user("slurm"), "slurmdbd", "-D"], self.environment)
        self.processes.wait_ready("slurmdbd", 30, lambda: self.works("sacctmgr", "-n", "show", "cluster"))
        self.run("sacctmgr", "-i", "add", "cluster", CLUSTER_NAME)
        self.run("sacctmgr", "-i", "add", "account", ",".join(ACCOUNTS))
        for account, users in ACCOUNTS.items():
            self.run("sacctmgr", "-i", "add", "user", ",".join(users), f"account={account}")

    def start_slurmctld(self, *options: str) -> None:
        # It waits ten seconds for a host name that nobody knows, this machine's own at times: it gets our list.
        own_names = ["unshare", "--mount", "sh", "-ec", OWN_NAMES, "sh", str(self.settings.etc / "hosts")]
        command = [*own_names, *as_user("slurm"), "slurmctld", "-D", *options]
        self.processes.spawn("slurmctld", command, self.environment)
        self.processes.wait_ready("slurmctld", 30, lambda: "is UP" in self.run("scontrol", "ping", check=False).stdout)

    def stop(self) -> None:
        for name, seconds in (("slurmctld", 15), ("slurmdbd", 15), ("mariadbd", 20), ("munged", 5)):
            self.processes.stop(name, seconds)
