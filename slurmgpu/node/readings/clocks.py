"""Clocks of the SMs and of the memory (MHz, now). All generations. nvidia-smi: ``clocks.sm``, ``clocks.mem``."""

from ctypes import c_uint

from slurmgpu.node.readings import Metric, Reading, Tier, number

_SM, _MEMORY = 1, 2  # nvmlClockType_t

READINGS = (
    Reading((Metric("sm_clock_mhz", 0, 10_000),), Tier.FAST, number("nvmlDeviceGetClockInfo", c_uint, _SM)),
    Reading((Metric("mem_clock_mhz", 0, 50_000),), Tier.FAST, number("nvmlDeviceGetClockInfo", c_uint, _MEMORY)),
)
