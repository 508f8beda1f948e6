"""``slurmgpu collect``: spools into the database."""

from __future__ import annotations

import logging
import time
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
    """Take the segments of spool folders into the database, each exactly once, and ask Slurm about their jobs.

    Without FOLDER: collect.spool_dirs of the configuration, else node.spool_dir.
    """
    from slurmgpu.collect.accounts import Accounts
    from slurmgpu.collect.loop import stay
    from slurmgpu.collect.spools import Collector
    from slurmgpu.config import load
    from slurmgpu.slurm.accounting import Accounting
    from slurmgpu.slurm.commands import Commands
    from slurmgpu.store.engine import connect
    from slurmgpu.store.writer import Writer

    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s: %(message)s")
    settings = load(config)
    patterns = folders or list(settings.collect.spool_dirs) or [str(settings.node.spool_dir)]
    engine = connect(settings.store.url)
    collector = Collector(Writer(engine), patterns)
    commands = Commands(settings.slurm.bin_dir or None, settings.slurm.deadline)
    accounts = Accounts(engine, settings.slurm, settings.cluster, Accounting(commands))
    if once:
        taken = collector.collect()
        accounts.finish(time.monotonic(), time.time())
        emit(f"{taken.written} segments taken, {taken.repeated} had been taken before, {taken.aside} set aside\n")
    else:
        stay(collector, accounts, settings.collect.every)
