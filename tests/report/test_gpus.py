"""The inventory, from the store and from the node's own driver."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import simgpu
from sqlalchemy import Engine

from slurmgpu.report import gpus, listing
from slurmgpu.report.style import Style
from slurmgpu.store.writer import Writer
from tests.store import making

LOCAL = [
    "gpus 5",
    "gpu 1 minor=3 remap_failed=1",
    "gpu 3 minor=1 numa=-1 pci=00000001:AF:00.0",
    "gpu 4 mig_mode=1 compute_mode=3 persistence=0",
    "mig 4 gi=1 ci=0 profile=3g.40gb memory_bytes=42949672960 mem_used_bytes=1",
    "nvlink 0,1 0-3 state=none",
    "nvlink 2 0 far=3",
    "nvlink 3 0 far=2",
    "nvlink 2 1 state=0",
]


def local(tmp_path: Path, lines: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    scenario = simgpu.Scenario(lines).write(tmp_path / "scenario")
    (tmp_path / "c.toml").write_text('cluster = "c"\n[node]\nname = "n7"')
    environment = os.environ | {"LD_LIBRARY_PATH": str(simgpu.library_dir()), "SIMGPU_SCENARIO": str(scenario)}
    command = [sys.executable, "-m", "slurmgpu", "gpus", "--local", "--config", str(tmp_path / "c.toml"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")


def test_local_inventory(tmp_path: Path) -> None:
    """Index, minor, PCI in one form, NUMA, modes, health, MIG under its parent, peers over switches and directly."""
    result = local(tmp_path, LOCAL, "--format", "json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["schema"] == "slurmgpu.gpus/1"
    by_uuid = {gpu["uuid"]: gpu for gpu in document["gpus"]}
    first, second, third, fourth, fifth = (by_uuid[simgpu.uuid("sim", i)] for i in range(5))
    assert [gpu["minor"] for gpu in (first, second, third, fourth)] == [0, 3, 2, 1]
    assert (fourth["pci_address"], fourth["numa_node"]) == ("00000001:af:00.0", -1)
    assert (second["health"], first["health"]) == ("replace", "ok")
    assert (fifth["mig_mode"], fifth["compute_mode"], fifth["persistence_mode"]) == ("on", "exclusive-process", "off")
    # 14 links to switches here and 16 or 17 there: the fewer; between 2 and 3 one link of their own besides.
    assert dict(zip(first["nvlink_peers"], first["nvlink_counts"], strict=True)) == {1: 14, 2: 14, 3: 14, 4: 14}
    assert dict(zip(third["nvlink_peers"], third["nvlink_counts"], strict=True)) == {0: 14, 1: 14, 3: 17, 4: 16}
    (instance,) = [gpu for gpu in document["gpus"] if gpu["parent_uuid"]]
    assert (instance["parent_uuid"], instance["memory_bytes"]) == (fifth["uuid"], 42949672960)
    assert (first["cluster"], first["node"], first["driver_version"], first["cuda_version"]) == (
        "c",
        "n7",
        "550.54.15",
        "12.4",
    )


def test_formats_say_the_same(tmp_path: Path) -> None:
    by_json = json.loads(local(tmp_path, LOCAL, "--format", "json").stdout)["gpus"]
    by_csv = list(csv.DictReader(io.StringIO(local(tmp_path, LOCAL, "--format", "csv").stdout)))
    by_ndjson = [json.loads(line) for line in local(tmp_path, LOCAL, "--format", "ndjson").stdout.splitlines()]
    assert list(by_csv[0]) == list(gpus.COLUMNS) == list(by_ndjson[0])
    for a, b, c in zip(by_json, by_csv, by_ndjson, strict=True):
        for name in set(gpus.COLUMNS) - {"first_seen", "last_seen"}:
            assert a[name] == c[name]
            assert str(listing.cell(a[name])) == b[name]


def test_text_fits_and_shows_the_links(tmp_path: Path) -> None:
    text = local(tmp_path, LOCAL).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "└ MIG 3g.40gb" in text
    assert "NVLinks" in text
    assert "No NVLink between GPUs." in local(tmp_path, ["gpus 2", "gpu * nvlinks=0"]).stdout


def test_gpus_that_do_not_answer_are_counted(tmp_path: Path) -> None:
    result = local(tmp_path, ["gpus 3", "lost 1 @0"], "--format", "ndjson")
    assert len(result.stdout.splitlines()) == 2
    assert "1 of 3 GPUs that the driver counts do not answer" in result.stderr


def test_no_driver_is_one_line(tmp_path: Path) -> None:
    result = local(tmp_path, ["fault * function=nvmlInit return=9"])
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "the kernel driver is not loaded" in result.stderr


@pytest.mark.parametrize("history", [False, True])
def test_a_gpu_that_moved(engine: Engine, history: bool) -> None:
    """Its identity stays, its place is the newest, and its history is kept."""
    modes = {"ecc": "on"}
    Writer(engine).write(
        making.head(0), [making.info("GPU-0", 1_000, modes=modes), making.info("GPU-1", 1_000, index=1)]
    )
    Writer(engine).write(making.head(0, "n2"), [making.info("GPU-0", 9_000, index=3, health="ok")])
    Writer(engine).write(making.head(1), [making.info("GPU-1", 5_000, index=1, nvlink_peers={"GPU-0": 4})])
    with engine.connect() as connection:
        found = gpus.from_store(connection, history=history)
        only = gpus.from_store(connection, nodes=["n2"], history=history)
    places = [(gpu.uuid, gpu.node, gpu.index, gpu.first_seen[17:19], gpu.last_seen[17:19]) for gpu in found]
    moved = ("GPU-0", "n2", 3, "09", "09")
    stayed = ("GPU-1", "n1", 1, "01", "05")
    assert set(places) == {moved, stayed, ("GPU-0", "n1", 0, "01", "01")} if history else {moved, stayed}
    assert [gpu.uuid for gpu in only] == ["GPU-0"]
    assert (
        gpus.render(found, Style(), links=True).count("GPUs") + gpus.render(found, Style(), links=True).count("1 GPU")
        >= 2
    )
