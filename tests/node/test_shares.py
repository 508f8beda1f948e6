"""A shared GPU's time among its owners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmgpu.node.shares import Use, divide


def test_by_what_the_processes_did() -> None:
    looks = [(10.0, {"a": Use(60, 100), "b": Use(20, 300)}), (20.0, {"a": Use(60, 200), "b": Use(60, None)})]
    shares = divide(("a", "b"), looks, 0.0, 20.0)
    assert (shares["a"].part, shares["b"].part) == (pytest.approx(0.6), pytest.approx(0.4))
    assert (shares["a"].mem_sum, shares["a"].mem_max_bytes, shares["a"].mem_weight_ms) == (3_000_000, 200, 20_000)
    assert (shares["b"].mem_sum, shares["b"].mem_max_bytes, shares["b"].mem_weight_ms) == (3_000_000, 300, 10_000)


def test_one_works_and_the_other_has_no_process() -> None:
    shares = divide(("a", "b"), [(5.0, {"a": Use(90, 10)})], 0.0, 10.0)
    assert (shares["a"].part, shares["b"].part, shares["b"].mem_max_bytes) == (1.0, 0.0, 0)


def test_processes_of_nobody_keep_their_part() -> None:
    shares = divide(("a", "b"), [(5.0, {"a": Use(30, 0), "b": Use(30, 0), "": Use(40, 0)})], 0.0, 10.0)
    assert shares["a"].part == shares["b"].part == pytest.approx(0.3)


@pytest.mark.parametrize("looks", [[], [(1.0, {})], [(1.0, {"a": Use(None, 5)})], [(1.0, {"a": Use(0, 5)})]])
def test_equal_where_nothing_tells(looks: list[tuple[float, dict[str, Use]]]) -> None:
    shares = divide(("a", "b"), looks, 0.0, 1.0)
    assert {(share.part, share.source) for share in shares.values()} == {(0.5, "equal")}


uses = st.dictionaries(st.sampled_from(["a", "b", "c", ""]), st.builds(Use, st.integers(0, 100), st.integers(0, 99)))


@given(st.lists(uses, max_size=8), st.lists(st.floats(0.1, 10), min_size=8, max_size=8))
def test_parts_never_exceed_the_whole(found: list[dict[str, Use]], steps: list[float]) -> None:
    times = [sum(steps[: n + 1]) for n in range(len(found))]
    shares = divide(("a", "b", "c"), list(zip(times, found, strict=True)), 0.0, sum(steps))
    assert sum(share.part for share in shares.values()) <= 1 + 1e-9
    assert all(0 <= share.part <= 1 for share in shares.values())
