"""The simulated library through the real pynvml: it says what the scenario says, and fails as it is told to."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import simgpu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nvml.conftest import Client

Refused = Callable[[Client, str], int]
BIN = Path(sys.executable).parent


def test_identity(client: Client) -> None:
    client.world("gpus 3", 'gpu 1 minor=5 name="My GPU" serial=na pci=00000001:AF:00.0')
    assert client("n.nvmlDeviceGetCount()") == 3
    assert client("[n.nvmlDeviceGetUUID(h(i)) for i in range(3)]") == [simgpu.uuid("sim", i) for i in range(3)]
    assert client("[n.nvmlDeviceGetMinorNumber(h(i)) for i in range(3)]") == [0, 5, 2]
    assert client("n.nvmlDeviceGetPciInfo(h(1)).domain") == 1
    assert client("n.nvmlDeviceGetPciInfo(h(1)).bus") == 0xAF
    assert client("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('0001:af:00.0'))") == 1
    assert client("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h(2))))") == 2


def test_pci_addresses(client: Client, refused: Refused) -> None:
    """All of the address must fit; the older calls fill their own, smaller structure and not a byte more."""
    for wrong in (":00.0", "00.0", "", "0001:0f:00.0"):
        assert refused(client, f"n.nvmlDeviceGetHandleByPciBusId({wrong!r}) and None") == 6
    for good in ("0000:0F:00.0", "00000000:0f:00.0"):
        assert client(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId({good!r}))") == 0
    for function in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2"):
        client("held.update(b=n.create_string_buffer(b'~' * 256, 256))")
        assert client(f"n.nvmlLib.{function}(h(0), held['b'])") == 0
        size = client("n.sizeof(n.nvmlPciInfo_v2_t)")
        assert client(f"[held['b'].raw.rstrip(b'~').__len__() <= {size}, held['b'].value.decode()]") == [
            True,
            "0000:0F:00.0",
        ]


def test_values_follow_the_steps(client: Client) -> None:
    for now, busy, memory in ((0, 3, 10), (4.999, 3, 10), (5, 90, 20), (100, 0, 20)):
        client.world(
            f"clock frozen {1000 + now}",
            "gpu 2 gpu_util_pct=3 mem_used_bytes=10",
            "gpu * @5 gpu_util_pct=90 mem_used_bytes=20",
            "gpu 2 @60 gpu_util_pct=0",
            epoch=1000,
        )
        assert client("n.nvmlDeviceGetUtilizationRates(h(2)).gpu") == busy
        assert client("n.nvmlDeviceGetMemoryInfo(h(2), version=n.nvmlMemory_v2).used") == memory


def test_every_key_has_a_reading_of_its_own(client: Client) -> None:
    """Each simple reading answers with the number that the scenario gave, through pynvml's own structures."""
    client.world(
        "gpu 0 power_mw=1 power_limit_mw=2 temperature_c=3 sm_clock_mhz=4 mem_clock_mhz=5 gr_clock_mhz=6 fan_pct=7",
        "gpu 0 pcie_gen=8 pcie_width=9 pcie_replays=10 event_reasons=11 enc_util_pct=12 dec_util_pct=13 pstate=14",
        "gpu 0 mem_util_pct=15 numa=16 ecc_uncorrected_volatile=17 cc_major=18 cc_minor=19 mem_temperature_c=20",
    )
    found = client(
        "[n.nvmlDeviceGetPowerUsage(h(0)), n.nvmlDeviceGetEnforcedPowerLimit(h(0)),"
        "n.nvmlDeviceGetTemperature(h(0), 0),"
        "n.nvmlDeviceGetClockInfo(h(0), 1), n.nvmlDeviceGetClockInfo(h(0), 2), n.nvmlDeviceGetClockInfo(h(0), 0),"
        "n.nvmlDeviceGetFanSpeed(h(0)), n.nvmlDeviceGetCurrPcieLinkGeneration(h(0)),"
        "n.nvmlDeviceGetCurrPcieLinkWidth(h(0)), n.nvmlDeviceGetPcieReplayCounter(h(0)),"
        "n.nvmlDeviceGetCurrentClocksEventReasons(h(0)), n.nvmlDeviceGetEncoderUtilization(h(0))[0],"
        "n.nvmlDeviceGetDecoderUtilization(h(0))[0], n.nvmlDeviceGetPerformanceState(h(0)),"
        "n.nvmlDeviceGetUtilizationRates(h(0)).memory, n.nvmlDeviceGetNumaNodeId(h(0)),"
        "n.nvmlDeviceGetTotalEccErrors(h(0), 1, 0), *n.nvmlDeviceGetCudaComputeCapability(h(0)),"
        "n.nvmlDeviceGetFieldValues(h(0), [82])[0].value.uiVal]"
    )
    assert found == list(range(1, 21))


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 700_000)), max_size=12),
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(sorted),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_energy_is_the_exact_integral(client: Client, steps: list[tuple[int, int]], span: list[int]) -> None:
    lines = [f"gpu 0 @{t / 4} power_mw={power}" for t, power in steps]
    found = []
    for quarter in span:
        scenario = client.world(f"clock frozen {quarter / 4}", *lines)
        found.append(client("n.nvmlDeviceGetTotalEnergyConsumption(h(0))"))
    assert abs(found[1] - found[0] - scenario.energy_mj(0, span[0] / 4, span[1] / 4)) <= 1


