"""Temperature of the chip and of the memory (whole degrees C, now), and how far the chip is from its limit.

Memory: boards with HBM, some with GDDR. The distance: Ada and Hopper on; 0 or less is unreliable on some boards.
nvidia-smi: ``temperature.gpu``, ``temperature.memory``, ``temperature.gpu.tlimit``.
"""

from ctypes import Structure, c_int, c_uint

from slurmgpu.node.readings import Field, Metric, Reading, Tier, number, structure

_GPU = 0  # nvmlTemperatureSensors_t


class _Margin(Structure):
    _fields_ = (("version", c_uint), ("value", c_int))


READINGS = (
    Reading(
        (Metric("temperature_c", 0, 200),),
        Tier.MEDIUM,
        number("nvmlDeviceGetTemperature", c_uint, _GPU),
        "nvmlDeviceGetTemperature",
    ),
    Reading((Metric("mem_temperature_c", 1, 200),), Tier.MEDIUM, Field(82), "field 82", since="HBM boards"),
    Reading(
        (Metric("temperature_margin_c", -200, 200),),
        Tier.MEDIUM,
        structure("nvmlDeviceGetMarginTemperature", lambda: _Margin(version=8 | 1 << 24), "value"),
        "nvmlDeviceGetMarginTemperature",
        since="Ada, Hopper",
    ),
)
