"""A flood of jobs shorter than a sampling interval: each is in the database, with the right GPUs and times."""

import json
import random
import re
from typing import Any

import pytest
from cluster import Cluster
from processes import wait_for
from settings import Settings

from tests.slurm.scenarios import near, seconds, site_hooks

LENGTHS_S = (0.2, 2.0)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--short-jobs", 100))


@pytest.fixture
def busy(usable: None, other_instance: int) -> Any:
    """A cluster whose slurmgpud has its default settings."""
    settings = Settings(instance=other_instance, slurmgpu=True, interval_s=10, flush_s=60, medium_s=30, cpus=64)
    made = Cluster(settings)
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_every_short_job_is_there(busy: Cluster, count: int) -> None:
    rng = random.Random(1)
    jobs = []
    site_hooks(
        busy, prolog={"told": f'echo "$SLURM_JOB_ID $SLURM_JOB_GPUS" >>{busy.settings.log}/told.$SLURMD_NODENAME'}
    )
    for _ in range(count):
        script = f"sleep {rng.uniform(*LENGTHS_S):.2f}"
        jobs.append(busy.sbatch(script, f"--gres=gpu:{rng.choice((1, 1, 2, 4))}", "-N1"))
    wait_for("the end of all jobs", 1200, lambda: not busy.services.run("squeue", "-h", "-o", "%A").stdout.split())
    wait_for("the accounting", 60, lambda: set(jobs) <= set(_slurms_word(busy)))
    told = _slurms_word(busy)
    hooks = _hooks_word(busy)

    def rows() -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        text = busy.slurmgpu.command("report", ",".join(map(str, jobs)), "--format", "ndjson").stdout
        for line in text.splitlines():
            row = json.loads(line)
            found.setdefault(row["job_id"], []).append(row)
        return found

    def all_there() -> bool:
        found = rows()
        return set(found) == set(jobs) and all(row["end"] for gpus in found.values() for row in gpus)

    wait_for("all jobs in the database", 180, all_there)
    found = rows()
    for job in jobs:
        start_s, end_s = told[job]
        assert {(row["node"], row["gpu_ordinal"]) for row in found[job]} == hooks[job], job
        for row in found[job]:
            assert near(seconds(row["start"]), start_s), row
            assert near(seconds(row["end"]), end_s), row
    assert not busy.services.run("sinfo", "-h", "-R").stdout.strip()


def _slurms_word(cluster: Cluster) -> dict[int, tuple[float, float]]:
    """Start and end of all jobs whose end the accounting knows."""
    command = ["sacct", "-n", "-P", "-X", "-a", "-S", "now-1hours", "-o", "JobIDRaw,Start,End"]
    rows = [line.split("|") for line in cluster.services.run(*command).stdout.splitlines()]
    return {int(job): (seconds(start), seconds(end)) for job, start, end in rows if end != "Unknown"}


def _hooks_word(cluster: Cluster) -> dict[int, set[tuple[str, int]]]:
    """Job → (node, number), as a second hook wrote it down beside ours."""
    found: dict[int, set[tuple[str, int]]] = {}
    for node in cluster.settings.node_names:
        text = (cluster.settings.root / "log" / f"told.{node}").read_text()
        for job, gpus in re.findall(r"^(\d+) ([\d,]+)$", text, re.M):
            found[int(job)] = {(node, int(number)) for number in gpus.split(",")}
    return found