def test_energy_of_a_wave(client: Client) -> None:
    wave = "gpu 0 wave power_mw mean=400000 amplitude=300000 period=7 phase=0.3"
    client.world("clock frozen 3", wave)
    first = client("n.nvmlDeviceGetTotalEnergyConsumption(h(0))")
    scenario = client.world("clock frozen 12.5", wave)
    second = client("n.nvmlDeviceGetTotalEnergyConsumption(h(0))")
    assert second - first == pytest.approx(scenario.energy_mj(0, 3, 12.5), abs=1)
    assert client("n.nvmlDeviceGetPowerUsage(h(0))") == pytest.approx(scenario.value(0, "power_mw", 12.5), abs=1)


def test_energy_counter_begins_anew(client: Client) -> None:
    client.world("clock frozen 30", "gpu 0 power_mw=1000", "energy_reset 0 @25")
    assert client("n.nvmlDeviceGetTotalEnergyConsumption(h(0))") == 5000


def test_faster_clock(client: Client) -> None:
    start = time.time()
    client.world(f"clock scale 1000 {start} 0", "gpu 0 power_mw=1000")
    seconds = client("n.nvmlDeviceGetTotalEnergyConsumption(h(0))") / 1000
    assert seconds == pytest.approx((time.time() - start) * 1000, abs=500)


