"""Slurm's commands, started so that neither the environment nor a hanging daemon nor a huge answer does harm."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurmgpu.slurm.facts import NoAnswerReadError, SlurmUnavailableError

MAX_OUTPUT_BYTES = 256 << 20  # the state of 30,000 running jobs by --json
_MAX_ERROR_BYTES = 1 << 20
_MESSAGE_CHARS = 300
_USUAL_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin")

# What of Slurm's own variables goes through: all others change what is printed, or of which cluster.
_KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
_DROPPED_PREFIXES = ("SLURM_", "SACCT_", "SQUEUE_", "SINFO_", "SCONTROL_")
_SET = {"LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}


@dataclass(frozen=True, slots=True)
class Finished:
    """What a child process left."""

    status: int
    out: bytes
    err: bytes

    def complaint(self) -> str:
        """The first line that it complained in, fit to be shown."""
        for stream in (self.err, self.out):
            for line in stream.decode("utf-8", "replace").splitlines():
                if line.strip():
                    return "".join(char if char.isprintable() else "?" for char in line.strip()[:_MESSAGE_CHARS])
        return f"ended with status {self.status} without a word"


class Commands:
    """``sacct``, ``scontrol`` and ``squeue`` of this host. ``calls`` counts what was started, by name."""

    def __init__(self, folder: str | None = None, deadline_s: float = 30.0) -> None:
        self.folder = folder
        self.deadline_s = deadline_s
        self.max_output_bytes = MAX_OUTPUT_BYTES
        self.calls: Counter[str] = Counter()

    def find(self, name: str) -> str | None:
        """The absolute path of a command; None if it is not there."""
        folders = [self.folder] if self.folder else [*os.environ.get("PATH", "").split(os.pathsep), *_USUAL_FOLDERS]
        return shutil.which(name, path=os.pathsep.join(folder for folder in folders if Path(folder).is_absolute()))

    def run(self, name: str, *words: str) -> str:
        """What the command prints: times in epoch seconds, U+FFFD for bytes that are not UTF-8.

        Raises SlurmUnavailableError.
        """
        path = self.find(name)
        if path is None:
            where = self.folder or f"PATH, {', '.join(_USUAL_FOLDERS)}"
            raise SlurmUnavailableError(f"{name} is not in {where}; slurm.bin_dir says where it is")
        environment = slurm_environment(os.environ)
        if "--json" not in words:  # there sacct writes and reads times of its own, and trips over the format
            environment["SLURM_TIME_FORMAT"] = "%s"
        check_configuration(environment)
        self.calls[name] += 1
        done = run_child([path, *words], environment, self.deadline_s, self.max_output_bytes)
        if done.status:
            raise SlurmUnavailableError(_advised(f"{name}: {done.complaint().removeprefix(f'{name}: ')}"))
        return done.out.decode("utf-8", "replace")


def slurm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child that asks Slurm. TZ stays, and lists of tasks are not cut."""
    kept = {k: v for k, v in environment.items() if k in _KEPT or not k.startswith(_DROPPED_PREFIXES)}
    return kept | _SET


def check_configuration(environment: Mapping[str, str]) -> None:
    """Raises SlurmUnavailableError for a SLURM_CONF that cannot be read: libslurm would look for it for a minute."""
    named = environment.get("SLURM_CONF")
    if named and not (Path(named).is_file() and os.access(named, os.R_OK)):
        raise SlurmUnavailableError(f"SLURM_CONF names {named}, which cannot be read; correct it or unset it")


def run_child(
    words: Sequence[str],
    environment: Mapping[str, str],
    deadline_s: float,
    max_bytes: int,
    given: bytes = b"",
    folder: str | None = None,
) -> Finished:
    """Run a program, no shell, with at most 64 KiB on its standard input. Nothing of it is left when this returns.

    Raises SlurmUnavailableError if it does not start or end in time, or prints more than ``max_bytes``.
    """
    name = Path(words[0]).name
    stdin = subprocess.PIPE if given else subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=folder
        )
    except OSError as error:
        raise SlurmUnavailableError(f"{name} does not start: {error.strerror}") from None
    try:
        if child.stdin:
            with suppress(BrokenPipeError):  # it ended first; what it said tells why
                child.stdin.write(given)
                child.stdin.flush()
            with suppress(BrokenPipeError):
                child.stdin.close()
        until_s = time.monotonic() + deadline_s
        out, err = _read(child, name, until_s, deadline_s, max_bytes)
        return Finished(child.wait(max(0.0, until_s - time.monotonic())), out, err)
    except subprocess.TimeoutExpired:
        raise SlurmUnavailableError(_late(name, deadline_s)) from None
    finally:
        _end(child)


def _read(
    child: subprocess.Popen[bytes], name: str, until_s: float, deadline_s: float, max_bytes: int
) -> tuple[bytes, bytes]:
    assert child.stdout and child.stderr
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as open_pipes:
        open_pipes.register(child.stdout, selectors.EVENT_READ, out)
        open_pipes.register(child.stderr, selectors.EVENT_READ, err)
        while open_pipes.get_map():
            ready = open_pipes.select(max(0.0, until_s - time.monotonic()))
            if not ready and time.monotonic() >= until_s:
                raise SlurmUnavailableError(_late(name, deadline_s))
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    open_pipes.unregister(key.fileobj)
                elif key.data is out or len(err) < _MAX_ERROR_BYTES:
                    key.data.extend(piece)
            if len(out) > max_bytes:
                raise NoAnswerReadError(f"{name} printed more than {max_bytes} bytes; the answer was not read")
    return bytes(out), bytes(err)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Only this child: what it may have started itself loses its pipes."""
    if child.poll() is None:
        child.kill()
        with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel; the next Popen collects it
            child.wait(1.0)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()


def _late(name: str, deadline_s: float) -> str:
    return f"{name} gave no answer within {deadline_s:g} s (slurm.deadline); are slurmctld and slurmdbd up?"


def _advised(complaint: str) -> str:
    """The complaint, with what to do where that is known."""
    lower = complaint.lower()
    if "accounting storage is disabled" in lower:
        return f"{complaint}; names and states of jobs need AccountingStorageType=accounting_storage/slurmdbd"
    if "persist" in lower or "slurmdbd" in lower or "database" in lower:
        return f"{complaint}; is slurmdbd up?"
    if "unable to contact slurm controller" in lower:
        return f"{complaint}; is slurmctld up?"
    return complaint
