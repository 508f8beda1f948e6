"""Marks are read as bytes, by exact names, whatever a user put into them."""

import os
import time
from pathlib import Path

import pytest

from slurmgpu.node.marks import MarkFolder, MarksError, parse_environment

RECORDED = Path(__file__).parent.parent / "data" / "slurm-env"


def block(file: Path) -> bytes:
    """A recorded environment as the kernel hands it over."""
    raw = file.read_bytes()
    return raw if file.suffix == ".env0" else b"".join(line + b"\0" for line in raw.splitlines())


def put(folder: MarkFolder, name: str, content: bytes, t: float | None = None) -> Path:
    path = folder.path / name
    path.write_bytes(content)
    if t is not None:
        os.utime(path, (t, t))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> MarkFolder:
    made = MarkFolder(tmp_path / "run")
    made.prepare()
    return made


@pytest.mark.parametrize("file", sorted(RECORDED.iterdir()), ids=lambda file: file.name)
def test_recorded_environments(file: Path, folder: MarkFolder) -> None:
    """Of every recorded hook the job, the node and the GPUs are found."""
    expected = dict(entry.split(b"=", 1) for entry in block(file).split(b"\0")[:-1])
    hook = file.name.split(".")[2]
    put(folder, f"{expected[b'SLURM_JOB_ID'].decode()}.{hook}.1", block(file))
    (mark,) = folder.scan()
    assert mark.job_id == int(expected[b"SLURM_JOB_ID"])
    assert mark.hook == hook
    assert mark.get("SLURMD_NODENAME") == expected[b"SLURMD_NODENAME"].decode()
    assert mark.get("SLURM_JOB_GPUS") == (expected.get(b"SLURM_JOB_GPUS", b"").decode() or None)


def test_newline_in_a_comment_makes_no_variable() -> None:
    """The case `newline`: a line of the job's comment reads SLURM_JOB_ID=1."""
    files = sorted(RECORDED.glob("*.prolog.newline.*"))
    assert files
    for file in files:
        assert b"\nSLURM_JOB_ID=1" in block(file)
        moved = block(file).replace(b"\nSLURM_JOB_ID=1", b"\nSLURM_JOB_GPUS=7")
        assert parse_environment(moved) == parse_environment(block(file))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"SLURM_JOB_GPUS=0,1", {}),  # cut off: no NUL
        (b"SLURM_JOB_GPUS=\0", {"SLURM_JOB_GPUS": ""}),
        (b"SLURM_JOB_GPUS=1\0SLURM_JOB_GPUS=2\0", {"SLURM_JOB_GPUS": "1"}),
        (b"MY_SLURM_JOB_GPUS=7\0XSLURM_JOB_GPUS=7\0SLURM_JOB_GPUS7\0", {}),
        (b"SLURM_JOB_USER=\xff\xfe\0", {"SLURM_JOB_USER": "\ufffd\ufffd"}),
        (b"SLURM_JOB_ACCOUNT=a=b=c\0", {"SLURM_JOB_ACCOUNT": "a=b=c"}),
        (b"SLURM_JOB_COMMENT=" + b"x" * 65536 + b"\0SLURM_JOB_GPUS=3\0", {"SLURM_JOB_GPUS": "3"}),
        (b"SLURM_JOB_USER=" + b"x" * 65536 + b"\0SLURM_JOB_GPUS=3\0", {"SLURM_JOB_GPUS": "3"}),
        (b"\0\0=\0==\0", {}),
    ],
)
def test_hostile_blocks(raw: bytes, expected: dict[str, str]) -> None:
    assert parse_environment(raw) == expected


def test_what_is_no_mark_is_passed_over(folder: MarkFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"SLURM_JOB_GPUS=0\0")
    (folder.path / "5.prolog.1").symlink_to(secret)
    (folder.path / "6.prolog.1").mkdir()
    os.mkfifo(folder.path / "7.prolog.1")
    put(folder, ".8.prolog.1", b"half")
    put(folder, "note.txt", b"")
    put(folder, "9.prolog.1", b"SLURM_JOB_GPUS=0\0")
    assert [mark.job_id for mark in folder.scan()] == [9]


def test_order_is_that_of_time_and_an_end_comes_first(folder: MarkFolder) -> None:
    put(folder, "2.prolog.1", b"", 1000.0)
    put(folder, "1.epilog.1", b"", 1000.0)
    put(folder, "3.prolog.1", b"", 999.5)
    assert [(mark.job_id, mark.hook) for mark in folder.scan()] == [(3, "prolog"), (1, "epilog"), (2, "prolog")]


def test_a_change_is_never_missed(folder: MarkFolder) -> None:
    """Marks that come within one tick of the folder's clock are seen by the next look."""
    for number in range(1, 200):
        put(folder, f"{number}.prolog.1", b"")
        assert folder.changed()
        assert len(folder.scan()) == number


def test_quiet_folder_needs_no_listing(folder: MarkFolder) -> None:
    put(folder, "1.prolog.1", b"")
    deadline = time.monotonic() + 5
    while folder.changed() and time.monotonic() < deadline:
        folder.scan()
    assert not folder.changed()


def test_folder_is_ours_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "jobs").mkdir(mode=0o777)
    (tmp_path / "run" / "jobs").chmod(0o777)
    MarkFolder(tmp_path / "run").prepare()
    assert (tmp_path / "run" / "jobs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "jobs").symlink_to(tmp_path)
    with pytest.raises(MarksError, match="remove it and start again"):
        MarkFolder(tmp_path / "run").prepare()
