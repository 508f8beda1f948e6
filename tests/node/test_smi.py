"""nvidia-smi as a fallback: every form of "no value", and only while NVML cannot be used."""

from pathlib import Path

import pytest
import simgpu
from processes import wait_for

from slurmgpu.node import smi
from slurmgpu.node.smi import SmiError
from slurmgpu.wire.records import Block, GpuInfo
from tests.node.test_daemon import Node, node

__all__ = ["node"]

UUIDS = [f"GPU-0000000{n}-aaaa-bbbb-cccc-00000000000{n}" for n in range(4)]


def program(folder: Path, body: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def row(number: int, *cells: str) -> str:
    """index, uuid, serial, bus id, driver, memory.total, then util, mem util, mem used, power, temp, sm, mem, name."""
    identity = f"{number}, {UUIDS[number]}, 165, 00000000:{number + 1:02X}:00.0, 550.54.15, 81559"
    return (
        ", ".join([identity, *(cells or ("35", "12", "1024", "301.55", "51", "1755", "2619"))]) + ", NVIDIA H100, 80GB"
    )


def test_a_row_with_a_comma_in_the_name(tmp_path: Path) -> None:
    (gpu,) = smi.query(program(tmp_path, f'echo "{row(2)}"'), tmp_path)
    assert (gpu.device.index, gpu.device.uuid, gpu.device.name) == (2, UUIDS[2], "NVIDIA H100, 80GB")
    assert (gpu.device.pci_address, gpu.driver_version, gpu.memory_bytes) == (
        "00000000:03:00.0",
        "550.54.15",
        81559 << 20,
    )
    assert gpu.values == {
        "gpu_util_pct": 35,
        "mem_util_pct": 12,
        "mem_used_bytes": 1 << 30,
        "power_mw": 301550,
        "temperature_c": 51,
        "sm_clock_mhz": 1755,
        "mem_clock_mhz": 2619,
    }


@pytest.mark.parametrize(
    "cell",
    ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "[GPU requires reset]", "ERR!", "-", "",
     "[Requested functionality has been deprecated]", "[Insufficient Permissions]", "12.5 W", "nan", "-3", "1e3"],
)  # fmt: skip
def test_what_is_no_plain_number_is_not_available(tmp_path: Path, cell: str) -> None:
    line = row(0, "35", cell, "1024", cell, cell, "1755", cell)
    (gpu,) = smi.query(program(tmp_path, f"cat <<'E'\n{line}\nE"), tmp_path)
    assert gpu.values == {"gpu_util_pct": 35, "mem_used_bytes": 1 << 30, "sm_clock_mhz": 1755}


def test_decimal_comma_is_refused_and_not_misread(tmp_path: Path) -> None:
    """Another locale's 301,55 shifts the row by a cell: nothing of it may become a reading."""
    (gpu,) = smi.query(
        program(tmp_path, f'echo "{row(0, "35", "12", "1024", "301", "55", "51", "1755", "2619")}"'), tmp_path
    )
    assert gpu.values["power_mw"] == 301_000 or "power_mw" not in gpu.values
    asked = program(tmp_path, 'echo "$LC_ALL" >&2; exit 1')
    with pytest.raises(SmiError, match=r"^C$"):
        smi.query(asked, tmp_path)


def test_sentences_cut_rows_and_strangers_are_passed_over(tmp_path: Path) -> None:
    text = "\n".join(
        [row(0), "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.", row(2)[:60],
         "2, [N/A], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, x", row(3)]
    )  # fmt: skip
    found = smi.query(program(tmp_path, f"cat <<'E'\n{text}\nE\nexit 15"), tmp_path)
    assert [gpu.device.index for gpu in found] == [0, 3]


def test_an_unknown_field_is_left_out(tmp_path: Path) -> None:
    """An nvidia-smi without clocks.mem refuses the whole query; it is asked again without."""
    body = f"""case "$1" in
*clocks.mem*) echo 'Field "clocks.mem" is not a valid field to query.'; exit 2 ;;
*) echo "{row(1, "35", "12", "1024", "301.55", "51", "1755")}" ;;
esac"""
    (gpu,) = smi.query(program(tmp_path, body), tmp_path)
    assert "mem_clock_mhz" not in gpu.values
    assert gpu.values["sm_clock_mhz"] == 1755


def test_minor_number_comes_from_the_driver(tmp_path: Path) -> None:
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 5\n")
    (gpu,) = smi.query(program(tmp_path, f'echo "{row(0)}"'), tmp_path)
    assert gpu.device.minor == 5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
            "communicate",
        ),
        ("exit 255", "printed nothing"),
        ("echo 'No devices were found'", "No devices were found"),
    ],
)
def test_no_gpu_is_an_error_with_its_words(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(SmiError, match=words):
        smi.query(program(tmp_path, body), tmp_path)


def test_a_program_that_hangs_meets_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "DEADLINE_S", 0.2)
    with pytest.raises(SmiError, match=r"not answered for 0\.2 s"):
        smi.query(program(tmp_path, "exec sleep 60"), tmp_path)


def test_fallback_gives_inventory_and_basic_readings(node: Node) -> None:
    """What nvidia-smi tells becomes blocks of the job that holds the GPU; what it does not tell is missing."""
    from slurmgpu.node.clock import SystemClock
    from slurmgpu.node.fallback import Fallback
    from slurmgpu.node.readings import discover

    script = program(node.folder, f'echo "{row(0)}"; echo "{row(1, "0", "0", "[N/A]", "[N/A]", "40", "345", "2619")}"')
    metrics = [metric for reading in discover() for metric in reading.metrics]
    fallback = Fallback(metrics, SystemClock.__new__(SystemClock), lambda: smi.query(script, node.folder))
    wait_for("the first answer", 10, lambda: fallback.sample(0.0, lambda uuid: ("7@1",)))
    records = fallback.take()
    assert [record.uuid for record in records if isinstance(record, GpuInfo)] == UUIDS[:2]
    blocks = {record.gpu: record for record in records if isinstance(record, Block)}
    assert blocks[UUIDS[0]].owners == ("7@1",)
    assert blocks[UUIDS[0]].stats["power_mw"].max == 301_550
    assert blocks[UUIDS[1]].missing["mem_used_bytes"] == ("NVML_NOT_USABLE", 1)


def test_daemon_says_once_why_nvml_is_not_used(node: Node) -> None:
    simgpu.Scenario(["fault * function=nvmlInit return=18"]).write(node.scenario)
    node.start()
    wait_for("the words", 10, lambda: "nvidia-smi" in node.said())
    simgpu.Scenario(["gpus 4"]).write(node.scenario)
    wait_for("NVML again", 20, lambda: node.blocks(0))
    assert node.stop() == 0
    assert node.said().count("LIB_RM_VERSION_MISMATCH") == 1
    assert "reboot, or load the module anew" in node.said()


def test_backend_nvml_reports_an_error(node: Node) -> None:
    node.settings(interval=0.1, flush=1)
    node.config.write_text(node.config.read_text() + '\nbackend = "nvml"')
    simgpu.Scenario(["fault * function=nvmlInit return=9"]).write(node.scenario)
    node.start()
    wait_for("the error", 10, lambda: 'node.backend = "nvml" allows nothing else' in node.said())
    assert node.stop() == 0
    assert "nvidia-smi" not in node.said()
