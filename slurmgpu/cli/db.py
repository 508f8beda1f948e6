"""``slurmgpu db``: make, upgrade and tidy the database."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from slurmgpu.cli.errors import UsageError, emit
from slurmgpu.cli.options import ConfigFile

app = typer.Typer(help="Make, upgrade and tidy the database.", no_args_is_help=True)


@app.command()
def init(config: ConfigFile = None) -> None:
    """Make the database; one that is there is left as it is."""
    before, after, where = _upgrade(config)
    emit(f"{where} is ready, revision {after}\n" if before is None else f"{where} was there, revision {after}\n")


@app.command()
def upgrade(config: ConfigFile = None) -> None:
    """Bring the database to this program's revision."""
    before, after, where = _upgrade(config)
    came = f": revision {before or 'none'} to {after}" if before != after else f" is at revision {after}"
    emit(f"{where}{came}\n")


def _upgrade(config: str | None) -> tuple[str | None, str, str]:
    from slurmgpu.config import load
    from slurmgpu.store.engine import connect, display
    from slurmgpu.store.migrate import upgrade as bring_up

    url = load(config).store.url
    before, after = bring_up(connect(url, create=True))
    return before, after, display(url)


@app.command()
def compact(
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="Such as 36h or 7d.")] = "1d",
    config: ConfigFile = None,
) -> None:
    """Fold the minutes of jobs that ended, and of idle GPUs, into hours: nothing is lost, and half the space is free.

    It may be stopped at any time, and run beside collectors.
    """
    from slurmgpu.config import duration_s, load
    from slurmgpu.store.compact import compact as fold
    from slurmgpu.store.engine import connect

    try:
        age_s = duration_s(older_than, "--older-than")
    except ValueError as error:
        raise UsageError(str(error)) from None
    engine = connect(load(config).store.url)
    done = fold(engine, round((time.time() - age_s) * 1000), _progress if sys.stderr.isatty() else lambda at, of: None)
    engine.dispose()
    unread = f", {done.unreadable} rows are damaged and stay" if done.unreadable else ""
    emit(f"{done.hours} hours folded: {done.rows_before} rows became {done.rows_after}{unread}\n")


def _progress(at: int, of: int) -> None:
    print(f"\r{at} of {of} GPUs", end="\n" if at == of else "", file=sys.stderr, flush=True)
