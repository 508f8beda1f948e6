"""Memory errors (counts): corrected and uncorrected, since driver load (volatile) and over the board's life
(aggregate), in all, in DRAM and SRAM, and before Ampere in caches and registers.

Boards with ECC, while it is on; by place from Ampere on; volatile counts are not available on a MIG parent. nvidia-smi:
``ecc.errors.*``.
"""

from ctypes import c_ulonglong

from slurmgpu.node.readings import Field, Kind, Metric, Reading, Tier, number

_MOST = 1 << 62
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_VOLATILE, _AGGREGATE = 0, 1  # nvmlEccCounterType_t
_L1, _L2, _DRAM, _REGISTERS, _SRAM = 0, 1, 2, 3, 7  # nvmlMemoryLocation_t


def _total(name: str, field: int) -> Reading:
    metric = Metric(f"ecc_{name}", 0, _MOST, Kind.COUNTER)
    return Reading((metric,), Tier.SLOW, Field(field), f"field {field}", since="ECC boards")


def _place(name: str, kind: int, counter: int, place: int, since: str = "Ampere") -> Reading:
    return Reading(
        (Metric(f"ecc_{name}", 0, _MOST, Kind.COUNTER),),
        Tier.SLOW,
        number("nvmlDeviceGetMemoryErrorCounter", c_ulonglong, kind, counter, place),
        "nvmlDeviceGetMemoryErrorCounter",
        since=since,
    )


READINGS = (
    _total("corrected_volatile", 3),
    _total("uncorrected_volatile", 4),
    _total("corrected_aggregate", 5),
    _total("uncorrected_aggregate", 6),
    _place("dram_corrected_volatile", _CORRECTED, _VOLATILE, _DRAM),
    _place("dram_uncorrected_volatile", _UNCORRECTED, _VOLATILE, _DRAM),
    _place("sram_corrected_volatile", _CORRECTED, _VOLATILE, _SRAM),
    _place("sram_uncorrected_volatile", _UNCORRECTED, _VOLATILE, _SRAM),
    _place("dram_uncorrected_aggregate", _UNCORRECTED, _AGGREGATE, _DRAM),
    _place("sram_uncorrected_aggregate", _UNCORRECTED, _AGGREGATE, _SRAM),
    _place("l1_uncorrected_volatile", _UNCORRECTED, _VOLATILE, _L1, "before Ampere"),
    _place("l2_uncorrected_volatile", _UNCORRECTED, _VOLATILE, _L2, "before Ampere"),
    _place("registers_uncorrected_volatile", _UNCORRECTED, _VOLATILE, _REGISTERS, "before Ampere"),
)
