"""What the node writes is what the store reads, and damage is noticed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.wire.records import Allocation, Block, Event, GpuInfo, HeldGpu, Stat
from slurmgpu.wire.samples import SamplesError, decode, encode, merge
from slurmgpu.wire.segment import Head, SegmentError, pack, unpack

HEAD = Head(cluster="c", node="n1", boot_id="b", stream="1-b-1", seq=3, created_ms=5)
numbers = st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62))


@given(st.integers(0, 40).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), max_size=6)))
def test_samples_come_back(columns: list[list[int | None]]) -> None:
    named = [(f"m{i}", 1, values) for i, values in enumerate(columns)]
    assert decode(encode(named)) == {name: values for name, _, values in named}


def test_scale_is_undone() -> None:
    assert decode(encode([("sm_active_pct", 100, [1234, None, 0])])) == {"sm_active_pct": [12.34, None, 0]}


@pytest.mark.parametrize(
    "values",
    [
        [1 << 40, None, (1 << 40) + 7, (1 << 40) + 14, (1 << 40) + 21],  # a counter with a hole
        [5, 5, None, 5],
        [None, None],
        [None, -3],
        [-3, -1_000_000_000_000, 4],
        [0, 255, 3],
        [0, 254, 3],
        [-(1 << 63), 1 << 63, 0],
        list(range(0, 90_000, 7)),
    ],
)
def test_columns_of_every_shape(values: list[int | None]) -> None:
    packed = encode([("t_ms", 1, list(range(len(values)))), ("x", 1, values), ("last", 1, values)])
    assert decode(packed)["x"] == decode(packed)["last"] == values
    assert decode(merge([(0, packed), (0, packed)]))["x"] == values * 2
    assert decode(packed, {"x"}) == {"x": values}


Column = tuple[str, int, list[int | None]]
readings = st.one_of(st.none(), st.integers(-(1 << 45), 1 << 45))  # with a scale they become floats
columns_of_a_part = st.integers(0, 20).flatmap(
    lambda n: st.dictionaries(
        st.sampled_from(("power_mw", "energy_mj", "x")),
        st.tuples(st.sampled_from((1, 10, 100)), st.lists(readings, min_size=n, max_size=n)),
    ).map(lambda named: [("t_ms", 1, list(range(n))), *((name, *column) for name, column in named.items())])
)


@given(st.lists(st.tuples(st.integers(0, 3_600_000), columns_of_a_part), max_size=4), st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_merged_is_what_the_parts_are(parts: list[tuple[int, list[Column]]], at: int) -> None:
    """Parts with other metrics, other scales, nothing at all; and what was merged is merged again."""
    packed = [(offset_ms, encode(part)) for offset_ms, part in parts]
    decoded = [(offset_ms, decode(data)) for offset_ms, data in packed]
    expected: dict[str, list[float | int | None]] = {}
    for name in dict.fromkeys(name for _, part in decoded for name in part):
        shift = name == "t_ms"
        whole = [(offset_ms * shift, part.get(name) or [None] * len(part["t_ms"])) for offset_ms, part in decoded]
        expected[name] = [value if value is None else value + more for more, values in whole for value in values]
    assert decode(merge(packed)) == expected
    assert decode(merge([(0, merge(packed[:at])), *packed[at:]])) == expected


def test_merged_samples_that_are_damaged_are_refused() -> None:
    whole = merge([(0, encode([("t_ms", 1, list(range(0, 60_000, 1000))), ("power_mw", 1, list(range(60)))]))])
    for at in range(len(whole)):
        for bad in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]):
            with pytest.raises(SamplesError):
                decode(bad)
    with pytest.raises(SamplesError):
        merge([(0, whole), (60_000, whole[:-1])])


@given(st.data())
@settings(max_examples=50)
def test_damaged_samples_are_refused_or_differ_in_no_length(data: st.DataObject) -> None:
    whole = encode([("t_ms", 1, list(range(0, 60_000, 1000))), ("power_mw", 1, list(range(60)))])
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(SamplesError):
        decode(whole[:cut])


def test_newer_samples_are_named() -> None:
    import zlib

    with pytest.raises(SamplesError, match="version 9: this program reads version 1"):
        decode(zlib.compress(b'{"v":9,"n":0,"columns":[]}\n'))


RECORDS = [
    Block(
        gpu="GPU-1",
        start_ms=1,
        end_ms=2,
        samples=1,
        owners=("7@1",),
        stats={"power_mw": Stat(1, 2.5, 0, 3)},
        energy_mj=0,
        energy_source="counter",
        missing={"temperature_c": ("NOT_SUPPORTED", 1)},
        dropped={"gpu_util_pct": 2},
        body=b'\n{"end":1,"crc32":0}\n\x00\xff',
    ),
    Block(gpu="GPU-1", start_ms=2, end_ms=2, samples=0),
    Allocation(
        id="7@1",
        node="n1",
        cluster="c",
        job_id=7,
        start_ms=1,
        end_ms=None,
        source="prolog",
        gpus=(HeldGpu("GPU-1", 0), HeldGpu("MIG-2", None)),
        unresolved=("9",),
        user="o'\"neil\n",
    ),
    GpuInfo(uuid="GPU-1", t_ms=1, index=0, name="naïve"),
    Event(t_ms=1, kind="clock.step", text="\x1b[31m"),
]


def test_segment_comes_back() -> None:
    assert unpack(pack(HEAD, RECORDS)) == (HEAD, RECORDS)


def test_every_cut_and_every_flipped_byte_is_noticed() -> None:
    whole = pack(HEAD, RECORDS)
    for cut in range(len(whole)):
        with pytest.raises(SegmentError):
            unpack(whole[:cut])
    for at in range(len(whole) - 1):
        bad = bytearray(whole)
        bad[at] ^= 0x04
        with pytest.raises(SegmentError):
            unpack(bytes(bad))


def test_newer_segment_is_named() -> None:
    with pytest.raises(SegmentError, match="version 2: this program reads version 1"):
        unpack(pack(replace(HEAD, version=2), []))


def test_fields_of_a_newer_node_are_passed_over() -> None:
    from slurmgpu.wire.records import from_plain, to_plain

    assert from_plain(to_plain(RECORDS[3]) | {"colour": "green"}) == RECORDS[3]
