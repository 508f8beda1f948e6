"""Temperature of the GPU chip (whole degrees C, now). All generations. nvidia-smi: ``temperature.gpu``."""

from ctypes import c_uint

from slurmgpu.node.readings import Metric, Reading, Tier, number

_GPU = 0  # nvmlTemperatureSensors_t

READINGS = (Reading((Metric("temperature_c", 0, 200),), Tier.MEDIUM, number("nvmlDeviceGetTemperature", c_uint, _GPU)),)
