"""Process lists through the real library: every trap of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import simgpu

CODE = """
import json, sys
from pathlib import Path
from slurmgpu.node.nvml import Gate
from slurmgpu.node.processes import ProcessLists
gate = Gate(); gate.open(); devices, _ = gate.devices()
lists = ProcessLists(gate, devices[0], Path(sys.argv[1]))
code, found = lists.processes()
uses = lists.uses()
print(json.dumps([code, None if found is None else [[p.pid, p.kind, p.mem_bytes] for p in found],
                  [[u.pid, u.sm_util_pct] for u in uses], [[u.pid] for u in lists.uses()]]))
"""


def ask(tmp_path: Path, lines: list[str], alive: list[int], variant: str | None = None) -> list[object]:
    """(code, processes, shares, shares again) of GPU 0, on a host where these pids run."""
    import json

    for pid in alive:
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
    scenario = simgpu.Scenario(["clock frozen 5", *lines]).write(tmp_path / "scenario")
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(simgpu.library_dir(variant)),
        "SIMGPU_SCENARIO": str(scenario),
    }
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("variant", [None, "R450"])
def test_all_kinds(tmp_path: Path, variant: str | None) -> None:
    """Compute, graphics and MPS; memory that is not available is None; ended pids are dropped."""
    lines = [
        "process 0 pid=11 mem_bytes=1000 sm=60 mem=5",
        "process 0 pid=12 mem_bytes=na sm=30",
        "process 0 pid=13 mem_bytes=7 type=graphics",
        "process 0 pid=14 mem_bytes=8 type=mps",
        "process 0 pid=99 mem_bytes=9",
    ]
    code, found, uses, again = ask(tmp_path, lines, [11, 12, 13, 14], variant)
    assert code == 0
    assert found == [[11, "compute", 1000], [12, "compute", None], [13, "graphics", 7], [14, "mps", 8]]
    assert [11, 60] in uses  # type: ignore[operator]
    assert again == []  # nothing newer than what was seen


def test_more_than_the_buffer_holds(tmp_path: Path) -> None:
    pids = list(range(100, 250))
    lines = [f"process 0 pid={pid} mem_bytes=1" for pid in pids]
    code, found, _, _ = ask(tmp_path, lines, pids)
    assert code == 0
    assert [pid for pid, _, _ in found] == pids  # type: ignore[attr-defined, misc]


@pytest.mark.parametrize("pid", [0, 4294967295])
def test_a_scrambled_list_is_not_believed_at_all(tmp_path: Path, pid: int) -> None:
    _, found, _, _ = ask(tmp_path, ["process 0 pid=11 mem_bytes=1", f"process 0 pid={pid} mem_bytes=1"], [11])
    assert found is None


def test_a_list_of_pids_that_do_not_exist_is_not_believed(tmp_path: Path) -> None:
    _, found, _, _ = ask(tmp_path, ["process 0 pid=11 mem_bytes=1"], [])
    assert found is None


def test_no_process_is_no_error(tmp_path: Path) -> None:
    assert ask(tmp_path, [], [])[:3] == [0, [], []]


def test_shares_above_100_and_of_the_dead_are_dropped(tmp_path: Path) -> None:
    lines = [
        "process 0 pid=11 sm=101 mem_bytes=1",
        "process 0 pid=12 sm=100 mem_bytes=1",
        "process 0 pid=13 sm=5 mem_bytes=1",
    ]
    _, _, uses, _ = ask(tmp_path, lines, [11, 12])
    assert uses == [[12, 100]]


def test_not_supported_is_told(tmp_path: Path) -> None:
    faults = [
        f"fault 0 function=nvmlDeviceGet{w}RunningProcesses return=3" for w in ("Compute", "Graphics", "MPSCompute")
    ]
    assert ask(tmp_path, faults, [])[0] == 3
