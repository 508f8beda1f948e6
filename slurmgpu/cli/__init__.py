"""The command ``slurmgpu``: one module for each group of commands, no logic of its own.

Modules here import nothing heavy at their top: a command pays for what it uses.
"""

from __future__ import annotations

import sys

from slurmgpu import __version__


def main(argv: list[str] | None = None) -> int:
    """Run a command; the exit status (see :mod:`slurmgpu.cli.errors`)."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--version"], ["-V"]):  # before typer, which takes longer than all else here
        print(f"slurmgpu {__version__}")
        return 0
    from slurmgpu.cli.app import run

    return run(arguments)