class TestFaults:
    """Faults are switched on and off under a running client."""

    def test_any_function_returns_any_code(self, client: Client, refused: Refused) -> None:
        client.world("fault 3 function=nvmlDeviceGetPowerUsage return=3")
        assert refused(client, "n.nvmlDeviceGetPowerUsage(h(3))") == 3
        assert client("n.nvmlDeviceGetPowerUsage(h(2))") == 71_000
        client.world()
        assert client("n.nvmlDeviceGetPowerUsage(h(3))") == 71_000

    def test_version_suffix_is_matched(self, client: Client, refused: Refused) -> None:
        client.world("fault * function=nvmlDeviceGetMemoryInfo return=999")
        assert refused(client, "n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2)") == 999

    def test_a_gpu_that_cannot_be_found(self, client: Client, refused: Refused) -> None:
        """A fault of one GPU meets the calls that find it, whichever way; other GPUs are found."""
        uuid, pci = client("[n.nvmlDeviceGetUUID(h(3)), n.nvmlDeviceGetPciInfo(h(3)).busId]")
        client.world("fault 3 function=* return=999")
        assert refused(client, "h(3)") == 999
        assert refused(client, f"n.nvmlDeviceGetHandleByUUID({uuid!r}) and None") == 999
        assert refused(client, f"n.nvmlDeviceGetHandleByPciBusId({pci!r}) and None") == 999
        assert client("n.nvmlDeviceGetIndex(h(2))") == 2

    def test_a_fault_meets_the_instances_of_its_gpu_only(self, client: Client, refused: Refused) -> None:
        instances = ["gpu 0,1 mig_mode=1", "mig 0 gi=1 ci=0", "mig 1 gi=1 ci=0"]
        client.world(*instances)
        client("held.update(m=[n.nvmlDeviceGetMigDeviceHandleByIndex(h(i), 0) for i in (0, 1)])")
        client.world(*instances, "fault 0 function=nvmlDeviceGetGpuInstanceId return=999")
        assert refused(client, "n.nvmlDeviceGetGpuInstanceId(held['m'][0])") == 999
        assert client("n.nvmlDeviceGetGpuInstanceId(held['m'][1])") == 1

    def test_init_fails(self, tmp_path: Path, refused: Refused) -> None:
        simgpu.Scenario(["fault * function=nvmlInit return=9"]).write(tmp_path / "s")
        fresh = Client(tmp_path / "s")
        assert refused(fresh, "n.nvmlInit()") == 9
        fresh.world()
        assert fresh("n.nvmlInit()") is None
        fresh.close()

    def test_not_supported_by_value(self, client: Client, refused: Refused) -> None:
        client.world("gpu 0 energy_mj=na", "gpu 1 numa=-1")
        assert refused(client, "n.nvmlDeviceGetTotalEnergyConsumption(h(0))") == 3
        assert refused(client, "n.nvmlDeviceGetNumaNodeId(h(1))") == 3

    def test_lost_gpu_still_says_who_it_is(self, client: Client, refused: Refused) -> None:
        client("held.update(d=h(2))")
        client.world("clock frozen 50", "lost 2 @40")
        assert refused(client, "n.nvmlDeviceGetUtilizationRates(held['d'])") == 15
        assert refused(client, "h(2)") == 15
        assert client("n.nvmlDeviceGetUUID(held['d'])") == simgpu.uuid("sim", 2)
        assert client("n.nvmlDeviceGetCount()") == 8
        client.world("clock frozen 30", "lost 2 @40")
        assert client("n.nvmlDeviceGetUtilizationRates(held['d']).gpu") == 0

    def test_gone_gpu_is_no_longer_counted(self, client: Client) -> None:
        client.world("clock frozen 1", "gone 1 @0")
        assert client("n.nvmlDeviceGetCount()") == 7
        assert client("n.nvmlDeviceGetUUID(h(1))") == simgpu.uuid("sim", 2)

    def test_reset_required(self, client: Client, refused: Refused) -> None:
        client.world("clock frozen 1", "reset_required 0 @0")
        assert refused(client, "n.nvmlDeviceGetPowerUsage(h(0))") == 16

    def test_latency(self, client: Client) -> None:
        client.world("fault 0 function=nvmlDeviceGetPowerUsage sleep_us=50000")
        start = time.monotonic()
        client("n.nvmlDeviceGetPowerUsage(h(0))")
        assert time.monotonic() - start >= 0.05

    def test_hang_ends_when_the_scenario_says_so(self, client: Client) -> None:
        client.world("fault 4 function=nvmlDeviceGetPowerUsage hang=forever")
        client.send("n.nvmlDeviceGetPowerUsage(h(4))")
        simgpu.Scenario([]).write(client.scenario)
        assert client.receive() == 71_000

    def test_hang_ends_after_its_time(self, client: Client) -> None:
        client.world("fault 4 function=nvmlDeviceGetPowerUsage hang=0.3")
        start = time.monotonic()
        assert client("n.nvmlDeviceGetPowerUsage(h(4))") == 71_000
        assert time.monotonic() - start >= 0.3

    def test_one_field_fails_in_a_call_that_succeeds(self, client: Client) -> None:
        client.world("fault 0 function=* field=186 return=999")
        expression = "[(f.nvmlReturn, f.value.uiVal) for f in n.nvmlDeviceGetFieldValues(h(0), [185, 186, 9999])]"
        first, second, third = client(expression)
        assert first == [0, 71_000]
        assert (second[0], third[0]) == (999, 3)

    def test_abort_ends_the_process(self, client: Client) -> None:
        client.world("fault 0 function=nvmlDeviceGetPowerUsage abort")
        with pytest.raises(EOFError):
            client("n.nvmlDeviceGetPowerUsage(h(0))")

    def test_fault_for_a_time(self, client: Client, refused: Refused) -> None:
        fault = "fault 0 function=nvmlDeviceGetPowerUsage return=999 @10..20"
        for now, code in ((9, None), (10, 999), (19, 999), (20, None)):
            client.world(f"clock frozen {now}", fault)
            if code is None:
                assert client("n.nvmlDeviceGetPowerUsage(h(0))") == 71_000
            else:
                assert refused(client, "n.nvmlDeviceGetPowerUsage(h(0))") == code

    def test_forked_child_is_not_initialised(self, client: Client) -> None:
        child = (
            "__import__('os').waitstatus_to_exitcode(__import__('os').waitpid((lambda p: p or __import__('os')._exit("
            "n.nvmlLib.nvmlDeviceGetCount_v2(__import__('ctypes').byref(__import__('ctypes').c_uint()))))"
            "(__import__('os').fork()), 0)[1])"
        )
        assert client(child) == 1
        assert client("n.nvmlDeviceGetCount()") == 8

    def test_processes(self, client: Client) -> None:
        client.world(
            "process 0 pid=42 name=train mem_bytes=1000 sm=70 mem=20",
            "process 0 pid=43 mem_bytes=na sm=5",
            "process 0 pid=44 type=graphics mem_bytes=7",
        )
        found = client("[(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))]")
        assert found == [[42, 1000], [43, None]]
        assert client("[p.pid for p in n.nvmlDeviceGetGraphicsRunningProcesses(h(0))]") == [44]
        assert client("[(p.pid, p.smUtil) for p in n.nvmlDeviceGetProcessUtilization(h(0), 0)]")[0] == [42, 70]
        assert client("n.nvmlDeviceGetComputeRunningProcesses(h(1))") == []

    def test_unknown_handle_and_use_after_shutdown(self, client: Client, refused: Refused) -> None:
        assert refused(client, "h(8)") == 2
        client("held.update(d=h(0))")
        client("n.nvmlShutdown()")
        assert refused(client, "n.nvmlDeviceGetPowerUsage(held['d'])") == 1


