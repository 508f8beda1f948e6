"""What the board did about bad memory: retired pages before Ampere, remapped rows from Ampere on, and the SRAM error
threshold.

``remap_pending`` and ``retired_pending``: a reset makes it effective. ``remap_failed`` stays for the board's life.
``sram_threshold_exceeded`` is the mark for replacement; it needs root. Remapped rows are not available while MIG
instances exist. nvidia-smi: ``retired_pages.*``, ``remapped_rows.*``.
"""

from ctypes import Structure, c_uint, c_ulonglong

from slurmgpu.node.readings import Field, Kind, Metric, Reading, Tier, structure

_MOST = 1 << 32


class _Sram(Structure):
    _fields_ = (("version", c_uint), ("counts", c_ulonglong * 11), ("threshold_exceeded", c_uint))


class _Histogram(Structure):
    _fields_ = tuple((name, c_uint) for name in ("max", "high", "partial", "low", "none"))


def _state(name: str, field: int, since: str) -> Reading:
    return Reading((Metric(name, 0, _MOST, Kind.STATE),), Tier.SLOW, Field(field), f"field {field}", since=since)


READINGS = (
    _state("retired_pages_single_bit", 29, "before Ampere"),
    _state("retired_pages_double_bit", 30, "before Ampere"),
    _state("retired_pending", 31, "before Ampere"),
    _state("remap_corrected_rows", 142, "Ampere"),
    _state("remap_uncorrected_rows", 143, "Ampere"),
    _state("remap_pending", 144, "Ampere"),
    _state("remap_failed", 145, "Ampere"),
    Reading(
        (Metric("remap_banks_without_spare", 0, _MOST, Kind.STATE),),
        Tier.SLOW,
        structure("nvmlDeviceGetRowRemapperHistogram", _Histogram, "none"),
        "nvmlDeviceGetRowRemapperHistogram",
        since="Ampere",
    ),
    Reading(
        (Metric("sram_threshold_exceeded", 0, 1, Kind.STATE),),
        Tier.SLOW,
        structure("nvmlDeviceGetSramEccErrorStatus", lambda: _Sram(version=104 | 1 << 24), "threshold_exceeded"),
        "nvmlDeviceGetSramEccErrorStatus",
        since="Ampere",
    ),
)
