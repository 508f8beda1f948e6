"""Who owns which GPU, from all that this node can know: marks, processes, and what was open before a restart."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from slurmgpu.node.clock import Clock
from slurmgpu.node.devices import Devices
from slurmgpu.node.identity import Identity
from slurmgpu.node.marks import Mark, MarkFolder, order
from slurmgpu.node.nvml import Device
from slurmgpu.node.ownership import News, Ownership
from slurmgpu.node.pids import Pids
from slurmgpu.node.processes import ProcessLists
from slurmgpu.node.shares import Use, Uses
from slurmgpu.node.witness import Witness
from slurmgpu.wire.records import Allocation, Record, from_plain, to_plain

log = logging.getLogger(__name__)

_KEPT = "open.json"
_SLACK_S = 1.0


class Attribution:
    """Follows marks and processes, and tells :class:`Devices` whose each GPU is."""

    def __init__(
        self, run_dir: Path, identity: Identity, devices: Devices, pids: Pids, clock: Clock, boot_id: str
    ) -> None:
        self._folder = MarkFolder(run_dir)
        self._kept = run_dir / _KEPT
        self._identity = identity
        self._ownership = ownership = Ownership(identity)
        self._devices = devices
        self._pids = pids
        self._clock = clock
        self._boot_id = boot_id
        self._witness = Witness(pids, clock.wall)
        self._saved: list[Allocation] = []
        self._finished: list[Mark] = []
        self._devices_changed = False
        devices.on_devices = self._set_devices
        devices.owners_of = ownership.owners
        devices.ordinal_of = ownership.ordinal_of
        devices.uses_of = self._uses

    def prepare(self) -> None:
        """Make the folder of the marks. Raises MarksError."""
        self._folder.prepare()

    def resume(self) -> list[Record]:
        """At the start: what marks wait, and what was open without marks."""
        records = self.follow()
        return records + self._use(self._ownership.go_on(self._load(), self._clock.wall()))

    def changed(self) -> bool:
        """Whether a mark came or went since the last time."""
        return self._folder.changed()

    def follow(self) -> list[Record]:
        """Take in new marks."""
        wall, uptime = self._clock.wall(), self._clock.uptime()
        marks = [mark.by(wall, uptime) for mark in self._folder.scan() if not self._is_of_an_earlier_boot(mark, uptime)]
        if marks:
            self._identity.take(marks[0])
        return self._use(self._ownership.take(sorted(marks, key=order)))

    def _is_of_an_earlier_boot(self, mark: Mark, uptime: float) -> bool:
        """Where the folder outlives a reboot; what was open then has ended."""
        if mark.uptime_s is None or mark.uptime_s <= uptime + _SLACK_S:
            return False
        log.warning("mark %s is from before the last boot; removed", mark.path.name)
        self._folder.remove(mark)
        return True

    def after_round(self) -> list[Record]:
        """After a round of readings: what a new list of GPUs, or a new look at the processes, says of owners."""
        records: list[Record] = []
        if self._devices_changed:
            self._devices_changed = False
            records += self._use(self._ownership.resolve_again())
        if self._devices.processes_are_fresh:
            records += self._look_at_processes()
        return records

    def _look_at_processes(self) -> list[Record]:
        records = self.follow() if self.changed() else []
        look = self._witness.look(
            self._devices.processes(),
            self._ownership.knows,
            self._ownership.job_of_sluid,
            count_jobs=bool(self._ownership.witnessed()),
        )
        return records + self._use(self._ownership.witness(self._clock.wall(), look))

    def clock_was_set(self, by_s: float) -> None:
        """The wall clock moved against the monotonic one."""
        self._ownership.clock_was_set(by_s)

    def done(self) -> None:
        """What was learnt is safe: marks of what has ended may go."""
        for mark in self._finished:
            self._folder.remove(mark)
            self._ownership.forget(mark)
        self._finished.clear()

    def open_ids(self) -> tuple[str, ...]:
        """The allocations that are open."""
        return tuple(allocation.id for allocation in self._ownership.open_allocations())

    def _use(self, news: News) -> list[Record]:
        self._finished += news.finished
        if news.changes:
            self._devices.read({change.gpu for change in news.changes})
            for change in news.changes:
                self._devices.change_owner(change.t, change.gpu, change.owners)
        self._save(self._ownership.witnessed())
        return list(news.records)

    def _set_devices(self, devices: list[Device]) -> None:
        self._ownership.set_devices(devices)
        self._devices_changed = True

    def _uses(self, uuid: str, lists: ProcessLists) -> Uses:
        """What each owner's processes do on a shared GPU."""
        sm = {use.pid: use.sm_util_pct for use in lists.latest_uses}
        found: dict[str, Use] = {}
        for process in lists.latest or ():
            owner = self._owner_of(uuid, process.pid)
            use = found.setdefault(owner, Use(0 if lists.has_uses else None, 0))
            if use.sm_pct is not None:
                use.sm_pct += sm.pop(process.pid, 0)
            known = use.mem_bytes is not None and process.mem_bytes is not None
            use.mem_bytes = (use.mem_bytes or 0) + (process.mem_bytes or 0) if known else None
        if not lists.has_uses or lists.latest is None:
            return {"": Use(None, None), **found}
        return found

    def _owner_of(self, uuid: str, pid: int) -> str:
        job = self._pids.job_of(pid) or self._pids.by_environment(pid)
        for owner in self._ownership.owners(uuid):
            if job is not None and self._ownership.is_of(owner, job):
                return owner
        return ""

    # -- allocations without marks outlive the daemon in a file beside the marks

    def _save(self, allocations: list[Allocation]) -> None:
        if allocations == self._saved:
            return
        part = self._kept.with_suffix(".part")
        try:
            text = json.dumps({"boot_id": self._boot_id, "allocations": [to_plain(item) for item in allocations]})
            part.write_text(text, encoding="utf-8")
            part.rename(self._kept)
        except OSError as error:
            log.warning("%s: %s; a restart will find jobs without marks anew", self._kept, error.strerror or error)
        self._saved = allocations

    def _load(self) -> list[Allocation]:
        try:
            kept = json.loads(self._kept.read_text(encoding="utf-8"))
            if kept["boot_id"] != self._boot_id:
                return []
            found = [from_plain(item) for item in kept["allocations"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s: %s; passed over", self._kept, error)
            return []
        return [item for item in found if isinstance(item, Allocation)]