def test_mistake_in_the_file_is_told_and_changes_nothing(client: Client) -> None:
    client.world("gpu 0 power_mw=5")
    assert client("n.nvmlDeviceGetPowerUsage(h(0))") == 5
    for wrong in ("gpu 0 power_kw=5", "gpu 99 power_mw=1", "fault 0 return=3", "nonsense 1 2", "gpu 0 power_mw=x"):
        client.world("gpu 0 power_mw=6", wrong)
        assert client("n.nvmlDeviceGetPowerUsage(h(0))") == 5
    told = client.close()
    assert told.count("simgpu: ") == 5
    assert ":3: unknown key power_kw" in told


def test_a_file_that_changes_all_day_costs_no_memory(client: Client) -> None:
    resident = "int(open('/proc/self/statm').read().split()[1])"
    found = []
    for round_ in range(60):
        client.world(f"gpu 0 power_mw={round_}")
        assert client("n.nvmlDeviceGetPowerUsage(h(0))") == round_
        found.append(client(resident))
    pages_of_2_mib = (2 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert found[-1] - found[9] < pages_of_2_mib


def test_call_log(client: Client) -> None:
    client("n.nvmlDeviceGetPowerUsage(h(3))")
    log = client.scenario.with_name("calls").read_text().splitlines()
    assert log[-1].split()[2:] == ["nvmlDeviceGetPowerUsage", "3", "0"]


def test_every_function_of_pynvml_is_there(client: Client) -> None:
    source = Path(client("n.__file__")).read_text()
    names = sorted({part.split('"')[0] for part in source.split('_nvmlGetFunctionPointer("')[1:]})
    assert len(names) > 300
    missing = client(f"[name for name in {names!r} if not hasattr(n.nvmlLib, name)]")
    assert missing == []


@pytest.mark.parametrize("tool", ["gpustat", "nvitop"])
def test_other_tools_show_the_gpus(tool: str, tmp_path: Path) -> None:
    scenario = simgpu.Scenario(["gpus 4", "gpu 2 gpu_util_pct=73 mem_used_bytes=11e9"]).write(tmp_path / "s")
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(simgpu.library_dir()),
        "SIMGPU_SCENARIO": str(scenario),
        "COLUMNS": "120",
    }
    command = [str(BIN / tool), "--json"] if tool == "gpustat" else [str(BIN / tool), "-1", "--ascii", "--no-unicode"]
    command = command[:2] if tool == "nvitop" else command
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    if tool == "gpustat":
        gpus = json.loads(result.stdout)["gpus"]
        assert [gpu["uuid"] for gpu in gpus] == [simgpu.uuid("sim", i) for i in range(4)]
        assert (gpus[2]["utilization.gpu"], gpus[2]["memory.used"]) == (73, 10490)
    else:
        assert result.stdout.count("H100 80GB HBM3") == 4
        assert "73%" in result.stdout


