"""Segments of an invented node, whose truth is easy to add up."""

from pathlib import Path

from slurmgpu.wire.records import Allocation, Block, GpuInfo, HeldGpu, Record, Stat
from slurmgpu.wire.samples import encode
from slurmgpu.wire.segment import Head, pack


def head(seq: int, node: str = "n1", stream: str = "s") -> Head:
    return Head(cluster="c", node=node, boot_id="b", stream=stream, seq=seq, created_ms=1_000 * seq)


def block(
    gpu: str, start_ms: int, end_ms: int, owners: tuple[str, ...] = (), busy: float = 50, energy_mj: int | None = 600
) -> Block:
    length = end_ms - start_ms
    return Block(
        gpu=gpu,
        start_ms=start_ms,
        end_ms=end_ms,
        samples=2,
        owners=owners,
        stats={
            "gpu_util_pct": Stat(length, busy * length, busy, busy),
            "mem_used_bytes": Stat(length, 1e9 * length, 1e9, 2e9),
            "power_mw": Stat(length, 10_000.0 * length, 10_000, 12_000),
        },
        energy_mj=energy_mj,
        energy_source=None if energy_mj is None else "counter",
        body=encode([("t_ms", 1, [length // 2, length]), ("gpu_util_pct", 1, [round(busy), round(busy)])]),
    )


def allocation(
    job_id: int,
    start_ms: int,
    end_ms: int | None,
    gpus: tuple[str, ...] = ("GPU-0",),
    node: str = "n1",
    **more: object,
) -> Allocation:
    values = {
        "id": f"{job_id}@{start_ms}",
        "node": node,
        "cluster": "c",
        "job_id": job_id,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "source": "prolog",
        "end_source": None if end_ms is None else "epilog",
        "gpus": tuple(HeldGpu(uuid, number) for number, uuid in enumerate(gpus)),
        "restart_count": 0,
        "user": "alice",
        **more,
    }
    return Allocation(**values)  # type: ignore[arg-type]


def info(uuid: str, t_ms: int = 0, **more: object) -> GpuInfo:
    values = {"uuid": uuid, "t_ms": t_ms, "index": 0, "name": "H100", "memory_bytes": 80 << 30, **more}
    return GpuInfo(**values)  # type: ignore[arg-type]


def put(folder: Path, which: Head, records: list[Record]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / which.file_name
    path.write_bytes(pack(which, records))
    return path
