"""All readings of the node's GPUs: which are due, and what to do about those that fail."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurmgpu.node.nvml import Device, DriverUnavailableError, Gate, Meaning, cause_of, meaning_of
from slurmgpu.node.readings import Metric, Probe, Reading, Row, Tier

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """One reading of one GPU, ready to be called."""

    probe: Probe
    first: int
    metrics: tuple[Metric, ...]


@dataclass(slots=True)
class SampledGpu:
    """A GPU with its probes, its latest row, and why values are missing.

    ``causes``: metric → NVML's word for why its last reading gave nothing; a metric that was read is not in it.
    """

    device: Device
    row: Row
    slots: dict[Tier, list[_Slot]]
    causes: dict[str, str] = field(default_factory=dict)
    lost: str | None = None


class Sampler:
    """Takes the readings. A failing call costs one reading, a lost GPU costs that GPU."""

    def __init__(self, gate: Gate, readings: Iterable[Reading]) -> None:
        self._gate = gate
        self._readings = tuple(readings)
        self.metrics: tuple[Metric, ...] = tuple(m for reading in self._readings for m in reading.metrics)
        self.gpus: list[SampledGpu] = []
        self.counted = 0

    def open(self) -> None:
        """List the GPUs and make their probes. Raises :class:`DriverUnavailableError`."""
        self._gate.open()
        devices, self.counted = self._gate.devices()
        self.gpus = [self._prepare(device) for device in devices]

    def sample(self, gpu: SampledGpu, tiers: Iterable[Tier]) -> bool:
        """Take the readings of some tiers into the GPU's row. False: the GPU gives no readings now.

        Raises :class:`DriverUnavailableError` when no GPU of the node can be read.
        """
        if gpu.lost:
            return False
        for tier in tiers:
            gone: list[_Slot] = []
            for slot in gpu.slots[tier]:
                code = slot.probe(gpu.row)
                if code:
                    self._failed(gpu, slot, code, gone)
                    if gpu.lost:
                        return False
                elif gpu.causes:
                    for metric in slot.metrics:
                        gpu.causes.pop(metric.name, None)
            if gone:
                gpu.slots[tier] = [slot for slot in gpu.slots[tier] if slot not in gone]
        return True

    def _prepare(self, device: Device) -> SampledGpu:
        gpu = SampledGpu(device, [None] * len(self.metrics), {tier: [] for tier in Tier})
        first = 0
        for reading in self._readings:
            probe = reading.prepare(self._gate, device, first)
            if probe is None:
                gpu.causes.update({metric.name: "FUNCTION_NOT_FOUND" for metric in reading.metrics})
            else:
                gpu.slots[reading.tier].append(_Slot(probe, first, reading.metrics))
            first += len(reading.metrics)
        return gpu

    def _failed(self, gpu: SampledGpu, slot: _Slot, code: int, gone: list[_Slot]) -> None:
        meaning, cause = meaning_of(code), cause_of(code)
        names = [metric.name for metric in slot.metrics]
        self._gate.tell_once(f"{gpu.device.uuid} {', '.join(names)}", code)
        if meaning is Meaning.NODE:
            raise DriverUnavailableError(code, gpu.device.uuid)
        for offset, name in enumerate(names):
            gpu.row[slot.first + offset] = None
            gpu.causes[name] = cause
        if meaning is Meaning.SKIP:
            gone.append(slot)
        elif meaning is Meaning.LOST:
            gpu.lost = cause
            log.error("%s is lost: %s; the other GPUs go on", gpu.device.uuid, cause)
