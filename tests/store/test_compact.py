"""Hours in the place of minutes: fewer rows, and every total and every sample as before."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from bench.fleet import START_MS, Fleet, Library, Plan
from slurmgpu.store import compact as compacting
from slurmgpu.store.compact import HOUR_MS, Compacted, compact
from slurmgpu.store.schema import block, gpu, job_gpu, job_node, node, summary_columns
from slurmgpu.store.totals import Totals, covered_ms
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import Block, Record, Share, Stat
from slurmgpu.wire.samples import decode, encode
from tests.store import making

LATER = 1 << 50
MINUTES = range(0, 600_000, 60_000)


def rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(block).order_by(block.c.gpu_id, block.c.start_ms)))


def sums(engine: Engine) -> dict[object, list[Any]]:
    """(GPU, owners, owner) → what its blocks add up to."""
    added = [block.c.samples, block.c.covered_ms, block.c.energy_mj, block.c.end_ms - block.c.start_ms]
    added += [block.c[name] for name, _, part in summary_columns() if part in ("sum", "weight_ms")]
    highest = [func.max(block.c[name]) for name, _, part in summary_columns() if part == "max"]
    key = (block.c.gpu_id, block.c.owners, func.coalesce(block.c.job_gpu_id, 0).label("owner"))
    query = select(*key, *(func.sum(column) for column in added), *highest).group_by(*key)
    with engine.connect() as connection:
        return {tuple(row[:3]): [value and float(value) for value in row[3:]] for row in connection.execute(query)}


def samples(engine: Engine) -> dict[object, list[tuple[int, float | None]]]:
    """(GPU, owner, metric) → (time, value) of every sample that was available."""
    found: dict[object, list[tuple[int, float | None]]] = defaultdict(list)
    for row in rows(engine):
        columns = decode(row.samples_z) if row.samples_z else {}
        times = [row.start_ms + int(offset or 0) for offset in columns.pop("t_ms", [])]
        assert len(times) == row.samples
        for name, values in columns.items():
            there = [(t, value) for t, value in zip(times, values, strict=True) if value is not None]
            found[row.gpu_id, row.job_gpu_id, name] += there
    return found


def job_totals(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(job_gpu).order_by(job_gpu.c.id)))


def write(engine: Engine, records: list[Record], seq: int = 0) -> None:
    Writer(engine).write(making.head(seq), records)


def minutes(owners: tuple[str, ...] = (), times: Any = MINUTES, **changes: Any) -> list[Record]:
    return [replace(making.block("GPU-0", start, start + 60_000, owners), **changes) for start in times]


def ended(job_id: int, start_ms: int, end_ms: int) -> Record:
    return making.allocation(job_id, start_ms, end_ms)


def spans(engine: Engine) -> list[tuple[int, int]]:
    return [(row.start_ms, row.end_ms) for row in rows(engine)]


def test_a_fleet_adds_up_as_before(engine: Engine) -> None:
    fleet = Fleet(Plan(gpus=2, days=0.1, seed=4, job_minutes=30), Library(4, variants=1))
    writer = Writer(engine)
    for head, records in fleet.segments():
        writer.write(head, records)
    before = (sums(engine), samples(engine), job_totals(engine))
    many = len(rows(engine))
    done = compact(engine, LATER)
    after = rows(engine)
    assert sums(engine) == {key: pytest.approx(values, rel=1e-12) for key, values in before[0].items()}
    assert samples(engine) == before[1]
    assert job_totals(engine) == before[2]
    assert done.rows_before - done.rows_after == many - len(after) > many / 2
    assert all(row.covered_ms == row.end_ms - row.start_ms for row in after)
    assert compact(engine, LATER) == Compacted()
    assert rows(engine) == after


def test_the_fleets_truth_is_what_the_store_adds_up(engine: Engine) -> None:
    fleet = Fleet(Plan(gpus=4, days=0.05, seed=9, job_minutes=15), Library(9, variants=1))
    writer = Writer(engine)
    for head, records in fleet.segments():
        writer.write(head, records)
    query = (
        select(job_gpu, job_node.c.allocation, node.c.name, gpu.c.uuid)
        .join(job_node, job_node.c.id == job_gpu.c.job_node_id)
        .join(node, node.c.id == job_node.c.node_id)
        .join(gpu, gpu.c.id == job_gpu.c.gpu_id)
        .where(job_gpu.c.samples > 0)
    )
    with engine.connect() as connection:
        stored = {(row.name, row.allocation, row.uuid): row for row in connection.execute(query)}
    assert stored.keys() == fleet.truth.keys()
    for key, truth in fleet.truth.items():
        row = stored[key]
        assert (row.samples, row.covered_ms, row.energy_mj) == (truth.samples, truth.covered_ms, truth.energy_mj)
        assert row.gpu_util_pct_weight_ms == truth.busy_weight_ms
        assert row.gpu_util_pct_sum == pytest.approx(truth.busy_sum, rel=1e-12)


def test_only_whole_hours_of_ended_jobs(engine: Engine) -> None:
    """A job that runs, one that ended after the limit, figures that are still to be found, the hour that goes on."""
    hours = [range(hour * HOUR_MS, hour * HOUR_MS + 120_000, 60_000) for hour in range(5)]
    limit = 5 * HOUR_MS - 1
    allocations = [
        making.allocation(1, 0, 120_000),
        making.allocation(2, HOUR_MS, None, end_source=None),
        making.allocation(3, 2 * HOUR_MS, limit + 5),
        making.allocation(4, 3 * HOUR_MS, 3 * HOUR_MS + 120_000),
    ]
    write(
        engine, [item for a, times in zip(allocations, hours, strict=False) for item in [a, *minutes((a.id,), times)]]
    )
    write(engine, minutes((), hours[4]), seq=1)
    with engine.begin() as connection:
        fourth = select(job_node.c.id).where(job_node.c.allocation == allocations[3].id).scalar_subquery()
        connection.execute(update(job_gpu).where(job_gpu.c.job_node_id == fourth).values(settled=False))
    assert compact(engine, limit) == Compacted(hours=1, rows_before=2, rows_after=1)
    assert spans(engine)[0] == (0, 120_000)
    assert len(rows(engine)) == 9


@pytest.mark.parametrize(
    "records",
    [
        [
            *(ended(1, 0, 300_000), *minutes(("1@0",), MINUTES[:5])),
            *(ended(2, 300_000, 600_000), *minutes(("2@300000",), MINUTES[5:])),
        ],
        [*minutes((), MINUTES[:5]), ended(1, 300_000, 600_000), *minutes(("1@300000",), MINUTES[5:])],
        minutes((), [*MINUTES[:5], *(t + 1 for t in MINUTES[5:])]),
        minutes((), MINUTES[:5]) + minutes((), MINUTES[5:], energy_mj=None, energy_source=None),
        minutes((), MINUTES[:5]) + minutes((), MINUTES[5:], samples=0, stats={}, body=b""),
        minutes((), MINUTES[:5]) + minutes((), MINUTES[5:], body=b""),
        [making.allocation(1, 300_002, 600_000, source="epilog"), *minutes()],
        minutes(("1@0", "2@0"), MINUTES[:5])
        + minutes(("1@0", "3@0"), MINUTES[5:])
        + [ended(1, 0, 600_000), ended(2, 0, 600_000), ended(3, 0, 600_000)],
    ],
    ids=["jobs", "idle", "gap", "energy", "uncovered", "dropped samples", "owner told late", "sharers"],
)
def test_what_must_stay_apart(engine: Engine, records: list[Record]) -> None:
    write(engine, records)
    with engine.begin() as connection:
        connection.execute(update(job_gpu).values(settled=True))
    before = sums(engine)
    compact(engine, LATER)
    assert len(rows(engine)) == 2
    assert sums(engine) == before
    assert spans(engine)[0] == (0, 300_000)


def test_notes_and_energy_sources_are_joined(engine: Engine) -> None:
    parts = minutes()[:3]
    assert isinstance(parts[0], Block)
    assert isinstance(parts[1], Block)
    parts[0] = replace(parts[0], missing={"temperature_c": ("A", 1)}, dropped={"power_mw": 2})
    parts[1] = replace(parts[1], missing={"temperature_c": ("B", 2)}, dropped={"power_mw": 1}, energy_source="power")
    write(engine, parts)
    compact(engine, LATER)
    (row,) = rows(engine)
    assert json.loads(row.notes) == {"missing": {"temperature_c": ["B", 3]}, "dropped": {"power_mw": 3}}
    assert (row.energy_mj, row.energy_source, row.samples) == (1800, "mixed", 6)


def test_each_sharer_keeps_its_energy(engine: Engine) -> None:
    """Shares of folded rows are means by energy; memory adds up."""
    one, two = "1@0", "2@0"
    shared = [
        Block(
            gpu="GPU-0",
            start_ms=start,
            end_ms=start + 60_000,
            samples=1,
            owners=(one, two),
            stats={"gpu_util_pct": Stat(60_000, 6e6, 100, 100)},
            energy_mj=energy,
            energy_source="counter",
            shares={one: Share(part, "sm", 60_000, 6e9, 100_000 + start), two: Share(1 - part, "sm")},
            body=encode([("t_ms", 1, [60_000]), ("gpu_util_pct", 1, [100])]),
        )
        for start, energy, part in zip(MINUTES, (1000, 8000, 4000), (0.5, 0.25, 0.75), strict=False)
    ]
    write(engine, [*shared, ended(1, 0, 600_000), ended(2, 0, 600_000)])
    compact(engine, LATER)
    (row,) = rows(engine)
    shares = json.loads(row.notes)["shares"]
    assert row.energy_mj * shares[one][0] == pytest.approx(500 + 2000 + 3000)
    assert shares[one][0] + shares[two][0] == pytest.approx(1)
    assert shares[one][2:] == [180_000, 1.8e10, 220_000]
    assert shares[two][2:] == [0, 0, None]


def test_a_folded_row_is_a_block_again(engine: Engine) -> None:
    """What reads a row as a block (:mod:`slurmgpu.store.late`) finds the same totals."""
    parts = minutes(("1@0",))
    write(engine, [ended(1, 0, 600_000), *parts])
    compact(engine, LATER)
    (row,) = rows(engine)
    totals = Totals()
    for part in parts:
        assert isinstance(part, Block)
        totals.add(part, "1@0")
    assert (row.samples, row.covered_ms, row.energy_mj) == (totals.samples, totals.covered_ms, totals.energy_mj)
    assert {name: getattr(row, name) for name in totals.sums} == totals.sums
    assert sum(covered_ms(part) for part in parts if isinstance(part, Block)) == row.end_ms - row.start_ms


def test_damaged_samples_stay_where_they_are(engine: Engine) -> None:
    write(
        engine, [*minutes((), MINUTES[:5], body=b"x"), *minutes(("1@300000",), MINUTES[5:]), ended(1, 300_000, 600_000)]
    )
    before = rows(engine)
    assert compact(engine, LATER) == Compacted(hours=1, rows_before=5, rows_after=1, unreadable=5)
    assert rows(engine)[:5] == before[:5]


def test_what_changed_meanwhile_is_left(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading and writing another program gives a block back, or folds it."""
    write(engine, minutes())
    merge = compacting.merge

    def slowly(parts: Any) -> bytes:
        with engine.begin() as connection:
            connection.execute(update(block).where(block.c.start_ms == 60_000).values(owners=2))
        return merge(parts)

    monkeypatch.setattr(compacting, "merge", slowly)
    assert compact(engine, LATER) == Compacted()
    assert len(rows(engine)) == len(MINUTES)


