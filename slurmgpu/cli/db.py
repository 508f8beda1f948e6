"""``slurmgpu db``: make and upgrade the database."""

from __future__ import annotations

import typer

from slurmgpu.cli.errors import emit
from slurmgpu.cli.options import ConfigFile

app = typer.Typer(help="Make and upgrade the database.", no_args_is_help=True)


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
