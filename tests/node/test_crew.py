"""The crew goes past what is stuck, and takes it back when it answers."""

import threading

from processes import wait_for

from slurmgpu.node.crew import Crew

PATIENCE_S = 0.03


def threads() -> int:
    return sum(thread.name == "driver" for thread in threading.enumerate())


def test_results_come_in_order_and_errors_are_results() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return item * 10

    crew: Crew[int, int] = Crew(PATIENCE_S)
    found = crew.run([1, 2, 3], work)
    assert [item for item, _ in found] == [1, 2, 3]
    assert (found[0][1], found[2][1], str(found[1][1])) == (10, 30, "two")
    assert crew.run([], work) == []


def test_what_is_stuck_is_passed_and_taken_back() -> None:
    """Two of five hang: the other three are done each time; the two come late, once, and are then done again."""
    gate = threading.Event()

    def work(item: int) -> int:
        if item in (1, 3) and not gate.is_set():
            gate.wait(30)
        return item

    crew: Crew[int, int] = Crew(PATIENCE_S)
    before = threads()
    for _ in range(20):
        assert [item for item, _ in crew.run([0, 1, 2, 3, 4], work)] == [0, 2, 4]
    assert sorted(crew.stuck) == [1, 3]
    assert threads() - before == 3  # two that are stuck, and the one that works
    gate.set()
    late: list[int] = []
    wait_for("the late ones", 10, lambda: late.extend(item for item, _ in crew.late()) or len(late) == 2)
    assert sorted(late) == [1, 3]
    assert [item for item, _ in crew.run([0, 1, 2, 3, 4], work)] == [0, 1, 2, 3, 4]
    wait_for("the threads to end", 10, lambda: threads() - before == 1)


def test_slow_is_not_stuck() -> None:
    """Items that each take less than the patience, but together much more, are all waited for."""
    pause = threading.Event()
    crew: Crew[int, int] = Crew(PATIENCE_S)

    def work(item: int) -> int:
        pause.wait(PATIENCE_S * 0.7)
        return item

    assert [item for item, _ in crew.run(list(range(8)), work)] == list(range(8))
