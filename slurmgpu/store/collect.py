"""Spool folders into the store."""

from __future__ import annotations

import glob
import logging
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from slurmgpu.store.engine import first_line
from slurmgpu.store.writer import Writer
from slurmgpu.wire.segment import SUFFIX, read

log = logging.getLogger(__name__)

_ASIDE = "bad"
_BACK_OFF_S = (1.0, 300.0)


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

    def stay(self, every_s: float) -> None:
        """Passes until SIGTERM or SIGINT. What the database refuses stays in the spools and is tried again."""
        ends = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # a pass is never broken off
        back_off_s = _BACK_OFF_S[0]
        log.info("collecting every %g s", every_s)
        while True:
            pause_s = every_s
            try:
                taken = self.collect()
            except SQLAlchemyError as error:
                pause_s, back_off_s = back_off_s, min(2 * back_off_s, _BACK_OFF_S[1])
                log.error("the database failed: %s; tried again in %g s", first_line(error), pause_s)
            else:
                back_off_s = _BACK_OFF_S[0]
                if taken.written or taken.aside:
                    log.info("%d segments taken, %d set aside", taken.written, taken.aside)
            if signal.sigtimedwait(ends, pause_s) is not None:
                log.info("stopped")
                return

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
