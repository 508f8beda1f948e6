"""The PCIe link: generation and width now, bytes sent and received, replays (counts since driver load).

The generation falls when the GPU idles. The byte counters need a new driver; the older call for throughput waits 20 ms
each time and is not used. nvidia-smi: ``pcie.link.gen.current``, ``pcie.link.width.current``.
"""

from ctypes import c_uint

from slurmgpu.node.readings import Field, Kind, Metric, Reading, Tier, number

_MOST = 1 << 62

READINGS = (
    Reading(
        (Metric("pcie_generation", 1, 9, Kind.STATE),),
        Tier.MEDIUM,
        number("nvmlDeviceGetCurrPcieLinkGeneration", c_uint),
        "nvmlDeviceGetCurrPcieLinkGeneration",
    ),
    Reading(
        (Metric("pcie_width_lanes", 1, 32, Kind.STATE),),
        Tier.MEDIUM,
        number("nvmlDeviceGetCurrPcieLinkWidth", c_uint),
        "nvmlDeviceGetCurrPcieLinkWidth",
    ),
    Reading(
        (Metric("pcie_tx_bytes", 0, _MOST, Kind.COUNTER),), Tier.MEDIUM, Field(197), "field 197", since="newer drivers"
    ),
    Reading(
        (Metric("pcie_rx_bytes", 0, _MOST, Kind.COUNTER),), Tier.MEDIUM, Field(198), "field 198", since="newer drivers"
    ),
    Reading(
        (Metric("pcie_replays", 0, _MOST, Kind.COUNTER),),
        Tier.SLOW,
        number("nvmlDeviceGetPcieReplayCounter", c_uint),
        "nvmlDeviceGetPcieReplayCounter",
        since="Kepler",
    ),
)
