"""slurmgpud as a process, on the simulated driver."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import simgpu
from processes import wait_for

from slurmgpu.config import NodeConfig, Seconds
from slurmgpu.wire.records import Allocation, Block, Event, GpuInfo, Record
from slurmgpu.wire.segment import read

ROOT = Path(__file__).parent.parent.parent
INTERVAL_S = 0.1


class Node:
    """A node with a slurmgpud, its hooks and its spool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.config = folder / "c.toml"
        self.scenario = folder / "scenario"
        self.settings(interval=INTERVAL_S, flush=1)
        simgpu.Scenario(["gpus 4"]).write(self.scenario)
        self.process: subprocess.Popen[bytes] | None = None
        self.library = str(simgpu.library_dir())
        self.wrapper: tuple[str, ...] = ()

    def settings(self, **node: float) -> None:
        lines = [f"{name} = {value}" for name, value in node.items()]
        places = f'name = "n1"\nrun_dir = "{self.folder}/run"\nspool_dir = "{self.folder}/spool"'
        self.config.write_text("\n".join(['cluster = "c"', "[node]", places, *lines]))

    def command(self, *options: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "LD_LIBRARY_PATH": self.library, "SIMGPU_SCENARIO": str(self.scenario)}
        command = [*self.wrapper, sys.executable, "-m", "slurmgpu.node.main", "--config", str(self.config), *options]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=environment, stderr=log)

    def start(self) -> None:
        before = self.said().count("ready")
        self.process = self.command()
        wait_for("slurmgpud", 20, lambda: self.said().count("ready") > before or self.process.poll() is not None)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=20)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def hook(self, kind: str, job: int, gpus: str | None = None) -> None:
        environment = {"SLURM_JOB_ID": str(job), "SLURMGPU_RUN_DIR": str(self.folder / "run"), "SLURMD_NODENAME": "n1"}
        if gpus is not None:
            environment["SLURM_JOB_GPUS"] = gpus
        subprocess.run([str(ROOT / kind / "slurmgpu")], env=environment, check=True)

    def records(self) -> list[Record]:
        return [record for path in sorted((self.folder / "spool").glob("*.seg")) for record in read(path)[1]]

    def blocks(self, gpu: int) -> list[Block]:
        uuid = simgpu.uuid("sim", gpu)
        return [record for record in self.records() if isinstance(record, Block) and record.gpu == uuid]

    def allocations(self) -> list[Allocation]:
        return [record for record in self.records() if isinstance(record, Allocation)]

    def report(self, job: int) -> str:
        """Collect into a fresh database, and the job's report."""
        environment = {
            **os.environ,
            "SLURMGPU_STORE_URL": f"sqlite:///{self.folder}/x.db",
            "SLURMGPU_CONF": str(self.config),
        }
        for arguments in (["db", "init"], ["collect", "--once"], ["report", str(job)]):
            command = [sys.executable, "-m", "slurmgpu", *arguments]
            result = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
            assert result.returncode == 0, result.stderr
        return result.stdout

    def wait_blocks(self, gpu: int, more: int) -> None:
        wanted = len(self.blocks(gpu)) + more
        wait_for(f"{more} more blocks of GPU {gpu}", 20, lambda: len(self.blocks(gpu)) >= wanted)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def seamless(blocks: list[Block]) -> bool:
    return all(before.end_ms == after.start_ms for before, after in itertools.pairwise(blocks))


def test_a_job_from_mark_to_spool(node: Node) -> None:
    node.start()
    node.hook("prolog", 7, "1,3")
    wait_for("the allocation", 10, node.allocations)
    node.wait_blocks(1, 2)
    node.hook("epilog", 7)
    wait_for("the end", 10, lambda: any(a.end_ms for a in node.allocations()))
    wait_for("the marks to go", 10, lambda: not list((node.folder / "run/jobs").iterdir()))
    assert node.stop() == 0
    opened, closed = node.allocations()
    assert [gpu.uuid for gpu in closed.gpus] == [simgpu.uuid("sim", 1), simgpu.uuid("sim", 3)]
    for gpu in (0, 1, 2, 3):
        assert seamless(node.blocks(gpu))
    mine = [block for block in node.blocks(1) if block.owners == (opened.id,)]
    assert (mine[0].start_ms, mine[-1].end_ms) == (closed.start_ms, closed.end_ms)
    assert not [block for block in node.blocks(0) if block.owners]