class TestMore:
    """Memory errors, links, MIG, GPM and events."""

    def test_memory_errors(self, client: Client, refused: Refused) -> None:
        client.world(
            "gpu 0 ecc_unc_sram_volatile=3 ecc_cor_dram_aggregate=4",
            "gpu 0 remap_pending=1 remap_banks_none=2 remap_uncorrected=5",
            "gpu 1 retired_dbe=2 retired_sbe=0 retired_pending=1 remap_pending=na sram_threshold_exceeded=1",
        )
        assert client("n.nvmlDeviceGetMemoryErrorCounter(h(0), 1, 0, 7)") == 3
        assert client("n.nvmlDeviceGetMemoryErrorCounter(h(0), 0, 1, 2)") == 4
        assert refused(client, "n.nvmlDeviceGetMemoryErrorCounter(h(0), 0, 1, 0)") == 3
        assert client("n.nvmlDeviceGetRemappedRows(h(0))") == [0, 5, 1, 0]
        assert client("n.nvmlDeviceGetRowRemapperHistogram(h(0)).none") == 2
        assert refused(client, "n.nvmlDeviceGetRetiredPages(h(0), 1)") == 3
        assert len(client("n.nvmlDeviceGetRetiredPages(h(1), 1)")) == 2
        assert client("n.nvmlDeviceGetRetiredPagesPendingStatus(h(1))") == 1
        assert refused(client, "n.nvmlDeviceGetRemappedRows(h(1))") == 3
        status = "(lambda s: (n.nvmlDeviceGetSramEccErrorStatus(h(1), n.byref(s)), s.bThresholdExceeded)[1])"
        assert client(status + "(n.c_nvmlEccSramErrorStatus_v1_t())") == 1

    def test_links(self, client: Client, refused: Refused) -> None:
        client.world(
            "gpus 3", "nvlink 0 0 state=0", "nvlink 0 5 state=none", "nvlink 1 2 far=2", "gpu 0 nvlink_tx_kib=1800"
        )
        assert client("[n.nvmlDeviceGetNvLinkState(h(0), i) for i in (0, 1, 17)]") == [0, 1, 1]
        assert refused(client, "n.nvmlDeviceGetNvLinkState(h(0), 5)") == 3
        assert refused(client, "n.nvmlDeviceGetNvLinkState(h(0), 18)") == 2
        assert client("n.nvmlDeviceGetNvLinkRemoteDeviceType(h(0), 1)") == 2
        assert client("n.nvmlDeviceGetNvLinkRemoteDeviceType(h(1), 2)") == 0
        far = client("n.nvmlDeviceGetNvLinkRemotePciInfo(h(1), 2).busId")
        assert far == client("n.nvmlDeviceGetPciInfo(h(2)).busId")
        values = "[f.value.ullVal for f in n.nvmlDeviceGetFieldValues(h(0), [(138, 4294967295), (138, 3)])]"
        assert client(values) == [1800, 100]

    def test_mig(self, client: Client, refused: Refused) -> None:
        lines = [
            "gpu 1 mig_mode=1",
            "mig 1 gi=1 ci=0 profile=3g.40gb memory_bytes=40e9 mem_used_bytes=5e9 sm_active_pct=40",
            "mig 1 gi=2 ci=0 profile=1g.10gb memory_bytes=10e9 mem_used_bytes=1e9 @0..50",
        ]
        client.world("clock frozen 10", *lines)
        assert client("n.nvmlDeviceGetCount()") == 8
        assert client("n.nvmlDeviceGetMigMode(h(1))") == [1, 1]
        assert refused(client, "n.nvmlDeviceGetUtilizationRates(h(1))") == 3
        client("held.update(m=[n.nvmlDeviceGetMigDeviceHandleByIndex(h(1), i) for i in (0, 1)])")
        assert client("[n.nvmlDeviceGetGpuInstanceId(m) for m in held['m']]") == [1, 2]
        assert client("n.nvmlDeviceGetMemoryInfo(held['m'][0], version=n.nvmlMemory_v2).used") == 5_000_000_000
        assert client("n.nvmlDeviceGetUUID(held['m'][1])").startswith("MIG-")
        assert refused(client, "n.nvmlDeviceGetPowerUsage(held['m'][0])") == 3
        assert refused(client, "n.nvmlDeviceGetMigDeviceHandleByIndex(h(1), 2)") == 6
        client.world("clock frozen 60", *lines)  # the second instance was removed while its handle is held
        assert refused(client, "n.nvmlDeviceGetMemoryInfo(held['m'][1])") == 2
        assert refused(client, "n.nvmlDeviceGetMigDeviceHandleByIndex(h(1), 1)") == 6

    def test_gpm_is_the_mean_between_two_samples(self, client: Client) -> None:
        lines = ["gpu 0 sm_active_pct=10 tensor_active_pct=na", "gpu 0 @2 sm_active_pct=90"]
        client.world("clock frozen 1", *lines)
        client("held.update(a=n.nvmlGpmSampleAlloc(), b=n.nvmlGpmSampleAlloc())")
        client("n.nvmlGpmSampleGet(h(0), held['a']) and None")
        client.world("clock frozen 5", *lines)
        client("n.nvmlGpmSampleGet(h(0), held['b']) and None")
        client("held.update(g=n.c_nvmlGpmMetricsGet_t(version=1, numMetrics=2, sample1=held['a'], sample2=held['b']))")
        client("[setattr(held['g'].metrics[i], 'metricId', m) for i, m in enumerate((2, 5))] and None")
        client("n.nvmlGpmMetricsGet(held['g']) and None")
        assert client("[(m.nvmlReturn, m.value) for m in held['g'].metrics[:2]]") == [[0, 70.0], [3, 0.0]]

    def test_events_come_once_and_only_after_registration(self, client: Client, refused: Refused) -> None:
        lines = ["xid 2 @5 code=79", "xid 2 @15 code=31 gi=1 ci=0", "xid 3 @15 code=48"]
        client.world("clock frozen 10", *lines)
        client("held.update(s=n.nvmlEventSetCreate())")
        client("n.nvmlDeviceRegisterEvents(h(2), 8, held['s']) and None")
        assert refused(client, "n.nvmlDeviceRegisterEvents(h(2), 0x200, held['s'])") == 3
        assert refused(client, "n.nvmlEventSetWait_v2(held['s'], 20)") == 10
        client.world("clock frozen 20", *lines)
        event = "(lambda e: (e.eventType, e.eventData, e.gpuInstanceId))(n.nvmlEventSetWait_v2(held['s'], 20))"
        assert client(event) == [8, 31, 1]
        assert refused(client, "n.nvmlEventSetWait_v2(held['s'], 20)") == 10

    def test_events_that_repeat_and_a_wait_that_fails(self, client: Client, refused: Refused) -> None:
        """The same XID twice is two events; a storm comes one by one; the wait itself can report a loss."""
        lines = ["xid 2 @15 code=95"] * 50
        client.world("clock frozen 10", *lines)
        client("held.update(s=n.nvmlEventSetCreate())")
        client("n.nvmlDeviceRegisterEvents(h(2), 8, held['s']) and None")
        client.world("clock frozen 20", *lines)
        for _ in range(50):
            assert client("n.nvmlEventSetWait_v2(held['s'], 20).eventData") == 95
        assert refused(client, "n.nvmlEventSetWait_v2(held['s'], 20)") == 10
        client.world("clock frozen 20", "fault * function=nvmlEventSetWait return=15")
        assert refused(client, "n.nvmlEventSetWait_v2(held['s'], 20)") == 15

    def test_events_outlive_a_change_of_the_file(self, client: Client, refused: Refused) -> None:
        """What was given is not given again, and what was not is not lost, whatever stands before it in the file."""
        client.world("clock frozen 10")
        client("held.update(s=n.nvmlEventSetCreate())")
        client("[n.nvmlDeviceRegisterEvents(h(i), 8, held['s']) for i in range(8)] and None")
        client.world("clock frozen 20", "xid 2 @15 code=31", "xid 2 @16 code=43")
        wait = "n.nvmlEventSetWait_v2(held['s'], 20).eventData"
        assert client(wait) == 31
        client.world("clock frozen 20", "xid 5 @12 code=13", "xid 2 @15 code=31", "xid 2 @16 code=43")
        assert sorted([client(wait), client(wait)]) == [13, 43]
        assert refused(client, wait) == 10

    def test_counters_that_fall_jump_and_stand(self, client: Client) -> None:
        steps = ["gpu 0 pcie_replays=7 nvlink_tx_kib=900", "gpu 0 @5 pcie_replays=0", "gpu 0 @9 nvlink_tx_kib=1e15"]
        found = []
        for now in (1, 6, 10):
            client.world(f"clock frozen {now}", *steps)
            fields = "n.nvmlDeviceGetFieldValues(h(0), [(138, 4294967295)])[0].value.ullVal"
            found.append(client(f"[n.nvmlDeviceGetPcieReplayCounter(h(0)), {fields}]"))
        assert found == [[7, 900], [0, 900], [0, 10**15]]

    def test_fabric(self, client: Client, refused: Refused) -> None:
        client.world("gpu 0 fabric_state=2 fabric_status=4", "gpu 1 fabric_state=na")
        get = "(lambda f: (n.nvmlDeviceGetGpuFabricInfoV(h({}), n.byref(f)), f.state, f.status)[1:])"
        get += "(n.c_nvmlGpuFabricInfo_v3_t())"
        assert client(get.format(0)) == [2, 4]
        assert refused(client, get.format(1)) == 3