def test_beside_a_collector_and_itself(engine: Engine) -> None:
    """Two compactors and a writer at once; what one pass left, the next one folds."""
    fleet = Fleet(Plan(gpus=2, days=0.1, seed=2, job_minutes=20), Library(2, variants=1))
    segments = list(fleet.segments())
    half = len(segments) // 2
    writer = Writer(engine)
    for head, records in segments[:half]:
        writer.write(head, records)
    failures: list[BaseException] = []

    def work(what: Any) -> None:
        try:
            what()
        except BaseException as error:
            failures.append(error)

    def collect() -> None:
        for head, records in segments[half:]:
            writer.write(head, records)

    jobs = [collect, *(2 * [lambda: compact(engine, START_MS + HOUR_MS * 2)])]
    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    compact(engine, LATER)
    truth = [(t.samples, t.energy_mj) for t in fleet.truth.values()]
    assert sorted((row.samples, row.energy_mj) for row in job_totals(engine) if row.samples) == sorted(truth)
    assert sum(row.samples for row in rows(engine)) == fleet.samples
    assert all(a.end_ms <= b.start_ms for a, b in itertools.pairwise(rows(engine)) if a.gpu_id == b.gpu_id)


def test_progress_is_told(engine: Engine) -> None:
    write(engine, [making.block(f"GPU-{number}", 0, 60_000) for number in range(3)])
    told: list[tuple[int, int]] = []
    compact(engine, LATER, lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_command(engine: Engine, url: str, tmp_path: Path) -> None:
    Writer(engine).write(making.head(0), [*minutes((), MINUTES), ended(1, 0, 0)])
    environment = {**os.environ, "SLURMGPU_STORE_URL": url, "SLURMGPU_CONF": str(tmp_path / "none.toml")}
    (tmp_path / "none.toml").touch()
    command = [sys.executable, "-m", "slurmgpu", "db", "compact"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert out == f"1 hours folded: {len(MINUTES)} rows became 1\n"
    wrong = subprocess.run([*command, "--older-than", "soon"], env=environment, capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "--older-than" in wrong.stderr
