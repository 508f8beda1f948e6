"""All commands together, and what happens when one fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from slurmgpu import __version__
from slurmgpu.cli import collect, db, gpus, report
from slurmgpu.cli.errors import Exit, status_of

app = typer.Typer(
    name="slurmgpu",
    help="Says what every Slurm job did with its GPUs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("report")(report.report)
app.command("gpus")(gpus.gpus)
app.command("collect")(collect.collect)
app.add_typer(db.app, name="db")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"slurmgpu {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", "-V", callback=_print_version, is_eager=True, help="Version."),
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Run a command line and give its exit status."""
    try:
        result = app(list(arguments), standalone_mode=False)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer's own, wherever it keeps click
            error.show()
            return int(error.exit_code)
        known = status_of(error)
        if known is None:
            raise
        status, line = known
        print(f"slurmgpu: {line}", file=sys.stderr)
        return status
    return result if isinstance(result, int) else Exit.OK