class TestFieldFaults:
    """A field that misbehaves inside a call that succeeds."""

    def test_adds_to_what_it_finds(self, client: Client) -> None:
        client.world("gpu 0 power_mw=10", "fault 0 function=* field=185 add=1")
        client("held.update(a=(n.c_nvmlFieldValue_t * 1)(n.c_nvmlFieldValue_t(fieldId=185)))")
        call = "n.nvmlLib.nvmlDeviceGetFieldValues(h(0), 1, held['a']) and 0 or held['a'][0].value.uiVal"
        assert [client(call) for _ in range(3)] == [10, 20, 30]

    def test_wrong_type_and_no_time(self, client: Client) -> None:
        client.world("fault 0 function=* field=185 type=0 timestamp=0")
        assert client("[(f.valueType, f.timestamp) for f in n.nvmlDeviceGetFieldValues(h(0), [185])]") == [[0, 0]]

    def test_a_name_that_is_not_utf8(self, client: Client) -> None:
        client.scenario.write_bytes(b'gpu 0 name="A\xff\xfeB"\n')
        client("time.sleep(0.02)")
        raw = "(lambda b: (n.nvmlLib.nvmlDeviceGetName(h(0), b, 96), b.value)[1] == b'A\\xff\\xfeB')"
        assert client(raw + "(n.create_string_buffer(96))") is True

    def test_a_hang_that_blocks_all(self, client: Client) -> None:
        """While one GPU's call hangs with the driver's lock, a call for another one waits, too."""
        client.world(
            "fault 0 function=nvmlDeviceGetPowerUsage hang=0.4 block=all",
            "fault 1 function=nvmlDeviceGetPowerUsage sleep_us=1 block=all",
        )
        client("held.update(p=__import__('threading').Thread(target=n.nvmlDeviceGetPowerUsage, args=(h(0),)))")
        client("held['p'].start()")
        client("time.sleep(0.1)")
        start = time.monotonic()
        client("n.nvmlDeviceGetPowerUsage(h(1))")
        assert time.monotonic() - start >= 0.2
        client("held['p'].join()")
