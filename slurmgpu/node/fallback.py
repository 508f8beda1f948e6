"""Basic readings while NVML cannot be used: told once with the cause, given up as soon as NVML is back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from slurmgpu.node import smi
from slurmgpu.node.blocks import BlockBuilder
from slurmgpu.node.clock import Clock
from slurmgpu.node.crew import Crew
from slurmgpu.node.nvml import Device
from slurmgpu.node.readings import Metric
from slurmgpu.node.smi import SmiError, SmiGpu
from slurmgpu.wire.records import GpuInfo, Record

log = logging.getLogger(__name__)

EVERY_S = 60.0
_PATIENCE_S = 0.3
_SMI = "nvidia-smi"


class Fallback:
    """GPUs by nvidia-smi, each with its blocks. A call that hangs is left to its thread, and to its deadline."""

    def __init__(self, metrics: Sequence[Metric], clock: Clock, query: Callable[[], list[SmiGpu]] = smi.query) -> None:
        self._metrics = tuple(metrics)
        self._clock = clock
        self._query = query
        self._crew: Crew[str, list[SmiGpu]] = Crew(_PATIENCE_S)
        self._builders: dict[str, BlockBuilder] = {}
        self._next = 0.0
        self._told = False
        self._records: list[Record] = []

    def sample(self, wall_offset: float, owners_of: Callable[[str], tuple[str, ...]]) -> list[Device]:
        """Ask nvidia-smi when it is time to; all its GPUs when one of them is new, else none."""
        now = self._clock.monotonic()
        results = self._crew.late()
        if not results and now >= self._next and not self._crew.stuck:
            self._next = now + EVERY_S
            results = self._crew.run([_SMI], lambda _: self._query())
        for _, result in results:
            if isinstance(result, SmiError):
                self._say(f"neither NVML nor nvidia-smi can be used: {result}")
            elif isinstance(result, Exception):
                raise result
            else:
                self._say("readings come from nvidia-smi, once a minute, until NVML can be used")
                before = len(self._builders)
                for gpu in result:
                    self._add(gpu, now, wall_offset, owners_of)
                if len(self._builders) > before:
                    return [gpu.device for gpu in result]
        return []

    def _say(self, text: str) -> None:
        if not self._told:
            self._told = True
            log.warning(text)

    def _add(self, gpu: SmiGpu, now: float, wall_offset: float, owners_of: Callable[[str], tuple[str, ...]]) -> None:
        uuid = gpu.device.uuid
        if uuid not in self._builders:
            builder = self._builders[uuid] = BlockBuilder(uuid, self._metrics, EVERY_S, wall_offset)
            builder.change_owner(now, owners_of(uuid))
            builder.causes = {metric.name: "NVML_NOT_USABLE" for metric in self._metrics}
            self._records.append(_info(gpu, round((now + wall_offset) * 1000)))
        self._builders[uuid].add(now, tuple(gpu.values.get(metric.name) for metric in self._metrics))

    def change_owner(self, t: float, uuid: str, owners: tuple[str, ...]) -> None:
        """From ``t`` (monotonic) on the GPU belongs to these allocations."""
        if uuid in self._builders:
            self._builders[uuid].change_owner(t, owners)

    def take(self) -> list[Record]:
        """Blocks and inventory since the last time."""
        for builder in self._builders.values():
            self._records += builder.take()
        records, self._records = self._records, []
        return records

    def end(self) -> None:
        """NVML is back: what there is ends here."""
        self._told = False
        for builder in self._builders.values():
            builder.lose()
            self._records += builder.take_closed()
        self._builders.clear()


def _info(gpu: SmiGpu, t_ms: int) -> GpuInfo:
    return GpuInfo(
        uuid=gpu.device.uuid,
        t_ms=t_ms,
        index=gpu.device.index,
        minor=gpu.device.minor,
        serial=gpu.device.serial,
        name=gpu.device.name,
        memory_bytes=gpu.memory_bytes,
        pci_address=gpu.device.pci_address,
        driver_version=gpu.driver_version,
    )