def test_term_hands_everything_over_at_once(node: Node) -> None:
    node.settings(interval=INTERVAL_S, flush=3600)
    node.start()
    node.hook("prolog", 7, "0")
    wait_for("the allocation", 10, node.allocations)
    before = time.time()
    assert node.stop() == 0
    assert time.time() - before < 2
    assert node.blocks(0)[-1].end_ms / 1000 >= before - INTERVAL_S
    assert "stopped after" in node.said()


def test_killed_and_started_again_in_mid_job(node: Node) -> None:
    node.start()
    node.hook("prolog", 7, "2")
    wait_for("the allocation", 10, node.allocations)
    node.wait_blocks(2, 1)
    node.stop(signal.SIGKILL)
    node.start()
    node.wait_blocks(2, 1)
    node.hook("epilog", 7)
    wait_for("the end", 10, lambda: any(a.end_ms for a in node.allocations()))
    node.stop()
    assert {a.id for a in node.allocations()} == {node.allocations()[0].id}
    assert [block.owners != () for block in node.blocks(2)].count(True) >= 2
    closed = node.allocations()[-1]
    assert closed.end_source == "epilog"


def _start(node: Node) -> str:
    return str(node.allocations()[0].start_ms)


def test_once(node: Node) -> None:
    node.hook("prolog", 7, "0")
    assert node.command("--once").wait(timeout=20) == 0
    assert [record.index for record in node.records() if isinstance(record, GpuInfo)] == [0, 1, 2, 3]
    assert [(block.owners, block.samples >= 1) for block in node.blocks(0)] == [(("7@" + _start(node),), True)]
    assert [allocation.job_id for allocation in node.allocations()] == [7]


def test_one_gpu_lost_costs_that_gpu(node: Node) -> None:
    node.start()
    node.wait_blocks(2, 1)
    simgpu.Scenario(["gpus 4", "lost 2 @0"]).write(node.scenario)
    wait_for("the loss to be told", 10, lambda: "is lost: GPU_IS_LOST" in node.said())
    node.wait_blocks(1, 2)
    assert node.stop() == 0
    assert seamless(node.blocks(1))
    assert node.blocks(2)[-1].end_ms < node.blocks(1)[-1].end_ms
    assert node.said().count("is lost") == 1


def test_what_a_gpu_does_not_support_is_missing_and_not_zero(node: Node) -> None:
    simgpu.Scenario(["gpus 4", "gpu 1 gpu_util_pct=na energy_mj=na", "gpu * power_mw=50000"]).write(node.scenario)
    node.start()
    node.wait_blocks(1, 2)
    assert node.stop() == 0
    block = node.blocks(1)[-1]
    assert block.missing["gpu_util_pct"][0] == "NOT_SUPPORTED"
    assert "gpu_util_pct" not in block.stats
    assert block.energy_source == "power"
    assert node.blocks(0)[-1].energy_source == "counter"
    assert node.said().count("NOT_SUPPORTED") == 0  # a fact of the product, told only with --verbose


def test_without_a_driver_marks_are_followed(node: Node, tmp_path: Path) -> None:
    """The library says that no driver is loaded; jobs are recorded all the same, their GPUs as unresolved."""
    simgpu.Scenario(["fault * function=nvmlInit return=9"]).write(node.scenario)
    node.start()
    node.hook("prolog", 7, "0")
    wait_for("the allocation", 10, node.allocations)
    assert node.stop() == 0
    assert node.allocations()[0].unresolved == ("0",)
    assert node.said().count("DRIVER_NOT_LOADED") == 1
    assert [record.kind for record in node.records() if isinstance(record, Event)] == ["gpu.unresolved"]


def test_a_spool_that_cannot_be_written_loses_nothing(node: Node) -> None:
    """The spool is away for some flushes; what was read meanwhile is there when it is back."""
    node.start()
    node.wait_blocks(0, 1)
    spool, away = node.folder / "spool", node.folder / "away"
    spool.rename(away)
    spool.touch()  # a file where the folder was
    node.hook("prolog", 7, "0")
    wait_for("the complaint", 10, lambda: "kept in memory and tried again" in node.said())
    assert list((node.folder / "run/jobs").iterdir())
    spool.unlink()
    away.rename(spool)
    wait_for("the allocation", 10, node.allocations)
    assert node.stop() == 0
    assert seamless(node.blocks(0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[node]\nintervall = 1", "did you mean node.interval"),
        ('[node]\nspool_dir = "/proc/nope"\nrun_dir = "{folder}/run"', "set node.spool_dir"),
        ('[node]\nspool_dir = "{folder}/s"\nrun_dir = "/proc/nope"', "set node.run_dir"),
    ],
)
def test_mistakes_are_one_line(node: Node, text: str, words: str) -> None:
    node.config.write_text(text.replace("{folder}", str(node.folder)))
    assert node.command().wait(timeout=20) == 1
    assert words in node.said()
    assert "Traceback" not in node.said()


