"""The table of scenarios: what the tests saw, a row for each way of holding GPUs and each way that marks go wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster import Cluster
from files import slurm_version
from processes import wait_for

SLACK_S = 1.0


@dataclass(frozen=True)
class Row:
    """A scenario as the test saw it."""

    way: str
    gpus: str
    times: str
    source: str
    test: str


@dataclass
class Table:
    """All rows of one run of the tests, on one release of Slurm."""

    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def write(self, path: Path) -> None:
        """As JSON: release → rows."""
        release = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({release: [asdict(row) for row in self.rows]}, indent=1, ensure_ascii=False) + "\n")


@dataclass
class Job:
    """A job on the cluster and what Slurm said of it while it knew it."""

    cluster: Cluster
    id: int
    gpus: dict[str, list[int]] = field(default_factory=dict)
    start_s: float = 0.0
    end_s: float = 0.0

    @classmethod
    def submit(cls, cluster: Cluster, script: str, *options: str, user: str = "alice") -> Job:
        return cls(cluster, cluster.sbatch(script, *options, user=user))

    def running(self) -> Job:
        """Until it runs; its GPUs by Slurm's own word."""
        self.cluster.wait_state(self.id, "RUNNING")
        self.gpus = self.cluster.gpu_indices(self.id)
        return self

    def done(self, seconds: float = 60) -> Job:
        """Until it ended; its times by Slurm's own word."""
        self.cluster.wait_done(self.id, seconds)
        text = self.cluster.show_job(self.id)
        self.start_s, self.end_s = (time_of(text, key) for key in ("StartTime", "EndTime"))
        return self

    def runs(self) -> list[dict[str, Any]]:
        """What the report says of it, without the other tasks of its array or components of its het job."""
        result = self.cluster.slurmgpu.command("report", str(self.id), "-D", "--format", "json")
        found = json.loads(result.stdout)["runs"] if result.returncode in (0, 4) else []
        return [run for run in found if run["job_id"] == self.id]

    def settled(self, source: str) -> dict[str, Any]:
        """Its run, once its times come from these sources, such as "prolog, slurm"."""

        def there() -> bool:
            found = self.runs()
            return bool(found) and all(f"{a['source']}, {a['end_source']}" == source for a in found[0]["allocations"])

        wait_for(f"job {self.id}: {source}", 90, there)
        return self.runs()[0]

    def begun(self) -> dict[str, Any]:
        """Its run, once it begins when Slurm says, which is learnt after its end."""

        def there() -> bool:
            starts = [seconds(item["start"]) for run in self.runs() for item in run["allocations"]]
            return bool(starts) and all(near(start, self.start_s) for start in starts)

        wait_for(f"Slurm's start of job {self.id}", 90, there)
        return self.runs()[0]

    def ended(self, runs: int = 1, *, final: bool = True) -> list[dict[str, Any]]:
        """All its runs, once the database knows their ends, and with ``final`` Slurm's word on them."""

        def there() -> bool:
            found = self.runs()
            known = all(run["end"] and (run["slurm_state"] not in (None, "RUNNING") or not final) for run in found)
            return len(found) == runs and known

        wait_for(f"the report of job {self.id}", 60, there)
        return self.runs()


def time_of(text: str, key: str) -> float:
    word = text.partition(f" {key}=")[2].split()[0]
    return datetime.fromisoformat(word).timestamp()


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def gpus_of(run: dict[str, Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for gpu in run["gpus"]:
        found.setdefault(gpu["node"], []).append(gpu["gpu_ordinal"])
    return {node: sorted(numbers) for node, numbers in found.items()}


def near(t: float, slurms: float) -> bool:
    """Within a second of Slurm's time, which is in whole seconds."""
    return slurms - SLACK_S <= t <= slurms + 1 + SLACK_S


def check(
    table: Table,
    way: str,
    test: str,
    run: dict[str, Any],
    gpus: dict[str, list[int]],
    start_s: float,
    end_s: float,
    source: str = "prolog, epilog",
) -> None:
    """A run has the right GPUs, and on each node the right times, from the source that is meant."""
    held = {node: numbers for node, numbers in gpus.items() if numbers}
    assert gpus_of(run) == held, (way, run)
    for item in run["allocations"]:
        assert near(seconds(item["start"]), start_s), (way, item, start_s)
        assert near(seconds(item["end"]), end_s), (way, item, end_s)
    sources = {f"{item['source']}, {item['end_source']}" for item in run["allocations"]}
    assert sources == {source}, (way, sources)
    table.add(Row(way, "right", "right", source, test))


def site_hooks(cluster: Cluster, **others: dict[str, str]) -> None:
    """A site's own hooks (name: lines) beside ours, in force on all nodes; without any, ours alone."""
    lines = []
    for kind, scripts in others.items():
        folder = cluster.slurmgpu.hooks / f"{kind}.d"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if slurm_version() < (23, 11):  # the last Prolog= line counts; later all of them do
            put(folder / "slurmgpu", (cluster.slurmgpu.hooks / kind).read_text())
        for name, text in scripts.items():
            put(folder / name, f"#!/bin/sh\n{text}\n")
        lines.append(f"{kind.capitalize()}={folder}/*")
    (cluster.settings.etc / "site.conf").write_text("\n".join(["# local lines", *lines, ""]))
    cluster.services.run("scontrol", "reconfigure")

    def in_force() -> bool:
        shown = cluster.services.run("scontrol", "show", "config").stdout
        return ("prolog.d" in shown) == ("prolog" in others)

    wait_for("the new configuration", 30, in_force)


def put(path: Path, text: str) -> None:
    """A script in place at once and whole: a node may start it at any time."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.rename(path)
