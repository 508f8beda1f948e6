"""Durable segments: written whole, synced, numbered, and kept until the collector has them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from slurmgpu.node.identity import Identity
from slurmgpu.wire.records import Record
from slurmgpu.wire.segment import Head, pack

log = logging.getLogger(__name__)


class SpoolError(Exception):
    """The spool cannot be used; the message says what to do."""


class Spool:
    """The segments of one run of slurmgpud. Names sort in the order of writing."""

    def __init__(self, folder: Path, identity: Identity, boot_id: str) -> None:
        self.folder = folder
        self._identity = identity
        self._boot_id = boot_id
        # New at each start, so that a number is never given twice, whatever becomes of the folder.
        self._stream = f"{time.time_ns() // 1_000_000:013d}-{boot_id[:8]}-{os.getpid()}"
        self._seq = 0

    def prepare(self) -> None:
        """Make the folder, and clear what an unfinished write left. Raises :class:`SpoolError`."""
        try:
            self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            for leftover in self.folder.glob(".*.part"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{self.folder}: {error.strerror}: set node.spool_dir to a folder on a disk") from error

    def write(self, records: Sequence[Record]) -> None:
        """One segment, on the disk when this returns. Raises OSError; then nothing of it was kept."""
        names = self._identity
        head = Head(names.cluster, names.node, self._boot_id, self._stream, self._seq, time.time_ns() // 1_000_000)
        part = self.folder / f".{head.file_name}.part"
        try:
            with part.open("wb") as file:
                file.write(pack(head, records))
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.folder / head.file_name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self._sync_folder()
        self._seq += 1

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
