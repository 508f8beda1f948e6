"""GPU numbers, GRES and TRES texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.indices import (
    MAX_INDEX,
    Gres,
    GresError,
    Share,
    format_indices,
    gpu_count,
    parse_gres,
    parse_indices,
    parse_tres,
)

quick = settings(deadline=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0,)),
        ("7", (7,)),
        ("0,3-5", (0, 3, 4, 5)),
        ("1,3", (1, 3)),
        ("0-0", (0,)),
        ("N/A", ()),
        ("(null)", ()),
        ("", ()),
        ("128, 129", (128, 129)),
    ],
)
def test_indices(text: str, expected: tuple[int, ...]) -> None:
    assert parse_indices(text) == expected


@pytest.mark.parametrize(
    "text", [",", "0,", "0,,1", "a", "-1", "3-1", "0-65536", "0-65535,0-1", "GPU-1a2b", "٣", "1\n2"]
)
def test_indices_refused(text: str) -> None:
    with pytest.raises(GresError) as caught:
        parse_indices(text)
    assert len(str(caught.value).splitlines()) == 1


@given(st.sets(st.integers(0, 40) | st.integers(0, MAX_INDEX), max_size=20))
@quick
def test_indices_are_read_back(indices: set[int]) -> None:
    assert parse_indices(format_indices(indices)) == tuple(sorted(indices))


def test_runs_are_folded() -> None:
    assert format_indices([5, 0, 3, 4, 4]) == "0,3-5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:h100:2(IDX:0-1)", (Gres("gpu", "h100", 2, (0, 1)),)),
        ("gpu:2(IDX:0,2-3)", (Gres("gpu", "", 2, (0, 2, 3)),)),
        ("gpu:ampere:1(IDX:7)", (Gres("gpu", "ampere", 1, (7,)),)),
        ("gpu:1(IDX:N/A)", (Gres("gpu", "", 1),)),
        ("gpu:0", (Gres("gpu", "", 0),)),
        ("gpu:tesla:4", (Gres("gpu", "tesla", 4),)),
        ("gpu:a100:4(S:0-1)", (Gres("gpu", "a100", 4),)),
        ("gpu:a100:2(S:0)(IDX:4-5)", (Gres("gpu", "a100", 2, (4, 5)),)),
        ("shard:3(IDX:2)", (Gres("shard", "", 3, (2,)),)),
        (
            "shard:3(0/4,0/4,3/4,0/4)",
            (Gres("shard", "", 3, (2,), (Share(0, 4), Share(0, 4), Share(3, 4), Share(0, 4))),),
        ),
        ("mps:h100:50(-/100,50/100)", (Gres("mps", "h100", 50, (1,), (Share(None, 100), Share(50, 100))),)),
        (
            "gpu:h100:3(IDX:0-1,3),mps:h100:1(IDX:2),shard:0",
            (Gres("gpu", "h100", 3, (0, 1, 3)), Gres("mps", "h100", 1, (2,)), Gres("shard", "", 0)),
        ),
        ("gres/gpu:2", (Gres("gpu", "", 2),)),
        ("gres:gpu:h100:2", (Gres("gpu", "h100", 2),)),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:h100", (Gres("gpu", "h100", 1),)),
        ("gpu:1g.10gb:2(IDX:3,9)", (Gres("gpu", "1g.10gb", 2, (3, 9)),)),
        ("bandwidth:lustre:no_consume:4G", (Gres("bandwidth", "lustre", 4 << 30),)),
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
    ],
)
def test_gres(text: str, expected: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == expected


@pytest.mark.parametrize(
    "text", ["gpu:2(IDX:0-1", "gpu:2)", "gpu:2((IDX:0))", "gpu:a:b:2", "gpu:2(IDX:x)", ":2", "gpu 2"]
)
def test_gres_refused(text: str) -> None:
    with pytest.raises(GresError) as caught:
        parse_gres(text)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert repr(text) in message


indices = st.sets(st.integers(0, 15), min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))
kinds = st.sampled_from(["", "h100", "a100-80", "1g.10gb"])
with_indices = st.builds(lambda kind, at: Gres("gpu", kind, len(at), at), kinds, indices)
share = st.builds(Share, st.none() | st.integers(0, 4), st.just(4))
shares = st.lists(share, min_size=1, max_size=8).map(tuple)
with_shares = st.builds(
    lambda of: Gres("shard", "", 3, tuple(at for at, s in enumerate(of) if s.used), of),
    shares,
)


def as_slurm(gres: Gres) -> str:
    if gres.shares:
        note = ",".join(f"{'-' if s.used is None else s.used}/{s.total}" for s in gres.shares)
    else:
        note = f"IDX:{format_indices(gres.indices)}"
    return ":".join(filter(None, [gres.name, gres.type, str(gres.count)])) + f"({note})"


@given(st.lists(with_indices | with_shares, max_size=4))
@quick
def test_gres_is_read_as_slurm_writes_it(parts: list[Gres]) -> None:
    assert parse_gres(",".join(map(as_slurm, parts))) == tuple(parts)


@pytest.mark.parametrize(
    ("text", "expected", "gpus"),
    [
        (
            "cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=8G",
            {"cpu": 4, "gres/gpu": 2, "gres/gpu:a100": 2, "mem": 8 << 30},
            2,
        ),
        (
            "billing=2,cpu=2,gres/gpu:h100=4,gres/gpu=4,node=2",
            {"billing": 2, "cpu": 2, "gres/gpu:h100": 4, "gres/gpu": 4, "node": 2},
            4,
        ),
        ("gres/gpu=3,gres/gpu:a100=2", {"gres/gpu": 3, "gres/gpu:a100": 2}, 3),
        ("cpu=1,gres/gpu=1", {"cpu": 1, "gres/gpu": 1}, 1),
        ("gres/gpu:a100=2,gres/gpu:h100=1", {"gres/gpu:a100": 2, "gres/gpu:h100": 1}, 3),
        ("gres/gpu=0", {"gres/gpu": 0}, 0),
        (
            "gres/gpumem=10G,gres/gpuutil=93,gres/shard=4",
            {"gres/gpumem": 10 << 30, "gres/gpuutil": 93, "gres/shard": 4},
            0,
        ),
        ("mem=4000M", {"mem": 4000 << 20}, 0),
        ("mem=4000", {"mem": 4000 << 20}, 0),
        ("mem=0,vmem=468000K", {"mem": 0, "vmem": 468000 << 10}, 0),
        ("energy=1.5M,mem=1.25T", {"energy": 3 << 19, "mem": 5 << 38}, 0),
        ("mem=1P,fs/disk=1E", {"mem": 1 << 50, "fs/disk": 1 << 60}, 0),
        ("cpu=1-00:00:01", {"cpu": 86_401}, 0),
        ("(null)", {}, 0),
        ("", {}, 0),
    ],
)
def test_tres(text: str, expected: dict[str, int], gpus: int) -> None:
    found = parse_tres(text)
    assert found == expected
    assert gpu_count(found) == gpus


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=4,", "mem=8Q", "gres/gpu=x", "cpu=1:2:3:4"])
def test_tres_refused(text: str) -> None:
    with pytest.raises(GresError) as caught:
        parse_tres(text)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert repr(text) in message


@given(st.text("gpu:2(IDX:0-1),/=4M ", max_size=24) | st.text(max_size=24))
@quick
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (parse_indices, parse_gres, parse_tres):
        try:
            read(text)
        except GresError as error:
            assert len(str(error).splitlines()) == 1
