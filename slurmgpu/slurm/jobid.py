"""Job ids in every form that Slurm accepts or prints.

=====================  ==========================================================================
``123``                a job, by its raw id, its array's id or its het job's id
``123_4``              one task of an array
``123_[1,3-5:2%2]``    a set of tasks; ``:2`` is the step of a range, ``%2`` how many may run at once
``123_*``              all tasks of an array
``123+1``              one component of a het job
``s0123456789ABC``     SLUID (Slurm 25.11 and later): ``s`` and 13 characters of Crockford's base 32
=====================  ==========================================================================

All but a set may carry a step: ``.0``, ``.batch``, ``.extern``, ``.interactive``, ``.TBD``, ``.0+1`` (one
component of a het step). Source: sacct(1), squeue(1), scancel(1).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from slurmgpu.slurm._text import shown, split_outside

MAX_JOB_ID = 0xFFFF_FFFD  # Slurm's NO_VAL and INFINITE are the two numbers above it
MAX_STEP_ID = 0xFFFF_FFF0
MAX_HET_OFFSET = 99_999  # Slurm has far fewer; the bound keeps texts short
MAX_TASK_ID = 4_000_000  # MaxArraySize is at most 4000001

_ACCEPTED = "accepted are 123, 123_4, 123_[1,3-5], 123+1 and SLUIDs, all but sets with a step: .0, .batch"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans("OIL", "011")
_RANGE = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7}))?)?")
_TASKS = re.compile(r"([^%]*)(?:%([0-9]{1,7}))?")
_JOB = re.compile(
    r"(?:(?P<job>[0-9]{1,10})"
    r"(?:_(?P<task>[0-9]{1,7})|_(?P<every>\*)|_\[(?P<tasks>[^][]*)\]|\+(?P<het>[0-9]{1,5}))?"
    r"|(?P<sluid>[sS][0-9A-Za-z]{13}))"
    r"(?:\.(?P<step>[0-9]{1,10}|[A-Za-z]+)(?:\+(?P<component>[0-9]{1,5}))?)?"
)


class JobIdError(ValueError):
    """What is wrong with a job id, in one line that shows the text and what is accepted."""


class StepName(StrEnum):
    """Steps that have a name instead of a number."""

    BATCH = "batch"
    EXTERN = "extern"
    INTERACTIVE = "interactive"
    TBD = "TBD"  # a step that waits for resources


_STEP_NAMES = {name.lower(): name for name in StepName}


def _check_offset(offset: int | None) -> None:
    if offset is not None and not 0 <= offset <= MAX_HET_OFFSET:
        raise JobIdError(f"het components go from 0 to {MAX_HET_OFFSET}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a job; ``component`` is its part of a het step."""

    id: int | StepName
    component: int | None = None

    def __post_init__(self) -> None:
        _check_offset(self.component)
        if isinstance(self.id, StepName):
            if self.component is not None:
                raise JobIdError(f"only numbered steps have components, not .{self.id}")
        elif not 0 <= self.id <= MAX_STEP_ID:
            raise JobIdError(f"step {self.id} is out of range")

    def __str__(self) -> str:
        return f"{self.id}" if self.component is None else f"{self.id}+{self.component}"


def _normal(ranges: tuple[range, ...]) -> tuple[range, ...]:
    """Sorted, each range ending at its last task, neighbours of step 1 joined."""
    trimmed = (range(r[0], r[-1] + 1, r.step if len(r) > 1 else 1) for r in ranges)
    joined: list[range] = []
    for tasks in sorted(trimmed, key=lambda r: (r.step, r.start, r.stop)):
        before = joined[-1] if joined else None
        if before is not None and before.step == tasks.step == 1 and tasks.start <= before.stop:
            joined[-1] = range(before.start, max(before.stop, tasks.stop))
        elif tasks != before:
            joined.append(tasks)
    return tuple(sorted(joined, key=lambda r: (r.start, r.stop, r.step)))


