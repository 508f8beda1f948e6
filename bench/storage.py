"""Budget: full-resolution storage after compaction takes at most 1.6 bytes a value on noisy data, and less than
Prometheus and VictoriaMetrics take for the same values.

One GPU of each pattern, 1 s sampling. A value is one reading of a fast metric. The others are given the fast metrics
alone, at whole seconds, and only their values and times are weighed, without indexes. Ours hold the metrics of all
tiers, the names, and times to the millisecond; ``database`` is the whole SQLite file, with all sums and indexes.
``per any`` divides what is compacted by the values of all tiers, most of which stand still.

    apt-get install prometheus victoria-metrics    # those that are missing are left out
"""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.fleet import CLUSTER, columns, live
from bench.patterns import PATTERNS, tiers
from slurmgpu.node.readings import Tier
from slurmgpu.store.compact import compact
from slurmgpu.store.engine import connect
from slurmgpu.store.migrate import upgrade
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import Allocation, Block, HeldGpu
from slurmgpu.wire.samples import decode, encode, merge
from slurmgpu.wire.segment import Head

HOURS = 2
NOISY = ("training", "inference", "starved")
BUDGET = 1.6
START_MS = 1_699_999_200_000  # a whole two hours since 1970: one block of Prometheus
BLOCKS_PER_MINUTE = 20_000

Series = dict[str, list[float | int | None]]
"""Metric → values, one a second."""
Weigh = Callable[[Series, Path], int]


def main() -> int:
    """Print the figures; 1 when a budget is not kept."""
    others = _others()
    total: dict[str, list[int]] = {}
    names = ["as written", "compacted", "database", "float64 rows", *others]
    print(
        f"{HOURS} h of one GPU each, bytes a value\n{'':<12}" + "".join(f"{name:>17}" for name in (*names, "per any"))
    )
    for pattern in PATTERNS:
        blocks = list(live(pattern, 1, 60 * HOURS, owners=("1@0",)))
        weights, values = _weights(pattern, blocks, others)
        _line(pattern, weights, values)
        for group in ("all patterns", *(["noisy ones"] if pattern in NOISY else [])):
            sums = total.setdefault(group, [0] * (len(weights) + 2))
            total[group] = [a + b for a, b in zip(sums, [*weights, *values], strict=True)]
    kept = True
    for group, (*weights, fast, everything) in total.items():
        _line(group, weights, (fast, everything))
        if group == "noisy ones":
            ours = weights[1]
            kept = ours / fast <= BUDGET and all(ours < theirs for theirs in weights[4:])
    speeds = [_speeds(pattern) for pattern in PATTERNS]
    print(f"\nCPU{'':<9}{'encode a minute':>17}{'merge an hour':>17}{'blocks a minute':>17}{'decode an hour':>17}")
    for pattern, (encode_us, merge_ms, decode_ms) in zip(PATTERNS, speeds, strict=True):
        per_minute = 60 / merge_ms * 60_000
        print(f"{pattern:<12}{encode_us:14.0f} µs{merge_ms:14.0f} ms{per_minute:17.0f}{decode_ms:14.1f} ms")
    mean_ms = sum(merge_ms for _, merge_ms, _ in speeds) / len(speeds)
    kept &= 60 / mean_ms * 60_000 >= BLOCKS_PER_MINUTE
    print(f"budget: {BUDGET} bytes a value on noisy data, {BLOCKS_PER_MINUTE} blocks a minute and core: ", end="")
    print("kept" if kept else "NOT KEPT")
    return 0 if kept else 1


def _line(name: str, weights: Sequence[int], values: tuple[int, int]) -> None:
    fast, everything = values
    cells = "".join(f"{weight / fast:17.3f}" for weight in weights)
    print(f"{name:<12}{cells}{weights[1] / everything:17.3f}", flush=True)


def _weights(pattern: str, blocks: Sequence[Block], others: dict[str, Weigh]) -> tuple[list[int], tuple[int, int]]:
    """Bytes of each way to store these blocks, and how many values they hold: of fast metrics, of all."""
    hours = [blocks[first : first + 60] for first in range(0, len(blocks), 60)]
    merged = [merge([(block.start_ms - hour[0].start_ms, block.body) for block in hour]) for hour in hours]
    minutes = [decode(block.body) for block in blocks]
    rows = sum(len(zlib.compress(_wide(minute), 6)) for minute in minutes)
    series: Series = {name: [value for minute in minutes for value in minute[name]] for name in minutes[0]}
    length = len(series.pop("t_ms"))
    fast = {name: values for name, values in series.items() if tiers()[name] is Tier.FAST}
    with tempfile.TemporaryDirectory() as folder:
        written = sum(len(block.body) for block in blocks)
        weights = [written, sum(map(len, merged)), _database(blocks, Path(folder)), rows]
        weights += [weigh(fast, Path(folder, name)) for name, weigh in others.items()]
    return weights, (length * len(fast), length * len(series))


