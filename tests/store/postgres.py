"""A real PostgreSQL of the tests' own, on a Unix socket in a temporary folder."""

import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
from processes import wait_for

USER = "postgres"


def programs() -> Path | None:
    """Where the newest PostgreSQL's programs are; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


class Postgres:
    """A server. Root may not run one: then it runs as the user that the package made."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurmgpu-pg-"))
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER, USER)
        bin_dir = programs()
        assert bin_dir is not None
        self.bin_dir = bin_dir
        command = [*self.as_user(), str(bin_dir / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "-N"]
        subprocess.run([*command, "-E", "UTF8", "--locale=C"], check=True, capture_output=True)

    @staticmethod
    def as_user() -> list[str]:
        return ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"] if os.geteuid() == 0 else []

    def start(self) -> None:
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off", "max_connections=50"]
        options = [word for setting in settings for word in ("-c", setting)]
        command = [*self.as_user(), str(self.bin_dir / "postgres"), "-D", str(self.data), *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for("PostgreSQL", 30, self.answers)

    def answers(self) -> bool:
        try:
            psycopg.connect(self.address("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def address(self, database: str) -> str:
        return f"host={self.folder} user={USER} dbname={database}"

    def database(self) -> str:
        """A fresh database; its SQLAlchemy URL."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://{USER}@/{name}?host={self.folder}"

    def kill(self) -> None:
        """As the power would."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.process.kill()
        self.process.wait()
        for pid in map(int, children):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.send_signal(3)  # at once, without a farewell to its clients
                self.process.wait(timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)
