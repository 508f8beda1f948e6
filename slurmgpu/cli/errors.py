"""Errors to one line and an exit status, for all commands alike."""

from __future__ import annotations

import enum
import os
import sys


class Exit(enum.IntEnum):
    """What a command's exit status means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    PARTIAL = 4
    NO_DATABASE = 5
    INTERRUPTED = 130


class UsageError(ValueError):
    """The command line asks for something that makes no sense; the message says what is accepted."""


def status_of(error: BaseException) -> tuple[Exit, str] | None:
    """The exit status and the line for an error that is foreseen; None for a defect of ours."""
    from sqlalchemy.exc import SQLAlchemyError

    from slurmgpu.config import ConfigError
    from slurmgpu.report.build import NoSuchJobError
    from slurmgpu.report.local import LocalError
    from slurmgpu.slurm.hostlist import HostlistError
    from slurmgpu.store.engine import StoreError, first_line

    if isinstance(error, UsageError | HostlistError):
        return Exit.USAGE, str(error)
    if isinstance(error, NoSuchJobError):
        return Exit.NOT_FOUND, str(error)
    if isinstance(error, StoreError):
        return Exit.NO_DATABASE, str(error)
    if isinstance(error, SQLAlchemyError):
        return Exit.NO_DATABASE, f"the database failed: {first_line(error)}"
    if isinstance(error, ConfigError | LocalError):
        return Exit.FAILURE, str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Exit.FAILURE, f"{where}{error.strerror or error}"
    return None


def emit(text: str) -> None:
    """Write to standard output; when its reader went away, say nothing more and end well."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
