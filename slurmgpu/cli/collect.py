"""``slurmgpu collect``: spools into the database."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from slurmgpu.cli.errors import emit
from slurmgpu.cli.options import ConfigFile


def collect(
    folders: Annotated[
        list[str] | None, typer.Argument(metavar="[FOLDER]...", help="Spool folders or patterns of them.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One pass, then end.")] = False,
    config: ConfigFile = None,
) -> None:
    """Take the segments of spool folders into the database, each exactly once.

    Without FOLDER: collect.spool_dirs of the configuration, else node.spool_dir.
    """
    from slurmgpu.config import load
    from slurmgpu.store.collect import Collector
    from slurmgpu.store.engine import connect
    from slurmgpu.store.writer import Writer

    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s: %(message)s")
    settings = load(config)
    patterns = folders or list(settings.collect.spool_dirs) or [str(settings.node.spool_dir)]
    collector = Collector(Writer(connect(settings.store.url)), patterns)
    if once:
        taken = collector.collect()
        emit(f"{taken.written} segments taken, {taken.repeated} had been taken before, {taken.aside} set aside\n")
    else:
        collector.stay(settings.collect.every)
