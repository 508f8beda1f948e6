"""The same readings with pynvml of several years, and with libraries that lack the newer functions."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simgpu

from slurmgpu.wire.records import Block, GpuInfo
from slurmgpu.wire.segment import read

BINDINGS = Path(sys.prefix) / "bindings"
VERSIONS = ["12.535.161", "12.575.51"]

WORLD = [
    "gpus 4",
    "gpu * gpu_util_pct=40 mem_used_bytes=12e9 power_mw=300000 sm_active_pct=33 nvlink_tx_kib=77 fabric_state=3",
    "gpu 1 mig_mode=1 ecc_unc_sram_volatile=2",
    "mig 1 gi=2 ci=0 memory_bytes=20e9 mem_used_bytes=3e9 sm_active_pct=5",
    "gpu 2 remap_pending=1 recovery_action=2",
]


def once(folder: Path, python_path: Path | None = None, library: Path | None = None) -> tuple[list[Any], list[Any]]:
    """What one reading gives: the inventory, and of each GPU the values and what is missing."""
    folder.mkdir()
    (folder / "c.toml").write_text(f'[node]\nname = "n"\nrun_dir = "{folder}/run"\nspool_dir = "{folder}/spool"')
    simgpu.Scenario(WORLD).write(folder / "scenario")
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(library or simgpu.library_dir()),
        "SIMGPU_SCENARIO": str(folder / "scenario"),
    }
    if python_path:
        environment["PYTHONPATH"] = str(python_path)
    command = [sys.executable, "-m", "slurmgpu.node.main", "--once", "--config", str(folder / "c.toml")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    records = [record for path in (folder / "spool").glob("*.seg") for record in read(path)[1]]
    infos = [(i.uuid, i.index, i.minor, i.name, i.memory_bytes, i.parent) for i in records if isinstance(i, GpuInfo)]
    blocks = [
        (
            b.gpu,
            {name: (s.min, s.max) for name, s in b.stats.items()},
            {m: cause for m, (cause, _) in b.missing.items()},
        )
        for b in records
        if isinstance(b, Block)
    ]
    return infos, blocks


@pytest.mark.parametrize("version", VERSIONS)
def test_bindings_give_the_same(version: str, tmp_path: Path) -> None:
    folder = BINDINGS / version
    assert folder.is_dir(), "run contrib/dev/setup.sh test"
    code = "import pynvml, sys; sys.exit(not pynvml.__file__.startswith(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(folder)], env={**os.environ, "PYTHONPATH": str(folder)}, check=True)
    assert once(tmp_path / "old", folder) == once(tmp_path / "new")


@pytest.mark.parametrize("variant", ["R450", "R510", "R535"])
def test_older_libraries_lack_readings_and_nothing_else(variant: str, tmp_path: Path) -> None:
    """Without the newer symbols the daemon runs, the older calls serve, and what is not there is said to be missing."""
    infos, blocks = once(tmp_path / "old", library=simgpu.library_dir(variant))
    new_infos, new_blocks = once(tmp_path / "new")
    assert infos == new_infos
    for (gpu, values, missing), (new_gpu, new_values, _) in zip(blocks, new_blocks, strict=True):
        assert gpu == new_gpu
        assert set(values) <= set(new_values)
        for name in ("gpu_util_pct", "power_mw", "sm_clock_mhz", "temperature_c"):
            assert values.get(name) == new_values.get(name)
        assert set(new_values) - set(values) <= set(missing)
    plain = blocks[0]
    lacks = {"R450": {"sm_active_pct", "mem_reserved_bytes", "fabric_state"}, "R510": {"sm_active_pct", "fabric_state"}}
    assert {
        name for name in lacks.get(variant, {"fabric_state"}) if plain[2].get(name) != "FUNCTION_NOT_FOUND"
    } == set()
