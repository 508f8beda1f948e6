"""Spool folders into the store."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from slurmgpu.store.writer import Writer
from slurmgpu.wire.segment import SUFFIX, read

log = logging.getLogger(__name__)

_ASIDE = "bad"


@dataclass(slots=True)
class Taken:
    """What a pass over the spools did."""

    written: int = 0
    repeated: int = 0
    aside: int = 0
    newest_ms: int = 0

    def __bool__(self) -> bool:
        return bool(self.written or self.repeated or self.aside)


def folders_of(patterns: Iterable[str]) -> list[Path]:
    """The spool folders that patterns such as ``/shared/spool/*`` name now."""
    found = (Path(name) for pattern in patterns for name in glob.glob(pattern))  # noqa: PTH207 - absolute patterns
    return sorted({folder for folder in found if folder.is_dir()})


class Collector:
    """Takes the segments of spool folders, oldest first and in turn from each; a segment goes when it is written."""

    def __init__(self, writer: Writer, patterns: Iterable[str]) -> None:
        self._writer = writer
        self._patterns = tuple(patterns)

    def collect(self) -> Taken:
        """One pass over all folders. Raises SQLAlchemyError when the database fails; the segments stay."""
        taken = Taken()
        for path in self._segments():
            try:
                head, records = read(path)
                new = self._writer.write(head, records)
            except FileNotFoundError:
                continue  # another collector has it
            except OSError as error:
                log.error("%s: %s", path, error.strerror or error)
                continue
            except ValueError as error:  # SegmentError, or a record that makes no sense
                self._set_aside(path, error)
                taken.aside += 1
                continue
            if new:
                taken.written += 1
                taken.newest_ms = max(taken.newest_ms, head.created_ms)
            else:
                taken.repeated += 1
            path.unlink(missing_ok=True)
        return taken

    def _segments(self) -> Iterator[Path]:
        per_folder = [sorted(folder.glob(f"[!.]*{SUFFIX}")) for folder in folders_of(self._patterns)]
        return (path for path in chain.from_iterable(zip_longest(*per_folder)) if path is not None)

    @staticmethod
    def _set_aside(path: Path, error: ValueError) -> None:
        folder = path.parent / _ASIDE
        try:
            folder.mkdir(exist_ok=True)
            path.rename(folder / path.name)
        except OSError as failed:
            log.error("%s: %s; it cannot be set aside: %s", path, error, failed.strerror or failed)
        else:
            log.error("%s: %s; set aside in %s", path.name, error, folder)
