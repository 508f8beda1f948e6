"""Processes on the GPU (counts, now), the memory that they hold together (bytes), and their share of the SMs since
the reading before (%, added up).

Host pids: slurmgpud must run in the host's PID namespace. Managed memory is not in it, and it does not add up to the
memory in use. A list that the driver scrambled is not available as a whole. nvidia-smi: ``--query-compute-apps``.
"""

from slurmgpu.node.nvml import Device, Gate
from slurmgpu.node.processes import ProcessLists
from slurmgpu.node.readings import Kind, Metric, Probe, Reading, Row, Tier

_UNKNOWN = 999


def _prepare(gate: Gate, device: Device, slot: int) -> Probe | None:
    lists = ProcessLists(gate, device)
    if not lists.available:
        return None
    gate.process_lists[device.uuid] = lists
    second, third, fourth = slot + 1, slot + 2, slot + 3

    def probe(row: Row) -> int:
        code, processes = lists.processes()
        if code:
            return code
        if processes is None:
            return _UNKNOWN
        graphics = sum(process.kind == "graphics" for process in processes)
        memories = [process.mem_bytes for process in processes if process.mem_bytes is not None]
        row[slot] = len(processes) - graphics
        row[second] = graphics
        uses = lists.uses()
        row[fourth] = sum(use.sm_util_pct for use in uses) if lists.has_uses else None
        row[third] = sum(memories) if len(memories) == len(processes) else None
        return 0

    return probe


READINGS = (
    Reading(
        (
            Metric("compute_processes", 0, 1 << 20, Kind.STATE),
            Metric("graphics_processes", 0, 1 << 20, Kind.STATE),
            Metric("processes_mem_bytes", 0, 1 << 44),
            Metric("processes_sm_util_pct", 0, 10_000),
        ),
        Tier.MEDIUM,
        _prepare,
        "nvmlDeviceGetComputeRunningProcesses",
        mig="both",
    ),
)