def _range_text(tasks: range) -> str:
    if len(tasks) == 1:
        return f"{tasks[0]}"
    return f"{tasks[0]}-{tasks[-1]}" + (f":{tasks.step}" if tasks.step > 1 else "")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks of an array, kept as ranges: four million tasks cost no more than one.

    ``at_once`` is the ``%N`` that Slurm shows: how many of them may run at the same time.
    """

    ranges: tuple[range, ...]
    at_once: int | None = None

    def __post_init__(self) -> None:
        if not self.ranges:
            raise JobIdError("a task set may not be empty")
        for tasks in self.ranges:
            if not tasks or tasks.step < 1:
                raise JobIdError("a range of tasks goes up, as 1-5 or 1-9:2")
            if tasks[0] < 0 or tasks[-1] > MAX_TASK_ID:
                raise JobIdError(f"task ids go from 0 to {MAX_TASK_ID}")
        if self.at_once is not None and self.at_once < 0:
            raise JobIdError("%N may not be negative")
        object.__setattr__(self, "ranges", _normal(self.ranges))

    @classmethod
    def parse(cls, text: str) -> TaskSet:
        """Read ``1,3-5:2%2``, without brackets. Raises JobIdError."""
        if "..." in text:
            raise JobIdError(f"task list {shown(text)} is cut short: set SLURM_BITSTR_LEN=0 where it is made")
        whole = _TASKS.fullmatch(text)
        if not whole:
            raise JobIdError(f"task list {shown(text)}: % must be followed by a number")
        ranges = []
        for part in whole[1].split(","):
            match = _RANGE.fullmatch(part)
            if not match:
                raise JobIdError(
                    f"task list {shown(text)}: {shown(part)} is no task, as 4, nor a range, as 1-5 or 1-9:2"
                )
            first, last, step = match.groups()
            ranges.append(range(int(first), int(last or first) + 1, _positive(step or "1")))
        return cls(tuple(ranges), int(whole[2]) if whole[2] else None)

    def __iter__(self) -> Iterator[int]:
        """The tasks in order, each once, made as they are asked for."""
        last = -1
        for task in self._in_order():
            if task != last:
                yield task
            last = task

    def __contains__(self, task: object) -> bool:
        return any(task in tasks for tasks in self.ranges)

    def __len__(self) -> int:
        if all(tasks.step == 1 for tasks in self.ranges) or len(self.ranges) == 1:
            return sum(map(len, self.ranges))
        return sum(1 for _ in self)

    def __str__(self) -> str:
        limit = "" if self.at_once is None else f"%{self.at_once}"
        return ",".join(map(_range_text, self.ranges)) + limit

    def _in_order(self) -> Iterator[int]:
        # Ranges of step 1 are sorted and apart; others may interleave.
        if all(tasks.step == 1 for tasks in self.ranges):
            return chain.from_iterable(self.ranges)
        return heapq.merge(*self.ranges)


ALL_TASKS = TaskSet((range(MAX_TASK_ID + 1),))


@dataclass(frozen=True, slots=True)
class JobRef:
    """What a person or Slurm calls a job. ``str()`` gives the one form that Slurm itself would print.

    Exactly one of ``job_id`` and ``sluid`` is given, at most one of ``task``, ``tasks`` and ``het_offset``.
    ``job_id`` is the raw id only if none of these three is given, and even then it may stand for a whole
    array or het job.
    """

    job_id: int | None = None
    task: int | None = None
    tasks: TaskSet | None = None
    het_offset: int | None = None
    sluid: str | None = None
    step: Step | None = None

    def __post_init__(self) -> None:
        if (self.job_id is None) == (self.sluid is None):
            raise JobIdError("a job has either a number or a SLUID")
        if self.job_id is not None and not 1 <= self.job_id <= MAX_JOB_ID:
            raise JobIdError(f"job ids go from 1 to {MAX_JOB_ID}")
        if self.sluid is not None:
            object.__setattr__(self, "sluid", _sluid(self.sluid))
        parts = sum(part is not None for part in (self.task, self.tasks, self.het_offset))
        if parts > (self.sluid is None):
            raise JobIdError("a job has a task, a set of tasks or a het offset, and a SLUID has none of them")
        _check_offset(self.het_offset)
        if self.task is not None and not 0 <= self.task <= MAX_TASK_ID:
            raise JobIdError(f"task ids go from 0 to {MAX_TASK_ID}")
        if self.tasks is not None and self.step is not None:
            raise JobIdError("a set of tasks has no step")
        if self.het_offset is not None and self.step is not None and self.step.component is not None:
            raise JobIdError("a het component has no steps with components")

    def __str__(self) -> str:
        text = self.sluid or str(self.job_id)
        if self.task is not None:
            text += f"_{self.task}"
        elif self.tasks is not None:
            text += "_*" if self.tasks == ALL_TASKS else f"_[{self.tasks}]"
        elif self.het_offset is not None:
            text += f"+{self.het_offset}"
        return text if self.step is None else f"{text}.{self.step}"


def parse_job(text: str) -> JobRef:
    """Read one job id. Raises JobIdError."""
    match = _JOB.fullmatch(text)
    if not match:
        raise JobIdError(f"job id {shown(text)}: {_ACCEPTED}")
    part = match.groupdict()
    try:
        return JobRef(
            job_id=_number(part["job"]),
            task=_number(part["task"]),
            tasks=ALL_TASKS if part["every"] else _task_set(part["tasks"]),
            het_offset=_number(part["het"]),
            sluid=part["sluid"],
            step=None if part["step"] is None else _step(part["step"], _number(part["component"])),
        )
    except JobIdError as error:
        raise JobIdError(f"job id {shown(text)}: {error}") from None


def parse_jobs(text: str) -> list[JobRef]:
    """Read job ids with commas between them; the commas of a set do not split. Raises JobIdError."""
    try:
        parts = split_outside(text, "[]")
    except ValueError as error:
        raise JobIdError(f"job ids {shown(text)}: {error}") from None
    if not parts:
        raise JobIdError(f"job ids {shown(text)}: the list is empty; {_ACCEPTED}")
    return [parse_job(part.strip()) for part in parts]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _task_set(text: str | None) -> TaskSet | None:
    return None if text is None else TaskSet.parse(text)


def _positive(text: str) -> int:
    if not int(text):
        raise JobIdError("the step of a range may not be 0")
    return int(text)


def _step(text: str, component: int | None) -> Step:
    if text.isdigit():
        return Step(int(text), component)
    name = _STEP_NAMES.get(text.lower())
    if name is None:
        raise JobIdError(f"{shown(text)} is no step: a number, batch, extern, interactive or TBD")
    return Step(name, component)


def _sluid(text: str) -> str:
    """The one form of a SLUID: small ``s``, capitals, and digits for the letters that look like them."""
    digits = text[1:].upper().translate(_LOOKALIKES)
    if text[:1].lower() != "s" or len(digits) != 13 or not set(digits) <= set(_CROCKFORD):
        raise JobIdError(f"a SLUID is s and 13 of the characters {_CROCKFORD}")
    if digits[0] > "F" or not digits.strip("0"):
        raise JobIdError("this SLUID is out of range")  # 13 characters hold 65 bits, a SLUID has 64
    return f"s{digits}"
