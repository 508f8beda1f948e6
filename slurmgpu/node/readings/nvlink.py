"""NVLink: links that are up, data sent and received (KiB since driver load, all links), errors (counts, all links).

A link that is not supported is not there, which is normal; ``nvlink_active_links`` counts those that are up, and is not
available where the GPU has none. Blackwell counts by other names. nvidia-smi: ``nvlink -s``.
"""

from ctypes import byref, c_uint

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.readings import SUM_OF_LINKS, Field, Kind, Metric, Probe, Reading, Row, Tier

_MOST = 1 << 62
_MOST_LINKS = 36
_NOT_SUPPORTED, _INVALID_ARGUMENT = 3, 2


def _active(gate: Gate, device: Device, slot: int) -> Probe | None:
    get = gate.function("nvmlDeviceGetNvLinkState")
    if get is None:
        return None
    call, handle, state = get, device.handle, c_uint()
    pointer = byref(state)
    there = [
        link for link in range(_MOST_LINKS) if call(handle, link, pointer) not in (_NOT_SUPPORTED, _INVALID_ARGUMENT)
    ]

    def probe(row: Row) -> int:
        if not there:
            return _NOT_SUPPORTED
        active = 0
        for link in there:
            code = call(handle, link, pointer)
            if code:
                return code
            active += state.value
        row[slot] = active
        return 0

    return probe


def _counter(name: str, field: int, tier: Tier, since: str) -> Reading:
    metric = Metric(f"nvlink_{name}", 0, _MOST, Kind.COUNTER)
    return Reading((metric,), tier, Field(field, SUM_OF_LINKS), f"field {field}", since=since)


READINGS = (
    Reading(
        (Metric("nvlink_active_links", 0, _MOST_LINKS, Kind.STATE),),
        Tier.SLOW,
        _active,
        "nvmlDeviceGetNvLinkState",
        since="Pascal",
    ),
    _counter("tx_kib", 138, Tier.MEDIUM, "Ampere"),
    _counter("rx_kib", 139, Tier.MEDIUM, "Ampere"),
    _counter("replay_errors", 161, Tier.SLOW, "Ampere to Hopper"),
    _counter("recovery_errors", 162, Tier.SLOW, "Ampere to Hopper"),
    _counter("crc_errors", 163, Tier.SLOW, "Ampere to Hopper"),
    _counter("tx_bytes", 202, Tier.MEDIUM, "Blackwell"),
    _counter("rx_bytes", 204, Tier.MEDIUM, "Blackwell"),
    _counter("malformed_packets", 206, Tier.SLOW, "Blackwell"),
    _counter("buffer_overruns", 207, Tier.SLOW, "Blackwell"),
    _counter("receive_errors", 208, Tier.SLOW, "Blackwell"),
    _counter("recoveries_failed", 214, Tier.SLOW, "Blackwell"),
    _counter("effective_errors", 219, Tier.SLOW, "Blackwell"),
    _counter("symbol_errors", 221, Tier.SLOW, "Blackwell"),
)
