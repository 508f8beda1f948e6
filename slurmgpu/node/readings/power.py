"""Power draw of the board (mW), its limit in force (mW), and the energy counter (mJ since driver load).

``power_mw``: the mean of the last second on Ampere and later except GA100 (A100, A30), the value now on those and
older; ``power_instant_mw`` is the value now where the driver tells them apart. The counter moves in steps of 10 ms or
more. All are of the board: a MIG parent's stay the parent's. nvidia-smi: ``power.draw``, ``power.draw.instant``,
``enforced.power.limit``, ``total_energy_consumption``.
"""

from ctypes import c_uint, c_ulonglong

from slurmgpu.node.readings import Field, Kind, Metric, Reading, Tier, number

_MOST_MW = 10_000_000

READINGS = (
    Reading(
        (Metric("power_mw", 0, _MOST_MW),),
        Tier.FAST,
        number("nvmlDeviceGetPowerUsage", c_uint),
        "nvmlDeviceGetPowerUsage",
    ),
    Reading(
        (Metric("energy_mj", 0, 1 << 60, Kind.COUNTER),),
        Tier.FAST,
        number("nvmlDeviceGetTotalEnergyConsumption", c_ulonglong),
        "nvmlDeviceGetTotalEnergyConsumption",
        since="Volta",
    ),
    Reading((Metric("power_instant_mw", 0, _MOST_MW),), Tier.MEDIUM, Field(186), "field 186", since="Ampere"),
    Reading(
        (Metric("power_limit_mw", 0, _MOST_MW),),
        Tier.SLOW,
        number("nvmlDeviceGetEnforcedPowerLimit", c_uint),
        "nvmlDeviceGetEnforcedPowerLimit",
        since="Kepler",
    ),
)
