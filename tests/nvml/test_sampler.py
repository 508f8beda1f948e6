"""The sampler against drivers that misbehave: a reading is right, or not available with its cause."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import simgpu

CODE = """
import json, sys, time
from slurmgpu.node.nvml import Gate
from slurmgpu.node.readings import Tier, discover
from slurmgpu.node.sampler import Sampler
gate = Gate(); sampler = Sampler(gate, discover()); sampler.open()
names = [m.name for m in sampler.metrics]
out = []
for round_ in range(3):
    for gpu in sampler.gpus:
        answered = sampler.sample(gpu, tuple(Tier))
        out.append([answered, dict(zip(names, gpu.row)), dict(gpu.causes)])
    time.sleep(0.12)
print(json.dumps([gpu.device.name for gpu in sampler.gpus])); print(json.dumps(out))
"""


def rounds(tmp_path: Path, *lines: str | bytes) -> tuple[list[str], list[list[Any]]]:
    """Three rounds of one GPU: (answered, values, causes) each."""
    text = b"gpus 1\n" + b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n"
    (tmp_path / "scenario").write_bytes(text)
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(simgpu.library_dir()),
        "SIMGPU_SCENARIO": str(tmp_path / "scenario"),
        "SIMGPU_CALLLOG": str(tmp_path / "calls"),
    }
    result = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    names, out = result.stdout.splitlines()
    return json.loads(names), json.loads(out)


def test_every_reading_has_its_own_number(tmp_path: Path) -> None:
    """What the scenario sets is what each metric reads, in its own unit."""
    given = {
        "gpu_util_pct": ("gpu_util_pct", 11),
        "mem_util_pct": ("mem_util_pct", 12),
        "enc_util_pct": ("enc_util_pct", 13),
        "dec_util_pct": ("dec_util_pct", 14),
        "mem_used_bytes": ("mem_used_bytes", 15),
        "power_mw": ("power_mw", 17),
        "mem_reserved_bytes": ("mem_reserved_bytes", 16),
        "power_limit_mw": ("power_limit_mw", 18),
        "power_instant_mw": ("power_instant_mw", 19),
        "temperature_c": ("temperature_c", 20),
        "mem_temperature_c": ("mem_temperature_c", 21),
        "temperature_margin_c": ("temperature_margin_c", 22),
        "sm_clock_mhz": ("sm_clock_mhz", 23),
        "mem_clock_mhz": ("mem_clock_mhz", 24),
        "clocks_event_reasons": ("event_reasons", 25),
        "violation_power_ns": ("violation_power_ns", 26),
        "violation_power_brake_ns": ("violation_power_brake_ns", 27),
        "ecc_corrected_volatile": ("ecc_corrected_volatile", 28),
        "ecc_uncorrected_aggregate": ("ecc_uncorrected_aggregate", 29),
        "ecc_sram_uncorrected_volatile": ("ecc_unc_sram_volatile", 30),
        "ecc_dram_corrected_volatile": ("ecc_cor_dram_volatile", 31),
        "remap_uncorrected_rows": ("remap_uncorrected", 32),
        "remap_pending": ("remap_pending", 1),
        "sram_threshold_exceeded": ("sram_threshold_exceeded", 1),
        "pcie_generation": ("pcie_gen", 4),
        "pcie_width_lanes": ("pcie_width", 8),
        "pcie_replays": ("pcie_replays", 33),
        "pcie_tx_bytes": ("pcie_tx_bytes", 34),
        "nvlink_tx_kib": ("nvlink_tx_kib", 36),
        "nvlink_active_links": ("nvlinks", 6),
        "nvlink_crc_errors": ("nvlink_crc_errors", 37),
        "recovery_action": ("recovery_action", 2),
        "fabric_state": ("fabric_state", 3),
        "fabric_status": ("fabric_status", 5),
        "compute_mode": ("compute_mode", 3),
        "persistence_mode": ("persistence", 0),
        "ecc_mode": ("ecc_mode", 0),
    }
    _, out = rounds(tmp_path, "gpu 0 " + " ".join(f"{key}={value}" for key, value in given.values()))
    _, values, causes = out[-1]
    assert {name: values[name] for name in given} == {name: value for name, (_, value) in given.items()}
    assert not set(given) & set(causes)


def test_activity_is_in_hundredths(tmp_path: Path) -> None:
    _, out = rounds(tmp_path, "gpu 0 sm_active_pct=12.34 tensor_active_pct=0 dram_active_pct=na gpm_nvlink_tx_mibps=7")
    assert out[0][2]["sm_active_pct"] == "NO_DATA"  # it takes two samples
    values = out[-1][1]
    assert (values["sm_active_pct"], values["tensor_active_pct"], values["gpm_nvlink_tx_mibps"]) == (1234, 0, 700)
    assert values["dram_active_pct"] is None


def test_fields_that_add_are_read_from_zero(tmp_path: Path) -> None:
    """Each call begins with a fresh copy of the structures: 10, 10, 10 and not 10, 20, 30."""
    _, out = rounds(tmp_path, "gpu 0 power_instant_mw=10", "fault 0 function=* field=186 add=1")
    assert [values["power_instant_mw"] for _, values, _ in out] == [10, 10, 10]


def test_a_type_that_does_not_exist_gives_no_number(tmp_path: Path) -> None:
    _, out = rounds(tmp_path, "gpu 0 power_instant_mw=10", "fault 0 function=* field=186 type=9")
    assert out[-1][1]["power_instant_mw"] is None


@pytest.mark.parametrize("code", [2, 3, 4, 13, 22, 25, 26])
def test_what_is_not_there_is_not_asked_again(tmp_path: Path, code: int) -> None:
    _, out = rounds(tmp_path, f"fault 0 function=nvmlDeviceGetPowerUsage return={code}")
    assert [values["power_mw"] for _, values, _ in out] == [None] * 3
    assert out[-1][2]["power_mw"] not in ("", "UNKNOWN")
    calls = (tmp_path / "calls").read_text()
    assert calls.count(" nvmlDeviceGetPowerUsage ") == 1
    assert calls.count(" nvmlDeviceGetTotalEnergyConsumption ") == 3


@pytest.mark.parametrize("code", [6, 7, 8, 10, 11, 17, 19, 20, 21, 23, 27, 29, 999, 77])
def test_what_may_pass_is_asked_again(tmp_path: Path, code: int) -> None:
    _, out = rounds(tmp_path, f"fault 0 function=nvmlDeviceGetPowerUsage return={code}")
    assert [values["power_mw"] for _, values, _ in out] == [None] * 3
    assert (tmp_path / "calls").read_text().count(" nvmlDeviceGetPowerUsage ") == 3


@pytest.mark.parametrize(("line", "cause"), [("lost 0 @0", "GPU_IS_LOST"), ("reset_required 0 @0", "RESET_REQUIRED")])
def test_a_lost_gpu_is_left_alone(tmp_path: Path, line: str, cause: str) -> None:
    code = 15 if cause == "GPU_IS_LOST" else 16
    _, out = rounds(tmp_path, f"fault 0 function=nvmlDeviceGetUtilizationRates return={code}")
    assert [answered for answered, _, _ in out] == [False] * 3
    assert (tmp_path / "calls").read_text().count(" nvmlDeviceGetUtilizationRates ") == 1
    assert set(out[0][2].values()) >= {cause}


def test_a_board_without_links_and_one_before_ampere(tmp_path: Path) -> None:
    older = "gpu 0 nvlinks=0 remap_pending=na remap_uncorrected=na retired_dbe=3 retired_pending=1 gpm_supported=0"
    _, out = rounds(tmp_path, older)
    _, values, causes = out[-1]
    assert values["nvlink_active_links"] is None
    assert causes["nvlink_active_links"] == causes["remap_pending"] == causes["sm_active_pct"] == "NOT_SUPPORTED"
    assert (values["retired_pages_double_bit"], values["retired_pending"]) == (3, 1)


def test_links_and_errors_of_other_generations(tmp_path: Path) -> None:
    """Blackwell counts its links by other names; before Ampere errors are told by cache."""
    newer = "gpu 0 nvlink_tx_bytes=9 nvlink_recoveries_failed=2 nvlink_symbol_errors=3"
    _, out = rounds(tmp_path, newer, "gpu 0 nvlink_crc_errors=na nvlink_tx_kib=na ecc_unc_l2_volatile=4")
    _, values, causes = out[-1]
    names = ("nvlink_tx_bytes", "nvlink_recoveries_failed", "nvlink_symbol_errors", "ecc_l2_uncorrected_volatile")
    assert [values[name] for name in names] == [9, 2, 3, 4]
    assert causes["nvlink_crc_errors"] == causes["nvlink_tx_kib"] == "NOT_SUPPORTED"


def test_processes_are_counted_with_memory_and_share(tmp_path: Path) -> None:
    mine = os.getpid()
    _, out = rounds(tmp_path, f"process 0 pid={mine} mem_bytes=1000 sm=40", "process 0 pid=4194304 mem_bytes=5 sm=9")
    values = out[0][1]
    names = ("compute_processes", "graphics_processes", "processes_mem_bytes", "processes_sm_util_pct")
    assert [values[name] for name in names] == [1, 0, 1000, 40]


def test_a_name_that_is_not_utf8_is_no_crash(tmp_path: Path) -> None:
    names, _ = rounds(tmp_path, b'gpu 0 name="A\xff\xfeB"')
    assert names == ["A\ufffd\ufffdB"]
