"""``slurmgpu report``: what a job did with its GPUs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from slurmgpu.cli.errors import Exit, UsageError, emit
from slurmgpu.cli.options import ConfigFile, Format

if TYPE_CHECKING:
    from slurmgpu.report.facts import RunFacts


def report(
    job_id: Annotated[
        str, typer.Argument(metavar="JOBID", help="As squeue prints it: 123, 123_4, 123_[1-5], 123+1; or a list.")
    ],
    output: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.text,
    duplicates: Annotated[bool, typer.Option("--duplicates", "-D", help="All runs of a requeued job.")] = False,
    cluster: Annotated[str | None, typer.Option("--cluster", "-M", help="Slurm's name of the cluster.")] = None,
    config: ConfigFile = None,
) -> None:
    """Say what a job did with its GPUs: the latest run, or with -D all of them."""
    from slurmgpu.config import load
    from slurmgpu.report.build import job_runs
    from slurmgpu.slurm.jobid import JobIdError, parse_jobs
    from slurmgpu.store.engine import connect

    try:
        refs = parse_jobs(job_id)
    except JobIdError as error:
        raise UsageError(str(error)) from None
    with connect(load(config).store.url).connect() as connection:
        shown = [run for ref in refs for run in job_runs(connection, ref, cluster, all_runs=duplicates)]
    emit(_render(shown, output))
    if any(run.coverage == 0 for run in shown):
        raise typer.Exit(Exit.PARTIAL)


def _render(runs: Sequence[RunFacts], output: Format) -> str:
    if output is Format.text:
        from slurmgpu.report.style import Style
        from slurmgpu.report.text import render

        style = Style.of(sys.stdout)
        return style.for_stream("\n".join(render(run, style) for run in runs))
    from slurmgpu.report import formats

    forms = {Format.json: formats.to_json, Format.csv: formats.to_csv, Format.ndjson: formats.to_ndjson}
    return forms[output](runs)
