"""What ``--json`` prints, in the shapes of four releases.

A number that may be missing is a number or null in 22.05, later ``{"set":true,"infinite":false,"number":15}``; a state
is a word or a list of words.
"""

from __future__ import annotations

import json
import re
from typing import Any

from slurmgpu.slurm.facts import NoAnswerReadError, SlurmUnavailableError

_NOT_SET = 0xFFFFFFFE  # NO_VAL; INFINITE is the next one

# These say more than the base state that stands beside them.
_STRONGER = ("REQUEUED", "RESIZING", "REVOKED")

_NO_JSON = re.compile(r"json|serializer|data_parser", re.IGNORECASE)


def jobs_of(text: str, command: str) -> list[dict[str, Any]]:
    """The records. Raises SlurmUnavailableError for the error that takes their place: the exit status may be 0."""
    try:
        answer = json.loads(text, strict=False)
        errors = answer.get("errors") or []
        jobs = answer["jobs"] if not errors else answer.get("jobs") or []
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswerReadError(f"{command} --json: unreadable answer: {type(error).__name__}: {error}") from None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise NoAnswerReadError(f"{command} --json: unreadable answer: jobs are no list of records")
    if errors and not jobs:
        first = errors[0] if isinstance(errors, list) and isinstance(errors[0], dict) else {}
        words = [word_of(first.get(key)) for key in ("source", "description", "error")]
        daemon = "slurmdbd" if command == "sacct" else "slurmctld"
        raise SlurmUnavailableError(f"{command}: {': '.join(word for word in words if word)}; is {daemon} up?")
    return jobs


def number_of(value: Any) -> int | None:
    """A whole number, None where it is not set (also -2) or infinite."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return int(value) if value not in (_NOT_SET, _NOT_SET + 1, float("inf")) else None


def text_of(value: Any) -> str:
    """A text of Slurm's or of a user's, empty where there is none; never with halves of surrogate pairs."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def word_of(value: Any) -> str:
    """A text of Slurm's own; its words for "nothing" become the empty text."""
    text = text_of(value).strip()
    return "" if text in ("None assigned", "(null)", "Unknown", "None") else text


def states_of(value: Any) -> list[str]:
    """The states and flags of a job: ``RUNNING``, ``["PENDING","REQUEUED"]``, ``CANCELLED by 1003``."""
    parts = value if isinstance(value, list) else [value]
    return [words[0].upper() for part in parts if (words := text_of(part).split())]


def base_state(states: list[str]) -> str:
    """The one word for a run; REQUEUED wins over the PENDING of the run that comes next."""
    return next((state for state in _STRONGER if state in states), states[0] if states else "")


def dict_of(value: Any) -> dict[str, Any]:
    """A record in a record, empty where there is none."""
    return value if isinstance(value, dict) else {}


def has_no_json(error: SlurmUnavailableError) -> bool:
    """Whether the same question may be answered as text: no ``--json``, no serializer, or an unreadable answer."""
    return isinstance(error, NoAnswerReadError) or bool(_NO_JSON.search(str(error)))
