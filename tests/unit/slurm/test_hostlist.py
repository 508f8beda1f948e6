"""Node lists: against Slurm's own answers (recorded, and live where it is installed) and ClusterShell."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurmgpu.slurm.hostlist import HostlistError, expand, fold, sort_key

quick = settings(deadline=None)

# What scontrol show hostnames of Slurm 22.05.8 printed.
SLURM_SAYS = {
    "n[1-2,4]": "n1 n2 n4",
    "r[1-2]n[01-04]": "r1n01 r1n02 r1n03 r1n04 r2n01 r2n02 r2n03 r2n04",
    "n[9-11]": "n9 n10 n11",
    "n[09-11]": "n09 n10 n11",
    "n[001-3]": "n001 n002 n003",
    "n[1-010]": "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10",
    "n[099-101]": "n099 n100 n101",
    "n[99-101]": "n99 n100 n101",
    "n[2,1]": "n2 n1",
    "n[1-2],n[1-2]": "n1 n2 n1 n2",
    "n[1-2][3-4]": "n13 n14 n23 n24",
    "n[1-2]x[3]": "n1x3 n2x3",
    "n[1-3]a[1-2]b[8]": "n1a1b8 n2a1b8 n3a1b8 n1a2b8 n2a2b8 n3a2b8",
    "a[1-2]b[1-2]c[1-2]d[1-2]": "a1b1c1d1 a1b1c1d2 a2b1c1d1 a2b1c1d2 a1b2c1d1 a1b2c1d2 a2b2c1d1 a2b2c1d2 "
    "a1b1c2d1 a1b1c2d2 a2b1c2d1 a2b1c2d2 a1b2c2d1 a1b2c2d2 a2b2c2d1 a2b2c2d2",
    "a,b[001,003],c": "a b001 b003 c",
    "c1001a-s[11,17]": "c1001a-s11 c1001a-s17",
    "[1-3]": "1 2 3",
    "000[1-3]": "0001 0002 0003",
    "n1,,n2,": "n1 n2",
    "n1 n2": "n1 n2",
    "n1\nn2": "n1 n2",
    "": "",
}

# What scontrol show hostlistsorted of Slurm 22.05.8 printed.
SLURM_FOLDS = {
    "n4 n1 n2": "n[1-2,4]",
    "r1n01 r1n02 r2n01 r2n02": "r1n[01-02],r2n[01-02]",
    "n9 n10 n11": "n[9-11]",
    "n09 n10 n11": "n[09-11]",
    "n98 n099 n100": "n[98,099-100]",
    "n1 m1 n2": "m1,n[1-2]",
    "n1-ib n2-ib": "n1-ib,n2-ib",
    "n1 n01 n001": "n[1,01,001]",
    "1 2 3": "[1-3]",
    "a b": "a,b",
}


@pytest.mark.parametrize("text", SLURM_SAYS)
def test_expand_as_slurm(text: str) -> None:
    assert expand(text) == SLURM_SAYS[text].split()


@pytest.mark.parametrize("names", SLURM_FOLDS)
def test_fold_as_slurm(names: str) -> None:
    assert fold(names.split()) == SLURM_FOLDS[names]


def test_text_after_the_last_bracket() -> None:
    assert expand("n[1-2]-ib") == ["n1-ib", "n2-ib"]
    assert expand("n[08-10]x[1-2]-ib,m") == [f"n{n}x{x}-ib" for n in ("08", "09", "10") for x in "12"] + ["m"]


@pytest.mark.parametrize("text", ["(null)", "None assigned", "", "  "])
def test_no_nodes(text: str) -> None:
    """How scontrol and sacct write the list of a job that has no nodes."""
    assert expand(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n[1-2", r"\[ without \]"),
        ("n]1", r"\] without \["),
        ("n[[1-2]]", r"\[ inside \[\]"),
        ("n[3-1]", "goes down"),
        ("n[]", "no number"),
        ("n[1,,2]", "no number"),
        ("n[1-]", "no number"),
        ("n[-1]", "no number"),
        ("n[1-2-3]", "no number"),
        ("n[ 1-2]", "no number"),
        ("n[a-b]", "no number"),
        ("n[1-0x4]", "no number"),
        ("n[١]", "no number"),
        ("n[" + "9" * 5000 + "]", "no number"),
        ("n1,(null)", "cannot be a node's name"),
        ("nœud1", "cannot be a node's name"),
        ("n[1-131073]", "too many names"),
        ("n[0-999999999999999999]", "too many names"),
        ("a[1-1000]b[1-1000]c[1-1000]", "too many names"),
    ],
)
def test_expand_refuses(text: str, reason: str) -> None:
    with pytest.raises(HostlistError, match=reason) as caught:
        expand(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    assert repr(text)[:20] in message


def test_limit_counts_all_parts() -> None:
    assert len(expand("n[1-5],m[1-5]", limit=10)) == 10
    with pytest.raises(HostlistError, match="too many names"):
        expand("n[1-5],m[1-6]", limit=10)


@pytest.mark.parametrize("name", ["", "a,b", "a b", "n[1]", "(null)", "a\n", "é"])
def test_fold_refuses(name: str) -> None:
    with pytest.raises(HostlistError, match="cannot be a node's name"):
        fold(["n1", name])


def test_sort_key() -> None:
    names = ["n10", "n9", "r10n1", "r2n1", "login", "n09", "n2-ib", "n10-ib"]
    assert sorted(names, key=sort_key) == ["login", "n9", "n09", "n10", "n2-ib", "n10-ib", "r2n1", "r10n1"]


numbers = st.integers(0, 120) | st.integers(0, 10**18 - 1)
padded = st.builds(lambda n, width: str(n).zfill(width), numbers, st.integers(1, 5))
words = st.sampled_from(["n", "m", "gpu-", "r1n", "c1001a-s", "x.y"])
node_names = st.builds("".join, st.tuples(words, padded | st.just(""), st.sampled_from(["", "", "-ib", "a"])))
number_ranges = st.builds(
    lambda first, count, width, single: str(first).zfill(width) + ("" if single else f"-{first + count}"),
    st.integers(0, 200),
    st.integers(0, 12),
    st.integers(1, 4),
    st.booleans(),
)
brackets = st.lists(number_ranges, min_size=1, max_size=3).map(lambda items: f"[{','.join(items)}]")


def lists(most_brackets: int) -> st.SearchStrategy[str]:
    """Lists as Slurm takes them: each part ends with its last bracket, if it has one."""
    with_brackets = st.lists(st.tuples(words, brackets), min_size=1, max_size=most_brackets)
    part = with_brackets.map(lambda pairs: "".join(map("".join, pairs))) | node_names
    return st.lists(part, min_size=1, max_size=4).map(",".join)


@given(st.lists(node_names, max_size=40) | lists(1).map(expand))
@quick
def test_fold_and_expand_undo_each_other(names: list[str]) -> None:
    folded = fold(names)
    assert expand(folded) == sorted(set(names), key=sort_key)
    assert fold(expand(folded)) == folded


@given(lists(2))
@quick
def test_expand_as_clustershell(text: str) -> None:
    """The same names, padding included. ClusterShell sorts and drops doubles, so sets are compared."""
    assert set(expand(text)) == set(NodeSet(same_width(text)))


@given(st.lists(node_names, min_size=1, max_size=20))
@quick
def test_fold_as_clustershell(names: list[str]) -> None:
    assert set(NodeSet(same_width(fold(names)))) == set(names)


@given(st.text("n1-[],0 9x", max_size=20) | st.text(max_size=20))
@quick
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert set(expand(fold(names))) == set(names)


def same_width(text: str) -> str:
    """ClusterShell wants both ends of a range equally wide when the first is padded: ``009-011``."""

    def widened(match: re.Match[str]) -> str:
        first, last = match.groups()
        return f"{first}-{last.zfill(len(first)) if first[0] == '0' else last}"

    return re.sub(r"(?<=[\[,])([0-9]+)-([0-9]+)(?=[],])", widened, text)


@pytest.mark.skipif(not shutil.which("scontrol"), reason="no scontrol here; SLURM_SAYS has its answers")
def test_as_the_installed_scontrol(tmp_path: Path) -> None:
    """It needs a configuration, but no controller."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\n")

    def ask(what: str, text: str) -> list[str]:
        command = ["scontrol", "show", what, text]
        environment = {"SLURM_CONF": str(conf), "PATH": "/usr/bin:/usr/local/bin:/bin", "LC_ALL": "C"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    # Each case starts a program: no long arguments, and no shrinking.
    @given(lists(4).filter(lambda text: len(expand(text)) < 1000))
    @settings(deadline=None, max_examples=60, phases=[Phase.generate])
    def expands(text: str) -> None:
        names = expand(text)
        assert ask("hostnames", text) == names
        assert ask("hostnames", fold(names)) == sorted(set(names), key=sort_key)

    expands()
