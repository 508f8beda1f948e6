"""The collector and Slurm: one question an interval, facts where they belong, patience when Slurm is away."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from processes import wait_for
from sqlalchemy import Engine, select

from slurmgpu.collect import accounts as accounts_module
from slurmgpu.collect.accounts import Accounts, match
from slurmgpu.config import SlurmConfig
from slurmgpu.slurm.facts import JobFacts, SlurmUnavailableError
from slurmgpu.slurm.live import LiveJob
from slurmgpu.store.schema import event, job, job_gpu, job_node
from slurmgpu.store.writer import Writer
from slurmgpu.wire.records import HeldGpu
from tests.store import making

FACTS = JobFacts(
    job_id=7,
    start_s=0,
    end_s=60,
    submit_s=0,
    sluid=None,
    restarts=0,
    name="train\x1b[31m",
    array_job_id=5,
    array_task=2,
    het_job_id=None,
    het_offset=None,
    user="alice",
    account="research",
    partition="gpu",
    qos="normal",
    state="COMPLETED",
    exit_code=0,
    exit_signal=0,
    time_limit_s=None,
    nodelist="n1",
    gpus=1,
)


class Slurm:
    """What Accounts needs of Accounting and of live.running, and how often it was asked."""

    commands: Any = None

    def __init__(self) -> None:
        self.facts: list[JobFacts] = []
        self.live: list[LiveJob] = []
        self.asked: list[set[int]] = []
        self.asked_live = 0
        self.away = False

    def runs(self, job_ids: Collection[int], since_s: int) -> list[JobFacts]:
        self.asked.append(set(job_ids))
        if self.away:
            raise SlurmUnavailableError("sacct: slurmdbd does not answer")
        return [item for item in self.facts if item.job_id in job_ids]

    def running(self, commands: Any) -> list[LiveJob]:
        self.asked_live += 1
        return self.live


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(accounts_module, "running", made.running)
    return made


def accounts(engine: Engine, slurm: Slurm, every_s: float = 60) -> Accounts:
    return Accounts(engine, SlurmConfig(every=every_s), "", slurm)  # type: ignore[arg-type]


def pass_time(made: Accounts, seconds: range, wall_s: float = 1000.0) -> None:
    for second in seconds:
        made.tick(float(second), wall_s + second)
        pending = made._pending
        if pending is not None:
            wait_for("the answer", 10, pending.done)
            made.tick(float(second), wall_s + second)


def test_one_question_an_interval(engine: Engine, slurm: Slurm) -> None:
    """A thousand jobs, a collector that looks each second, an hour: sixty questions at most, twelve for live jobs."""
    jobs = [making.allocation(n, n, 60_000) for n in range(1, 1001)]
    Writer(engine).write(making.head(0), jobs)
    pass_time(accounts(engine, slurm), range(3600))
    assert len(slurm.asked) <= 60
    assert slurm.asked_live == 12
    assert slurm.asked[0] == set(range(1, 1001))


def test_facts_are_kept_and_asked_for_until_they_are_final(engine: Engine, slurm: Slurm) -> None:
    Writer(engine).write(making.head(99), [making.allocation(7, 500, 60_500)])
    slurm.facts = [replace(FACTS, state="RUNNING", end_s=None)]
    made = accounts(engine, slurm)
    pass_time(made, range(60))
    slurm.facts = [FACTS]
    pass_time(made, range(60, 3600))
    with engine.connect() as connection:
        row = connection.execute(select(job)).one()
    assert (row.name, row.state, row.array_job_id, row.array_task, row.qos) == (
        "train\x1b[31m", "COMPLETED", 5, 2, "normal",
    )  # fmt: skip
    assert (row.slurm_start_s, row.slurm_end_s, row.slurm_gpus, row.is_final) == (0, 60, 1, True)
    assert len(slurm.asked) <= 4  # asked no more once it is final


def test_slurm_away(engine: Engine, slurm: Slurm, caplog: pytest.LogCaptureFixture) -> None:
    """Told once, asked ever less often, and taken up again."""
    Writer(engine).write(making.head(0), [making.allocation(7, 500, 60_500)])
    slurm.away = True
    made = accounts(engine, slurm)
    pass_time(made, range(3600))
    assert len(slurm.asked) <= 6
    assert sum("slurmdbd does not answer" in record.message for record in caplog.records) == 1
    slurm.away, slurm.facts = False, [FACTS]
    pass_time(made, range(3600, 7300))
    with engine.connect() as connection:
        assert connection.execute(select(job.c.state)).scalar() == "COMPLETED"


def test_several_clusters_need_a_name(engine: Engine, slurm: Slurm) -> None:
    Writer(engine).write(making.head(0), [making.allocation(7, 500, None)])
    Writer(engine).write(making.head(1), [replace(making.allocation(7, 900, None), cluster="d")])
    pass_time(accounts(engine, slurm), range(200))
    assert slurm.asked == []
    named = Accounts(engine, SlurmConfig(), "d", slurm)  # type: ignore[arg-type]
    pass_time(named, range(1))
    assert slurm.asked == [{7}]


class TestLive:
    """Jobs that no mark spoke of, and marks that Slurm contradicts."""

    LIVE = LiveJob(7, "RUNNING", 100, None, "alice", ("n1",), {"n1": (1,)})

    def known(self, engine: Engine, *records: Any) -> None:
        gpus = [making.info(f"GPU-{n}", ordinal=n) for n in range(2)]
        idle = [making.block("GPU-1", t * 1000, (t + 1) * 1000) for t in range(100, 400)]
        Writer(engine).write(making.head(400), [*gpus, *idle, *records])

    def test_job_without_marks(self, engine: Engine, slurm: Slurm) -> None:
        self.known(engine)
        slurm.live = [self.LIVE]
        pass_time(accounts(engine, slurm), range(1))
        with engine.connect() as connection:
            place = connection.execute(select(job_node)).one()
            held = connection.execute(select(job_gpu)).one()
        assert (place.source, place.start_ms, place.end_ms) == ("slurm", 100_000, None)
        assert (held.ordinal, held.told, held.covered_ms) == (1, "slurm", 300_000)

    def test_marks_come_later_and_win(self, engine: Engine, slurm: Slurm) -> None:
        """The prolog runs at the first step: until then Slurm's word, from then on the node's."""
        self.known(engine)
        slurm.live = [self.LIVE]
        pass_time(accounts(engine, slurm), range(1))
        mark = replace(making.allocation(7, 300_000, None), gpus=(HeldGpu("GPU-1", 1),), slurm_start_s=100)
        Writer(engine).write(making.head(401), [mark])
        with engine.connect() as connection:
            places = connection.execute(select(job_node).order_by(job_node.c.start_ms)).all()
            assert connection.execute(select(job.c.id)).all() == [(places[0].job_id,)]
        assert [(p.source, p.start_ms, p.end_ms) for p in places] == [
            ("slurm", 100_000, 300_000),
            ("prolog", 300_000, None),
        ]

    @pytest.mark.parametrize(("ordinal", "events"), [(0, 1), (1, 0)])
    def test_disagreement_is_one_event(self, engine: Engine, slurm: Slurm, ordinal: int, events: int) -> None:
        marked = replace(making.allocation(7, 100_300, None), gpus=(HeldGpu(f"GPU-{ordinal}", ordinal),))
        self.known(engine, marked)
        slurm.live = [self.LIVE]
        pass_time(accounts(engine, slurm), range(900))
        with engine.connect() as connection:
            found = connection.execute(select(event).where(event.c.kind == "owner.disagrees")).all()
            assert len(connection.execute(select(job_node)).all()) == 1
        assert len(found) == events

    def test_too_early_to_say(self, engine: Engine, slurm: Slurm) -> None:
        """The mark of a job that just started may be on its way."""
        self.known(engine)
        slurm.live = [replace(self.LIVE, start_s=990)]
        pass_time(accounts(engine, slurm), range(1))
        with engine.connect() as connection:
            assert connection.execute(select(job_node)).all() == []


@pytest.mark.parametrize(
    ("run", "starts", "expected"),
    [
        ({"start_ms": 100_000}, [(0, 50), (98, 200), (300, None)], 98),
        ({"start_ms": 100_000, "slurm_start_s": 98}, [(97, 300), (98, 300)], 98),
        ({"start_ms": 100_000, "slurm_start_s": 98}, [(97, 300)], None),
        ({"start_ms": 100_000, "sluid": "s2"}, [(98, 300)], 98),
        ({"start_ms": 9_000_000}, [(98, None)], 98),  # a prolog at the first step, hours later
        ({"start_ms": 100_000}, [(200, 300)], None),
        ({"start_ms": 100_000}, [], None),
    ],
)
def test_match(run: dict[str, Any], starts: list[tuple[int, int | None]], expected: int | None) -> None:
    class Run:
        sluid = slurm_start_s = None
        start_ms = 0

    made = Run()
    for name, value in run.items():
        setattr(made, name, value)
    found = match(made, [replace(FACTS, start_s=start, end_s=end) for start, end in starts])  # type: ignore[arg-type]
    assert (found.start_s if found else None) == expected
