"""The inventory: which GPUs there are, where they sit, how they are set, and how they are linked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from slurmgpu.report import listing, units
from slurmgpu.report.style import Style
from slurmgpu.store import queries

SCHEMA = "slurmgpu.gpus/1"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or MIG instance at its place. What is not known is None; ``numa_node`` is -1 then.

    ``nvlink_peers``: NVML indices of the GPUs of the node that it reaches over NVLink; ``nvlink_counts``: by how many
    links, in the same order.
    """

    cluster: str
    node: str
    index: int
    minor: int | None
    uuid: str
    parent_uuid: str | None
    serial: str | None
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    pci_address: str | None
    numa_node: int
    driver_version: str | None
    cuda_version: str | None
    persistence_mode: str | None
    compute_mode: str | None
    ecc_mode: str | None
    mig_mode: str | None
    health: str
    nvlink_peers: tuple[int, ...]
    nvlink_counts: tuple[int, ...]
    first_seen: str
    last_seen: str


COLUMNS: tuple[str, ...] = tuple(spec.name for spec in fields(Gpu))
"""The columns of CSV and NDJSON, in their order. New ones are added at the end."""


def from_store(connection: Connection, *, nodes: Iterable[str] = (), history: bool = False) -> list[Gpu]:
    """The GPUs as the nodes described them last; with ``history`` every place where one was."""
    wanted = set(nodes)
    rows = [row for row in queries.gpu_places(connection, history=history) if not wanted or row.node_name in wanted]
    plain = [
        {
            "cluster": row.cluster_name,
            "node": row.node_name,
            "index": row.nvml_index,
            "parent": row.parent_uuid,
            "modes": json.loads(row.modes or "{}"),
            "nvlink_peers": json.loads(row.nvlink_peers or "{}"),
            "first_ms": row.first_ms,
            "last_ms": row.last_ms,
            **{name: getattr(row, name) for name in _AS_THEY_ARE},
        }
        for row in rows
    ]
    return _gpus(plain)


def from_node(head: dict[str, Any], records: Iterable[dict[str, Any]]) -> list[Gpu]:
    """The GPUs as ``slurmgpud --inventory`` prints them: the node, and a record of slurmgpu.wire for each."""
    defaults: dict[str, Any] = dict.fromkeys(_AS_THEY_ARE) | {"numa_node": -1, "health": "unknown"}
    defaults |= {"modes": {}, "nvlink_peers": {}, "parent": None, "cluster": head["cluster"], "node": head["node"]}
    return _gpus([defaults | r | {"first_ms": r["t_ms"], "last_ms": r["t_ms"]} for r in records])


_AS_THEY_ARE = (
    "minor",
    "uuid",
    "serial",
    "name",
    "memory_bytes",
    "compute_capability",
    "pci_address",
    "numa_node",
    "driver_version",
    "cuda_version",
    "health",
)


def _gpus(plain: Sequence[dict[str, Any]]) -> list[Gpu]:
    index_of = {item["uuid"]: item["index"] for item in plain}
    made = []
    for item in plain:
        peers = sorted((index_of[uuid], links) for uuid, links in item["nvlink_peers"].items() if uuid in index_of)
        made.append(
            Gpu(
                cluster=item["cluster"],
                node=item["node"],
                index=item["index"],
                parent_uuid=item["parent"],
                persistence_mode=item["modes"].get("persistence"),
                compute_mode=item["modes"].get("compute"),
                ecc_mode=item["modes"].get("ecc"),
                mig_mode=item["modes"].get("mig"),
                nvlink_peers=tuple(index for index, _ in peers),
                nvlink_counts=tuple(links for _, links in peers),
                first_seen=units.iso_time(item["first_ms"]),
                last_seen=units.iso_time(item["last_ms"]),
                **{name: item[name] for name in _AS_THEY_ARE},
            )
        )
    return made


def rows(gpus: Iterable[Gpu]) -> list[dict[str, Any]]:
    """For :mod:`slurmgpu.report.listing`."""
    return [asdict(gpu) for gpu in gpus]


def to_json(gpus: Iterable[Gpu]) -> str:
    """One document."""
    return listing.to_json(SCHEMA, "gpus", rows(gpus))


def silent(head: dict[str, Any], gpus: Sequence[Gpu]) -> str | None:
    """What to say when the driver counts more GPUs than answer."""
    missing = head["counted"] - sum(gpu.parent_uuid is None for gpu in gpus)
    return f"{missing} of {head['counted']} GPUs that the driver counts do not answer" if missing > 0 else None


def render(gpus: Sequence[Gpu], style: Style, *, links: bool) -> str:
    """A table for each node, and with ``links`` a matrix of its NVLinks."""
    lines: list[str] = []
    for (_, node), group in groupby(gpus, key=lambda gpu: (gpu.cluster, gpu.node)):
        of_node = list(group)
        lines += [*_table(node, of_node, style), ""]
        if links:
            lines += [*_matrix(of_node, style), ""]
    return "\n".join(line.rstrip() for line in lines[:-1]) + "\n" if lines else ""


def _table(node: str, gpus: Sequence[Gpu], style: Style) -> Iterator[str]:
    first = gpus[0]
    whole = sum(gpu.parent_uuid is None for gpu in gpus)
    versions = [f"driver {first.driver_version}"] if first.driver_version else []
    versions += [f"CUDA {first.cuda_version}"] if first.cuda_version else []
    yield " · ".join([style.bold(units.plain(node)), f"{whole} GPU{'' if whole == 1 else 's'}", *versions])
    yield style.dim(
        f"{'GPU':>3} {'minor':>5}  {'model':<20} {'mem GiB':>7}  {'PCI':<13} {'NUMA':>4}  {'health':<8} UUID"
    )
    for gpu in gpus:
        yield _line(gpu, style)


def _line(gpu: Gpu, style: Style) -> str:
    if gpu.parent_uuid:  # a MIG instance, under its parent
        name = units.plain(gpu.name).rpartition("MIG ")[2]
        return f"{'':>9}  {'└ MIG ' + name:<20.20} {units.gib(gpu.memory_bytes):>7}  {'':<28} {gpu.uuid[:10]}"
    minor = units.UNKNOWN if gpu.minor is None else str(gpu.minor)
    address = (gpu.pci_address or units.UNKNOWN).removeprefix("0000")
    numa = units.UNKNOWN if gpu.numa_node < 0 else str(gpu.numa_node)
    health = style.health(gpu.health, f"{gpu.health:<8}")
    model = units.plain(gpu.name).removeprefix("NVIDIA ")
    return (
        f"{gpu.index:>3} {minor:>5}  {model:<20.20} {units.gib(gpu.memory_bytes):>7}"
        f"  {address:<13} {numa:>4}  {health} {gpu.uuid[:10]}"
    )


def _matrix(gpus: Sequence[Gpu], style: Style) -> Iterator[str]:
    whole = [gpu for gpu in gpus if gpu.parent_uuid is None]
    if not any(gpu.nvlink_peers for gpu in whole):
        yield "No NVLink between GPUs."
        return
    yield style.dim(f"{'NVLinks':>9} " + "".join(f"{gpu.index:>4}" for gpu in whole))
    for gpu in whole:
        counts = dict(zip(gpu.nvlink_peers, gpu.nvlink_counts, strict=True))
        cells = ("·" if other is gpu else str(counts.get(other.index, units.UNKNOWN)) for other in whole)
        yield f"{gpu.index:>9} " + "".join(f"{cell:>4}" for cell in cells)