def test_a_hostile_mark_harms_nobody(node: Node) -> None:
    node.start()
    jobs = node.folder / "run" / "jobs"
    (jobs / "5.prolog.1").write_bytes(b"SLURM_JOB_GPUS=" + b"9" * 70_000 + b"\0\xff\xfe=\n\0" + os.urandom(65536))
    (jobs / "6.prolog.1").write_bytes(b"SLURM_JOB_GPUS=0-99999999,-1,GPU-x\nSLURM_JOB_ID=1\0")
    wait_for("both", 10, lambda: {a.job_id for a in node.allocations()} == {5, 6})
    node.hook("prolog", 7, "0")
    wait_for("the next", 10, lambda: {a.job_id for a in node.allocations()} == {5, 6, 7})
    assert node.stop() == 0
    by_job: dict[int, Allocation] = {a.job_id: a for a in node.allocations()}
    assert by_job[5].gpus == by_job[6].gpus == ()
    assert [gpu.uuid for gpu in by_job[7].gpus] == [simgpu.uuid("sim", 0)]


def test_a_mark_from_before_the_last_boot_is_no_job(node: Node) -> None:
    """On a folder that outlives reboots."""
    node.hook("prolog", 7, "1")
    (mark,) = (node.folder / "run" / "jobs").iterdir()
    mark.write_bytes(mark.read_bytes().rpartition(b"\0")[0] + b"\x009999999999.00 1.00\n")
    node.start()
    wait_for("its end", 10, lambda: not mark.exists())
    assert node.stop() == 0
    assert node.allocations() == []
    assert "before the last boot" in node.said()


def test_a_job_shorter_than_a_look(node: Node) -> None:
    """Start and end are seen together: the allocation has both, and its GPU's time is cut where it was."""
    node.settings(interval=1, flush=2)
    node.start()
    node.wait_blocks(0, 1)
    node.hook("prolog", 7, "0")
    node.hook("epilog", 7)
    wait_for("the end", 10, lambda: any(a.end_ms for a in node.allocations()))
    assert node.stop() == 0
    closed = node.allocations()[-1]
    assert closed.end_ms is not None
    assert (closed.end_source, closed.source) == ("epilog", "prolog")
    assert seamless(node.blocks(0))
    (mine,) = [block for block in node.blocks(0) if block.owners]
    assert (mine.start_ms, mine.end_ms) == (closed.start_ms, closed.end_ms)


def test_lost_hanging_and_half_supported_at_once(node: Node) -> None:
    """One of eight lost, one hanging, one without half of the calls: the other five lose no sample, and the report of
    the job on all eight tells what is missing and why."""
    lacking = [
        "PowerUsage",
        "TotalEnergyConsumption",
        "ClockInfo",
        "Temperature",
        "UtilizationRates",
        "PcieReplayCounter",
    ]
    faults = [f"fault 3 function=nvmlDeviceGet{name} return=3" for name in lacking]
    simgpu.Scenario(["gpus 8", *faults]).write(node.scenario)
    node.start()
    node.hook("prolog", 7, "0,1,2,3,4,5,6,7")
    wait_for("the allocation", 5, node.allocations)
    node.wait_blocks(0, 1)
    hang = "fault 2 function=nvmlDeviceGetUtilizationRates hang=60"
    simgpu.Scenario(["gpus 8", "lost 1 @0", hang, *faults]).write(node.scenario)
    wait_for("the loss to be told", 10, lambda: "is lost: GPU_IS_LOST" in node.said())
    node.wait_blocks(0, 3)
    assert node.process is not None
    assert len(list(Path(f"/proc/{node.process.pid}/task").iterdir())) <= 4  # main, opener, one stuck, one at work
    simgpu.Scenario(["gpus 8", "lost 1 @0", *faults]).write(node.scenario)
    node.wait_blocks(2, 2)
    node.hook("epilog", 7)
    wait_for("the end", 10, lambda: any(a.end_ms for a in node.allocations()))
    assert node.stop() == 0
    for gpu in (0, 3, 4, 5, 6, 7):
        blocks = node.blocks(gpu)
        assert seamless(blocks)
        rounds = (blocks[-1].end_ms - blocks[0].start_ms) / 1000 / INTERVAL_S
        assert sum(block.samples for block in blocks) >= rounds - 2
    assert not seamless(node.blocks(2))
    assert node.blocks(3)[-1].missing["power_mw"][0] == "NOT_SUPPORTED"
    text = node.report(7)
    assert "n1 for 1 GPU from" in text
    assert f"{simgpu.uuid('sim', 1)} is lost: GPU_IS_LOST" in text
    assert "No GPU busy of 1 GPU: the driver says NOT_SUPPORTED." in text
    assert "No power of 1 GPU: the driver says NOT_SUPPORTED." in text
    assert "lower bound" in text


