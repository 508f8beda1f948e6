"""Facts of runs from Slurm's accounting: many ids by one question.

``sacct`` is asked where it is there, and pyslurm only where it is not. pyslurm gives the newest record of an id alone:
earlier runs of a requeued job and the parts of a resized one would be lost. It has no SLUID, and is no cheaper: each
question needs a process, too.

Of sacct's forms ``--json`` is taken from Slurm 24.11 on, the text before: exit codes in the JSON of 22.05 are 0 for
every job that ended by itself. The text is also taken where Slurm was built without JSON, and after an answer too large
to be read, for users decide how long the command lines and comments in the JSON are.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection

from slurmgpu.slurm import pyslurm_jobs, sacct
from slurmgpu.slurm._json import has_no_json
from slurmgpu.slurm.commands import Commands
from slurmgpu.slurm.facts import JobFacts, SlurmUnavailableError

log = logging.getLogger(__name__)

MAX_IDS = 2000  # 22 kB of arguments; one argument may have 128 kB

_PYSLURM, _JSON, _TEXT = "pyslurm", "sacct --json", "sacct"
_FIRST_S = 1_000_000  # sacct takes no earlier epoch seconds


class Accounting:
    """Asks in one way for the life of the process, chosen at the first question."""

    def __init__(self, commands: Commands, use_pyslurm: bool = True) -> None:
        self.commands = commands
        self._use_pyslurm = use_pyslurm
        self._source = ""
        self._columns: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """``pyslurm``, ``sacct --json`` or ``sacct``. Raises SlurmUnavailableError if there is none of them."""
        if not self._source:
            self._choose()
        return self._source

    def runs(self, job_ids: Collection[int], since_s: int) -> list[JobFacts]:
        """Every run of these raw ids that was alive at or after ``since_s``, newest first; unknown ids are absent.

        The parts of a resized run have the same start: the first of them is the one that counts. At most MAX_IDS
        ids, which are one Slurm command. Raises SlurmUnavailableError.
        """
        wanted = frozenset(job_ids)
        if len(wanted) > MAX_IDS:
            raise ValueError(f"{len(wanted)} job ids at once; at most {MAX_IDS}")
        if not wanted:
            return []
        if self.source == _PYSLURM:
            found = pyslurm_jobs.ask(wanted, self.commands.deadline_s)
        else:
            found = self._ask_sacct(wanted, since_s)
        # The leader of an array or het job brings its members.
        alive = [run for run in found if run.job_id in wanted and (run.end_s is None or run.end_s >= since_s)]
        return sorted(alive, key=lambda run: (run.end_s is None, run.end_s or 0, run.submit_s or 0), reverse=True)

    def _choose(self) -> None:
        if self.commands.find("sacct") is None and self._use_pyslurm and pyslurm_jobs.is_installed():
            self._source = _PYSLURM
            return
        known = {field.lower() for field in self.commands.run("sacct", "--helpformat").split()}
        newer = tuple(column for column in sacct.NEWER_COLUMNS if column.lower() in known)
        self._columns = (*sacct.COLUMNS, *newer, sacct.LAST_COLUMN)
        self._source = _JSON if newer == sacct.NEWER_COLUMNS else _TEXT

    def _ask_sacct(self, wanted: Collection[int], since_s: int) -> list[JobFacts]:
        # Without -S sacct looks from midnight on; a start after its own clock is an error.
        start_s = min(max(since_s, _FIRST_S), int(time.time()))
        ids = ",".join(map(str, sorted(wanted)))
        words = ("--local", "-a", "-X", "-D", "-S", f"uts{start_s}", "-j", ids)
        if self._source == _JSON:
            try:
                return sacct.parse_json(self.commands.run("sacct", *words, "--json"))
            except SlurmUnavailableError as error:
                if not has_no_json(error):
                    raise
                log.warning("%s; sacct is asked for text from now on", error)
                self._source = _TEXT
        delimiter = f"\x1f{secrets.token_hex(8)}\x1f"
        columns = ("-o", ",".join(self._columns), f"--delimiter={delimiter}")
        return sacct.parse_text(self.commands.run("sacct", *words, "-n", "-p", *columns), self._columns, delimiter)
