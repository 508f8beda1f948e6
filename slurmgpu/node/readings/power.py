"""Power draw of the board (mW) and the energy counter (mJ since driver load).

``nvmlDeviceGetPowerUsage``: the mean of the last second on Ampere and later except GA100 (A100, A30), the value now on
those and older; nvidia-smi: ``power.draw``. ``nvmlDeviceGetTotalEnergyConsumption``: Volta and later; it moves in steps
of 10 ms or more; nvidia-smi: ``total_energy_consumption``. Both are of the board: a MIG parent's stay the parent's.
"""

from ctypes import c_uint, c_ulonglong

from slurmgpu.node.readings import Kind, Metric, Reading, Tier, number

READINGS = (
    Reading((Metric("power_mw", 0, 10_000_000),), Tier.FAST, number("nvmlDeviceGetPowerUsage", c_uint)),
    Reading(
        (Metric("energy_mj", 0, 1 << 60, Kind.COUNTER),),
        Tier.FAST,
        number("nvmlDeviceGetTotalEnergyConsumption", c_ulonglong),
    ),
)
