"""What Slurm's accounting says of one run of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A run in one of these is over. Not in RESIZING: the run goes on, with the same start, in a newer record.
FINAL_STATES: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REQUEUED",
        "REVOKED",
        "TIMEOUT",
    }
)


class SlurmUnavailableError(Exception):
    """Slurm could not be asked: one line that says what failed and what to do."""


class NoAnswerReadError(SlurmUnavailableError):
    """There is an answer, but it is too large to be read or not of the form that we know."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One run; times are epoch seconds, None means that Slurm does not say.

    ``name`` is the user's text as it is, with control characters: escape it where it is shown. sacct's text shows
    exit codes from 128 on less 128 (``exit 200`` is 72): an epilog's word on them is better.
    """

    job_id: int  # the raw id, which nodes know
    start_s: int | None
    end_s: int | None
    submit_s: int | None  # changes at a requeue
    sluid: str | None  # sacct has it since 24.11, by --json since 26.05
    restarts: int | None
    name: str
    array_job_id: int | None
    array_task: int | None  # None also for the one record of the tasks that wait
    het_job_id: int | None
    het_offset: int | None
    user: str
    account: str
    partition: str
    qos: str
    state: str  # one upper-case word: RUNNING, CANCELLED, REQUEUED; never "CANCELLED by 1003"
    exit_code: int | None  # None until the run is over
    exit_signal: int | None  # 0: none
    time_limit_s: int | None  # None: unlimited or unknown
    nodelist: str  # as Slurm writes it, such as n[1-2]; hostlist.expand reads it
    gpus: int | None  # allocated; None where accounting counts none: no GPU, shares of one, or not in its TRES

    @property
    def is_final(self) -> bool:
        """Whether the run is over and its record stays as it is."""
        return self.state in FINAL_STATES