def test_driver_that_goes_and_comes_back(node: Node) -> None:
    """NVML says that the driver is not loaded, for a while: one event, a gap, and sampling again."""
    node.start()
    node.wait_blocks(0, 1)
    simgpu.Scenario(["gpus 4", "fault * function=* return=9"]).write(node.scenario)
    wait_for("the complaint", 10, lambda: "driver.unavailable" in node.said())
    simgpu.Scenario(["gpus 4"]).write(node.scenario)
    node.wait_blocks(0, 2)
    assert node.stop() == 0
    assert [e.kind for e in node.records() if isinstance(e, Event)] == ["driver.unavailable"]
    assert not seamless(node.blocks(0))


def test_mig_instances_are_gpus_with_a_parent(node: Node) -> None:
    """A job holds an instance by its UUID: it has its memory and GPM, the parent keeps power and energy."""
    mig = "mig 1 gi=1 ci=0 profile=3g.40gb memory_bytes=40e9 mem_used_bytes=7e9 sm_active_pct=35"
    simgpu.Scenario(["gpus 2", "gpu 1 mig_mode=1", mig]).write(node.scenario)
    node.start()
    infos = []
    wait_for("the inventory", 10, lambda: node.blocks(0))
    infos = [record for record in node.records() if isinstance(record, GpuInfo)]
    (instance,) = [info for info in infos if info.parent]
    assert instance.uuid.startswith("MIG-")
    assert instance.parent == simgpu.uuid("sim", 1)
    environment = {"SLURM_JOB_ID": "7", "SLURMGPU_RUN_DIR": str(node.folder / "run")}
    environment |= {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": instance.uuid}
    subprocess.run([str(ROOT / "prolog" / "slurmgpu")], env=environment, check=True)

    def mine() -> list[Block]:
        return [
            r
            for r in node.records()
            if isinstance(r, Block) and r.gpu == instance.uuid and len(r.stats) > 1 and r.owners
        ]

    wait_for("its blocks", 10, mine)
    assert node.stop() == 0
    block = mine()[-1]
    assert block.stats["mem_used_bytes"].max == 7_000_000_000
    assert block.stats["sm_active_pct"].max == pytest.approx(35, abs=0.01)
    assert "power_mw" not in block.stats
    assert block.energy_mj is None
    assert node.blocks(1)[-1].energy_source == "counter"
    assert "gpu_util_pct" not in node.blocks(1)[-1].stats


def test_hang_becomes_a_finding_and_ends(tmp_path: Path) -> None:
    """With a clock of its own: after the deadline one event, and one more when the call returns after all."""
    import threading

    from slurmgpu.node.devices import Devices
    from slurmgpu.node.nvml import Device, Gate
    from slurmgpu.node.readings import Metric, Reading, Row, Tier
    from slurmgpu.node.sampler import Sampler
    from tests.node.fakes import FakeClock

    gate, clock, answer = Gate(), FakeClock(), threading.Event()

    def prepare(gate: Gate, device: Device, slot: int):  # type: ignore[no-untyped-def]
        def probe(row: Row) -> int:
            if device.index == 1 and clock.now > 0:
                answer.wait(30)
            row[slot] = 1
            return 0

        return probe

    sampler = Sampler(gate, [Reading((Metric("x", 0, 9),), Tier.FAST, prepare, "x")])
    gpus = [Device(None, i, f"GPU-{i}", i, None, None, None) for i in (0, 1)]
    sampler.open = lambda: setattr(sampler, "gpus", [sampler.prepare(d) for d in gpus])  # type: ignore[method-assign]
    devices = Devices(gate, sampler, clock, NodeConfig(interval=Seconds(1)))
    events: list[str] = []
    for second in range(14):
        clock.now = float(second)
        devices.sample(clock.now)
        events += [r.kind for r in devices.take() if isinstance(r, Event)]
    assert events == ["driver.hang"]
    answer.set()

    def answered() -> bool:
        clock.now += 1
        devices.sample(clock.now)
        events.extend(r.kind for r in devices.take() if isinstance(r, Event))
        return "driver.answers" in events

    wait_for("the answer", 10, answered)
    assert events == ["driver.hang", "driver.answers"]


def test_hup_takes_a_new_interval_and_refuses_a_wrong_one(node: Node) -> None:
    node.settings(interval=30, flush=30)
    node.start()
    assert node.process is not None
    node.config.write_text(node.config.read_text().replace("interval = 30", "interval = 99"))
    node.process.send_signal(signal.SIGHUP)
    wait_for("the refusal", 10, lambda: "the configuration stays as it was" in node.said())
    node.settings(interval=INTERVAL_S, flush=0.5)
    node.process.send_signal(signal.SIGHUP)
    wait_for("the news", 10, lambda: "configuration read again: every 0.1 s" in node.said())
    assert node.stop() == 0


def test_driver_replaced_under_the_daemon_ends_it_for_a_new_one(node: Node) -> None:
    """The library in this process is the old one for good: what was read is handed over, and a new process begins."""
    node.start()
    node.wait_blocks(0, 1)
    simgpu.Scenario(["gpus 4", "fault * function=* return=18"]).write(node.scenario)
    assert node.process is not None
    assert node.process.wait(timeout=20) == 1
    assert "different versions" in node.said()
    before = len(node.blocks(0))
    simgpu.Scenario(["gpus 4"]).write(node.scenario)
    node.start()
    wait_for("blocks of the new process", 10, lambda: len(node.blocks(0)) > before)
    assert node.stop() == 0


def test_slow_tier_comes_less_often(node: Node) -> None:
    """Calls of the medium tier that take long are made less often; the fast readings go on in their time."""
    slow = "fault * function=nvmlDeviceGetEncoderUtilization sleep_us=30000"
    simgpu.Scenario(["gpus 4", slow]).write(node.scenario)
    node.start()
    wait_for("the word", 10, lambda: "the medium readings took" in node.said())
    assert "from now on every 60 s" in node.said()
    node.wait_blocks(0, 2)
    assert node.stop() == 0
    assert seamless(node.blocks(0))


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is missing")
def test_starts_no_process(node: Node) -> None:
    """Not for a sample, not for a mark, not for a process on a GPU that no mark explains: no Slurm command least."""
    simgpu.Scenario(["gpus 4", f"process 0 pid={os.getpid()} sm=50"]).write(node.scenario)
    trace = node.folder / "trace"
    node.wrapper = ("strace", "-D", "-f", "-qq", "-e", "trace=execve,fork,vfork", "-o", str(trace))
    node.settings(interval=INTERVAL_S, flush=1, medium=0.2)
    node.start()
    node.hook("prolog", 7, "1")
    node.wait_blocks(1, 2)
    node.hook("epilog", 7)
    wait_for("the end", 20, lambda: any(item.end_ms for item in node.allocations()))
    assert node.stop() == 0
    lines = trace.read_text().splitlines()
    assert [line for line in lines if "execve(" not in line and "fork(" in line] == []
    assert sum("execve(" in line and ") = 0" in line for line in lines) == 1


def test_no_permission_is_told_once(node: Node) -> None:
    simgpu.Scenario(["gpus 2", "fault * function=nvmlDeviceGetSramEccErrorStatus return=4"]).write(node.scenario)
    node.start()
    node.wait_blocks(0, 2)
    assert node.stop() == 0
    assert node.said().count("sram_threshold_exceeded: NO_PERMISSION") == 2  # one for each GPU
    assert node.blocks(0)[-1].missing["sram_threshold_exceeded"][0] == "NO_PERMISSION"


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_library_that_is_none(node: Node, kind: str) -> None:
    folder = node.folder / "lib"
    folder.mkdir()
    if kind == "empty":
        (folder / "libnvidia-ml.so.1").touch()
    node.library = str(folder)
    node.start()
    node.hook("prolog", 7, "0")
    wait_for("the allocation", 10, node.allocations)
    assert node.stop() == 0
    assert "is the NVIDIA driver installed?" in node.said()


def test_a_gpu_that_comes_back_is_read_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost, then reset by the admin: listed again within a minute of the daemon's clock, with an event each."""
    from slurmgpu.node.devices import Devices
    from slurmgpu.node.nvml import Device, Gate
    from slurmgpu.node.readings import Metric, Reading, Row, Tier
    from slurmgpu.node.sampler import Sampler
    from tests.node.fakes import FakeClock

    clock, lost = FakeClock(), [False]

    def prepare(gate: Gate, device: Device, slot: int):  # type: ignore[no-untyped-def]
        def probe(row: Row) -> int:
            row[slot] = 1
            return 15 if lost[0] and device.index == 1 else 0

        return probe

    sampler = Sampler(Gate(), [Reading((Metric("x", 0, 9),), Tier.FAST, prepare, "x")])
    devices = [Device(None, i, f"GPU-{i}", i, None, None, None) for i in (0, 1)]
    sampler.open = lambda: setattr(sampler, "gpus", [sampler.prepare(d) for d in devices])  # type: ignore[method-assign]
    made = Devices(Gate(), sampler, clock, NodeConfig(interval=Seconds(1)))
    records: list[Record] = []
    for second in range(200):
        lost[0] = 10 <= second < 50
        clock.now += 1
        made.sample(clock.now)
        records += made.take()
    kinds = [(r.t_ms // 1000, r.kind) for r in records if isinstance(r, Event)]
    assert [kind for _, kind in kinds] == ["gpu.lost", "gpu.back"]
    assert kinds[1][0] - kinds[0][0] <= 61
    steady = [r for r in records if isinstance(r, Block) and r.gpu == "GPU-0"]
    assert seamless(steady)
    assert sum(block.samples for block in steady) == 200


def test_a_gpu_that_the_driver_no_longer_counts(node: Node) -> None:
    """It is told as lost, its blocks end; the others go on under their UUIDs though their indices have moved."""
    node.start()
    node.wait_blocks(3, 1)
    simgpu.Scenario(["gpus 4", "gone 1 @0"]).write(node.scenario)
    wait_for("the word", 10, lambda: f"{simgpu.uuid('sim', 1)} is lost" in node.said())
    node.wait_blocks(3, 2)
    assert node.stop() == 0
    assert seamless(node.blocks(3))
    assert node.blocks(1)[-1].end_ms < node.blocks(3)[-1].end_ms


def test_a_count_that_changes_lists_the_gpus_again() -> None:
    """With a clock of its own: a GPU that was added is read within a minute."""
    from slurmgpu.node.devices import Devices
    from slurmgpu.node.nvml import Device, Gate
    from slurmgpu.node.readings import Metric, Reading, Row, Tier
    from slurmgpu.node.sampler import Sampler
    from tests.node.fakes import FakeClock

    def prepare(gate: Gate, device: Device, slot: int):  # type: ignore[no-untyped-def]
        def probe(row: Row) -> int:
            row[slot] = 1
            return 0

        return probe

    there, clock = [1], FakeClock()
    sampler = Sampler(Gate(), [Reading((Metric("x", 0, 9),), Tier.FAST, prepare, "x")])

    def list_gpus() -> None:
        sampler.gpus = [sampler.prepare(Device(None, i, f"GPU-{i}", i, None, None, None)) for i in range(there[0])]
        sampler.counted = there[0]

    sampler.open, sampler.count = list_gpus, lambda: there[0]  # type: ignore[method-assign]
    made = Devices(Gate(), sampler, clock, NodeConfig(interval=Seconds(1)))
    seen: dict[str, int] = {}
    for second in range(100):
        there[0] = 1 if second < 10 else 2
        clock.now += 1
        made.sample(clock.now)
        for record in made.take():
            if isinstance(record, Block):
                seen.setdefault(record.gpu, second)
    assert seen["GPU-0"] <= 1
    assert 10 <= seen["GPU-1"] <= 72
