"""All readings of the node's GPUs: which are due, and what to do about those that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from ctypes import Structure, Union, c_double, c_int, c_longlong, c_uint, c_ulonglong, memmove, sizeof
from dataclasses import dataclass, field

from slurmgpu.node.nvml import Device, DriverUnavailableError, Function, Gate, Meaning, cause_of, meaning_of
from slurmgpu.node.readings import Field, Metric, Probe, Reading, Row, Tier

log = logging.getLogger(__name__)


class _Value(Union):
    _fields_ = (("double", c_double), ("u32", c_uint), ("u64", c_ulonglong), ("s64", c_longlong), ("s32", c_int))


class _FieldValue(Structure):
    _fields_ = (
        ("id", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency_us", c_longlong),
        ("type", c_uint),
        ("code", c_uint),
        ("value", _Value),
    )


# nvmlValueType_t → the member to read: the wrong one gives nonsense, and no error.
_MEMBERS = {0: "double", 1: "u32", 2: "u64", 3: "u64", 4: "s64", 5: "s32"}


@dataclass(slots=True)
class _Call:
    """One reading of one GPU, ready to be called."""

    probe: Probe
    first: int
    metrics: tuple[Metric, ...]


class _Fields:
    """The field values of one tier in one call, with an array that is used again.

    Each field has a code and a type of its own; the call's success says nothing about them.
    """

    def __init__(self, get: Function, handle: object, entries: list[tuple[Field, int, Metric]]) -> None:
        self._get = get
        self._handle = handle
        self._entries = entries
        self._make()

    def _make(self) -> None:
        count = len(self._entries)
        self._array = (_FieldValue * count)()
        for value, (spec, _, _) in zip(self._array, self._entries, strict=True):
            value.id, value.scope = spec.id, spec.scope
        # Some drivers add to the value that they find: every call begins with a fresh copy.
        self._template = bytes(self._array)
        self._size = sizeof(self._array)
        self._values = list(zip(self._array, self._entries, strict=True))

    def read(self, row: Row, failed: Callable[[int, int, tuple[Metric, ...]], bool]) -> int:
        """Read all into the row; the call's own code. Fields that this GPU does not have are dropped."""
        memmove(self._array, self._template, self._size)
        code = self._get(self._handle, len(self._entries), self._array)
        if code:
            return code
        gone = False
        for value, (_, slot, metric) in self._values:
            if value.code:
                gone |= failed(value.code, slot, (metric,))
                continue
            member = _MEMBERS.get(value.type)
            row[slot] = None if member is None else int(getattr(value.value, member))
        if gone:
            self._entries = [
                entry for value, entry in self._values if not value.code or meaning_of(value.code) is not Meaning.SKIP
            ]
            self._make()
        return 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def slots(self) -> list[tuple[int, tuple[Metric, ...]]]:
        return [(slot, (metric,)) for _, slot, metric in self._entries]


@dataclass(slots=True, eq=False)
class SampledGpu:
    """A GPU with its calls, its latest row, and why values are missing.

    ``causes``: metric → NVML's word for why its last reading gave nothing; a metric that was read is not in it.
    """

    device: Device
    row: Row
    calls: dict[Tier, list[_Call]]
    fields: dict[Tier, _Fields]
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
        """List the GPUs and make their calls. Raises :class:`DriverUnavailableError`."""
        self._gate.open()
        devices, self.counted = self._gate.devices()
        self.gpus = [self.prepare(device) for device in devices]

    def count(self) -> int:
        """The GPUs that the driver counts now; as many as before where it does not say.

        Raises :class:`DriverUnavailableError` when no GPU of the node can be read.
        """
        try:
            return self._gate.count()
        except DriverUnavailableError as error:
            if meaning_of(error.code) is Meaning.NODE:
                raise
            return self.counted

    def prepare(self, device: Device) -> SampledGpu:
        """Look at what the driver has for this GPU: each function and each field is tried anew."""
        gpu = SampledGpu(device, [None] * len(self.metrics), {tier: [] for tier in Tier}, {})
        batches: dict[Tier, list[tuple[Field, int, Metric]]] = {tier: [] for tier in Tier}
        first = 0
        for reading in self._readings:
            if isinstance(reading.source, Field):
                batches[reading.tier].append((reading.source, first, reading.metrics[0]))
            else:
                probe = reading.source(self._gate, device, first)
                if probe is None:
                    self._lacks(gpu, reading.metrics)
                else:
                    gpu.calls[reading.tier].append(_Call(probe, first, reading.metrics))
            first += len(reading.metrics)
        get = self._gate.function("nvmlDeviceGetFieldValues")
        for tier, entries in batches.items():
            if entries and get is not None:
                gpu.fields[tier] = _Fields(get, device.handle, entries)
            else:
                self._lacks(gpu, tuple(metric for _, _, metric in entries))
        return gpu

    @staticmethod
    def _lacks(gpu: SampledGpu, metrics: tuple[Metric, ...]) -> None:
        gpu.causes.update({metric.name: "FUNCTION_NOT_FOUND" for metric in metrics})

    def sample(self, gpu: SampledGpu, tiers: Iterable[Tier]) -> bool:
        """Take the readings of some tiers into the GPU's row. False: the GPU gives no readings now.

        Raises :class:`DriverUnavailableError` when no GPU of the node can be read.
        """
        if gpu.lost:
            return False
        row = gpu.row
        for tier in tiers:
            gone = False
            for call in gpu.calls[tier]:
                code = call.probe(row)
                if code:
                    gone |= self._failed(gpu, code, call.first, call.metrics)
                    if gpu.lost:
                        return False
                elif gpu.causes:
                    for metric in call.metrics:
                        gpu.causes.pop(metric.name, None)
            if gone:
                gpu.calls[tier] = [call for call in gpu.calls[tier] if not self._is_gone(gpu, call)]
            fields = gpu.fields.get(tier)
            if fields and not self._read_fields(gpu, fields):
                return False
        return True

    def _read_fields(self, gpu: SampledGpu, fields: _Fields) -> bool:
        code = fields.read(gpu.row, lambda code, slot, metrics: self._failed(gpu, code, slot, metrics))
        if code:
            for slot, metrics in fields.slots:
                self._failed(gpu, code, slot, metrics)
        return gpu.lost is None

    @staticmethod
    def _is_gone(gpu: SampledGpu, call: _Call) -> bool:
        return gpu.causes.get(call.metrics[0].name) in _SKIPPED

    def _failed(self, gpu: SampledGpu, code: int, first: int, metrics: tuple[Metric, ...]) -> bool:
        """Note that a reading gave nothing. True: it is not asked for again before the next probe."""
        meaning, cause = meaning_of(code), cause_of(code)
        self._gate.tell_once(f"{gpu.device.uuid} {', '.join(metric.name for metric in metrics)}", code)
        if meaning is Meaning.NODE:
            raise DriverUnavailableError(code, gpu.device.uuid)
        for offset, metric in enumerate(metrics):
            gpu.row[first + offset] = None
            gpu.causes[metric.name] = cause
        if meaning is Meaning.LOST:
            gpu.lost = cause
        return meaning is Meaning.SKIP


_SKIPPED = frozenset(cause_of(code) for code in range(64) if meaning_of(code) is Meaning.SKIP)