def _wide(minute: Series) -> bytes:
    """A row of numbers for each sample."""
    rows = zip(*minute.values(), strict=True)
    return b"".join(struct.pack(f"<{len(row)}d", *(value or 0 for value in row)) for row in rows)


def _database(blocks: Sequence[Block], folder: Path) -> int:
    """The SQLite file of a job with these blocks, compacted; without what an empty one weighs."""
    path = folder / "store.db"
    url = f"sqlite:///{path}"
    upgrade(connect(url, create=True))
    empty = _settled_size(path)
    engine = connect(url)
    end_ms = START_MS + blocks[-1].end_ms
    job = Allocation("1@0", "n", CLUSTER, 1, START_MS, end_ms, "prolog", "epilog", (HeldGpu("GPU-live", 0),))
    moved = [replace(b, start_ms=START_MS + b.start_ms, end_ms=START_MS + b.end_ms) for b in blocks]
    Writer(engine).write(Head(CLUSTER, "n", "b", "s", 0, end_ms), [job, *moved])
    compact(engine, end_ms + 7_200_000)
    engine.dispose()
    return _settled_size(path) - empty


def _settled_size(path: Path) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def _speeds(pattern: str) -> tuple[float, float, float]:
    """CPU: µs to encode a minute, ms to merge an hour, ms to decode it; the best of several."""
    whole = columns(pattern, 1, 3600)
    minutes = [[(n, s, tuple(v[first : first + 60])) for n, s, v in whole] for first in range(0, 3600, 60)]
    parts = [(60_000 * number, encode(minute)) for number, minute in enumerate(minutes)]
    merged = merge(parts)
    encode_s = min(_cpu_s(partial(encode, minute)) for minute in minutes for _ in range(5))
    merge_s = min(_cpu_s(lambda: merge(parts)) for _ in range(5))
    return encode_s * 1e6, merge_s * 1e3, min(_cpu_s(lambda: decode(merged)) for _ in range(5)) * 1e3


def _cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# -- the others


def _others() -> dict[str, Weigh]:
    """Those that are installed."""
    found: dict[str, Weigh] = {}
    for name, program, weigh in (
        ("Prometheus", "promtool", _prometheus),
        ("VictoriaMetrics", "victoria-metrics", _victoria),
    ):
        if shutil.which(program):
            found[name] = weigh
        else:
            print(f"{name} is left out: there is no {program} here (Debian has it)")
    return found


def _prometheus(series: Series, folder: Path) -> int:
    """Chunks of the block that promtool makes of OpenMetrics text."""
    folder.mkdir()
    source = folder / "openmetrics"
    with source.open("w") as file:
        for name, values in series.items():
            file.write(f"# TYPE {name} gauge\n")
            for number, value in enumerate(values):
                if value is not None:
                    file.write(f'{name}{{gpu="GPU-live"}} {value!r} {START_MS // 1000 + number}\n')
        file.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(folder / "data")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sum(path.stat().st_size for path in folder.glob("data/*/chunks/*"))


def _victoria(series: Series, folder: Path) -> int:
    """Values and timestamps of the parts that VictoriaMetrics makes of what it is sent."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["victoria-metrics", f"-storageDataPath={folder}", f"-httpListenAddr={address}", "-retentionPeriod=100y"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _until_it_answers(f"http://{address}/health")
            _post(f"http://{address}/api/v1/import", b"".join(_json_lines(series)))
            _post(f"http://{address}/internal/force_flush", None)
            return _settled_parts(folder)
        finally:
            process.terminate()


def _settled_parts(folder: Path) -> int:
    """Bytes of the parts when they have stayed the same for a second."""
    before = 0
    for _ in range(60):
        time.sleep(1)
        found = [path for part in ("values.bin", "timestamps.bin") for path in folder.glob(f"data/*/*/*_*/{part}")]
        size = sum(path.stat().st_size for path in found)
        if size and size == before:
            return size
        before = size
    raise RuntimeError("VictoriaMetrics writes nothing")


def _json_lines(series: Series) -> Iterator[bytes]:
    for name, values in series.items():
        there = [(START_MS + 1000 * number, value) for number, value in enumerate(values) if value is not None]
        times, numbers = zip(*there, strict=True)
        yield (
            json.dumps(
                {"metric": {"__name__": name, "gpu": "GPU-live"}, "values": numbers, "timestamps": times}
            ).encode()
            + b"\n"
        )


def _until_it_answers(url: str) -> None:
    for _ in range(100):
        try:
            _post(url, None)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url} does not answer")


def _post(url: str, body: bytes | None) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60) as answer:
        answer.read()


if __name__ == "__main__":
    sys.exit(main())
