"""The text of ``scontrol show job -d``: which GPUs of which node a running job holds.

Slurm does not quote what users wrote (job name, comment, paths), so a text may look like Slurm's own. Only
what stands where no user text can be is believed: ids before the job's name, everything else between the name
and ``Command=``. A record that does not have each of Slurm's own keys exactly once, or whose id occurs twice,
is in doubt, and what it says is left out; so is the record after a broken one. A user who writes whole
records with newlines into a comment can still invent a job that Slurm does not know: ask for jobs by id, or
use ``--json`` (24.11 and later).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurmgpu.slurm.hostlist import HostlistError, expand
from slurmgpu.slurm.indices import Gres, GresError, parse_gres

_HEAD = re.compile(r"JobId=([0-9]{1,10})((?: \w+=\S*)*?) JobName=(.*)", re.DOTALL)
# These stand in every record.
_LANDMARKS = ("UserId", "JobState", "StartTime", "NodeList", "MinCPUsNode", "Command")
_NODES = re.compile(r"\s+Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)(?!\S)")
_NAME_TAIL = re.compile(r"(?: SLUID=\S+)?(?: HetJobIdSet=\S+)?$")


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One record of ``scontrol show job -d``.

    ``doubt`` is empty, or says why the record is not believed: then ``sluid``, ``state``, ``start`` and
    ``gres`` are empty.
    """

    job_id: int  # the raw id, also of array tasks and het components
    name: str = ""
    array_job_id: int | None = None
    array_task: int | None = None  # None also for the one record of all waiting tasks
    het_job_id: int | None = None
    het_offset: int | None = None
    sluid: str = ""  # from Slurm 25.11; not read with one_line, where a name could end like one
    state: str = ""
    start: str = ""  # as printed; times.read_time reads it
    gres: Mapping[str, tuple[Gres, ...]] = field(default_factory=dict)  # by node; empty unless the job runs
    doubt: str = ""


def parse_job_detail(text: str, one_line: bool = False) -> list[JobDetail]:
    """Read the records of ``scontrol show job -d``, with ``one_line`` those of ``scontrol -o show job -d``.

    Without ``-o`` the text is harder to forge. Lines before the first record, such as errors, are skipped.
    """
    records = _split(text, one_line)
    doubts = [_doubt(record) for record in records]
    times_seen = Counter(record.job_id for record in records)
    details = []
    for record, doubt, doubt_before in zip(records, doubts, ["", *doubts], strict=False):
        if times_seen[record.job_id] > 1:
            doubt = doubt or "its id occurs twice; a user's text may hold newlines"
        elif doubt_before:
            doubt = doubt or "the record before it is not whole; a user's text may hold newlines"
        details.append(_head(record, doubt) if doubt else _detail(record))
    return details


@dataclass(frozen=True, slots=True)
class _Record:
    head: re.Match[str]  # of the first line
    lines: tuple[str, ...]  # the others
    one_line: bool

    @property
    def job_id(self) -> int:
        return int(self.head[1])

    @property
    def body(self) -> str:
        """Where all but the ids and the name stands."""
        return self.head[0] if self.one_line else "\n".join(["", *self.lines])

    def mark(self, key: str) -> str:
        """How a key looks where it begins a line, or with ``-o`` where it can be."""
        return f" {key}=" if self.one_line else f"\n   {key}="


def _split(text: str, one_line: bool) -> list[_Record]:
    """Only "\n" ends a line of Slurm's: what else looks like a line end is a user's."""
    found: list[tuple[re.Match[str], list[str]]] = []
    before = ""
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head and (one_line or not before.strip()):
            found.append((head, []))
        elif found and line.strip():
            found[-1][1].append(line)
        before = line
    return [_Record(head, tuple(lines), one_line) for head, lines in found]


def _doubt(record: _Record) -> str:
    """Why a record is not as Slurm writes it, or an empty text."""
    if any(record.one_line or not line.startswith("   ") for line in record.lines):
        return "a line in it is not Slurm's; a user's text may hold newlines"
    body = record.body
    for key in _LANDMARKS:
        if body.count(record.mark(key)) != 1:
            return f"{key}= is missing or not alone; a user's text may look like Slurm's"
    if not record.one_line and body.count(record.mark("SLUID")) > 1:
        return "SLUID= is not alone; a user's text may look like Slurm's"
    return ""


def _detail(record: _Record) -> JobDetail:
    """What a record says that has its landmarks once and in order."""
    until_node_list, after = record.body.split(record.mark("NodeList"))
    try:
        gres = _gres(after.split(record.mark("MinCPUsNode"))[0])
    except (GresError, HostlistError) as error:
        return _head(record, str(error))
    return replace(
        _head(record),
        sluid="" if record.one_line else _word_after(record.mark("SLUID"), until_node_list),
        state=_word_after(record.mark("JobState"), until_node_list),
        start=_word_after(record.mark("StartTime"), until_node_list),
        gres=gres,
    )


def _head(record: _Record, doubt: str = "") -> JobDetail:
    """What stands up to the job's name, which ends the first line."""
    _, pairs, name = record.head.groups()
    ids = dict(pair.split("=", 1) for pair in pairs.split())
    number = {key: int(value) for key, value in ids.items() if re.fullmatch("[0-9]{1,10}", value)}
    if record.one_line:
        name = _NAME_TAIL.sub("", name.partition(" UserId=")[0])
    return JobDetail(
        job_id=record.job_id,
        name=name,
        array_job_id=number.get("ArrayJobId"),
        array_task=number.get("ArrayTaskId"),
        het_job_id=number.get("HetJobId"),
        het_offset=number.get("HetJobOffset"),
        doubt=f"record of job {record.job_id}: {doubt}" if doubt else "",
    )


def _gres(text: str) -> dict[str, tuple[Gres, ...]]:
    """GRES by node, from the lines ``Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0-1)``."""
    return {node: parse_gres(gres) for nodes, gres in _NODES.findall(text) for node in expand(nodes)}


def _word_after(mark: str, text: str) -> str:
    words = text.partition(mark)[2].split(maxsplit=1)
    return words[0] if words else ""
