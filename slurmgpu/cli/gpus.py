"""``slurmgpu gpus``: the inventory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from slurmgpu.cli.errors import emit
from slurmgpu.cli.options import ConfigFile, Format

if TYPE_CHECKING:
    from slurmgpu.report.gpus import Gpu


def gpus(
    local: Annotated[bool, typer.Option("--local", help="This node's GPUs, from the driver.")] = False,
    nodes: Annotated[str | None, typer.Option("--nodelist", "-w", help="Nodes, such as n[1-4],n7.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Every place where a GPU was.")] = False,
    links: Annotated[bool, typer.Option("--links", help="A matrix of the NVLinks of each node.")] = False,
    output: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.text,
    config: ConfigFile = None,
) -> None:
    """List the GPUs: who they are, where they sit, how they are set and linked, in one word how they are."""
    from slurmgpu.report import gpus as inventory
    from slurmgpu.report import listing

    found = _local(config) if local else _stored(config, nodes, history)
    if output is Format.text:
        from slurmgpu.report.style import Style

        style = Style.of(sys.stdout)
        emit(style.for_stream(inventory.render(found, style, links=links or local)))
    elif output is Format.json:
        emit(inventory.to_json(found))
    elif output is Format.csv:
        emit(listing.to_csv(inventory.COLUMNS, inventory.rows(found)))
    else:
        emit(listing.to_ndjson(inventory.rows(found)))


def _stored(config: str | None, nodes: str | None, history: bool) -> list[Gpu]:
    from slurmgpu.config import load
    from slurmgpu.report.gpus import from_store
    from slurmgpu.slurm.hostlist import expand
    from slurmgpu.store.engine import connect

    wanted = expand(nodes) if nodes else []
    with connect(load(config).store.url).connect() as connection:
        return from_store(connection, nodes=wanted, history=history)


def _local(config: str | None) -> list[Gpu]:
    from slurmgpu.report.gpus import from_node, silent
    from slurmgpu.report.local import inventory

    head, records = inventory(config)
    found = from_node(head, records)
    complaint = silent(head, found)
    if complaint:
        print(f"slurmgpu: {complaint}", file=sys.stderr)
    return found
