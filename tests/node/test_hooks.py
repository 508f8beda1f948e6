"""The hooks: a mark is left, nothing is said, nothing fails, two forks."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from slurmgpu.node.marks import MarkFolder

ROOT = Path(__file__).parent.parent.parent
HOOKS = {hook: ROOT / hook / "slurmgpu" for hook in ("prolog", "epilog")}
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


def call(hook: str, environment: dict[bytes, bytes], shell: str = "dash") -> subprocess.CompletedProcess[bytes]:
    command = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else []), str(HOOKS[hook])]
    return subprocess.run(command, env=environment, capture_output=True, timeout=20)


def silent(result: subprocess.CompletedProcess[bytes]) -> bool:
    return (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("shell", SHELLS)
def test_mark_holds_the_environment(hook: str, shell: str, tmp_path: Path) -> None:
    """Without PATH, with every kind of bytes in the values, into a folder that is not there yet."""
    hostile = {
        b"SLURM_JOB_ID": b"42",
        b"SLURM_JOB_GPUS": b"1,3",
        b"SLURM_JOB_COMMENT": b"x\nSLURM_JOB_ID=1\nSLURM_JOB_GPUS=0",
        b"SLURM_JOB_NAME": b"$(touch " + os.fsencode(tmp_path) + b"/pwned)`id`;'\"\\ =",
        b"SLURM_JOB_EXTRA": bytes(range(1, 256)) * 256,
        b"SLURM_JOB_USER": b"\xff\xfe",
        b"SLURMGPU_RUN_DIR": os.fsencode(tmp_path / "a b" / "run"),
    }
    assert silent(call(hook, hostile, shell))
    (mark,) = MarkFolder(tmp_path / "a b" / "run").scan()
    assert (mark.job_id, mark.hook, mark.get("SLURM_JOB_GPUS")) == (42, hook, "1,3")
    assert abs((mark.uptime_s or 0) - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert mark.path.stat().st_mode & 0o777 == 0o600
    assert mark.path.parent.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "pwned").exists()
    assert len(list(mark.path.parent.iterdir())) == 1


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("job_id", [b"", b"x", b"../../etc/x", b"-1", b"1 2", b"*"])
def test_a_job_id_that_is_none_leaves_no_mark(hook: str, shell: str, job_id: bytes, tmp_path: Path) -> None:
    run_dir = os.fsencode(tmp_path / "run")
    assert silent(call(hook, {b"SLURM_JOB_ID": job_id, b"SLURMGPU_RUN_DIR": run_dir}, shell))
    assert silent(call(hook, {b"SLURMGPU_RUN_DIR": run_dir}, shell))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_place_that_cannot_be_written_harms_nobody(hook: str, shell: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", Path("/proc/none"), Path("/dev/null")):
        assert silent(call(hook, {b"SLURM_JOB_ID": b"1", b"SLURMGPU_RUN_DIR": os.fsencode(place)}, shell))


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_write_that_fails_leaves_an_empty_mark(hook: str, shell: str, tmp_path: Path) -> None:
    """A full disk, here as a file size limit of nothing: that the job started or ended is known all the same."""
    command = f'ulimit -f 0; trap "" XFSZ; exec {shell} {"sh " if shell == "busybox" else ""}"$0"'
    environment = {b"SLURM_JOB_ID": b"9", b"SLURMGPU_RUN_DIR": os.fsencode(tmp_path), b"PATH": b"/usr/bin:/bin"}
    result = subprocess.run(["bash", "-c", command, str(HOOKS[hook])], env=environment, capture_output=True)
    assert silent(result)
    (mark,) = MarkFolder(tmp_path).scan()
    assert (mark.job_id, mark.hook, mark.environment) == (9, hook, {})


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the forks")
@pytest.mark.parametrize("hook", HOOKS)
def test_two_forks_and_no_network(hook: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "run" / "jobs").mkdir(parents=True)
    environment = {"SLURM_JOB_ID": "1", "SLURMGPU_RUN_DIR": str(tmp_path / "run"), "PATH": os.environ["PATH"]}
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=process,network", "dash", str(HOOKS[hook])]
    subprocess.run(command, env=environment, check=True)
    calls = trace.read_text()
    assert len(re.findall(r"\b(?:clone3?|v?fork)\b.*= [1-9]", calls)) == 2
    programs = [Path(name).name for name in re.findall(r'\bexecve\("([^"]+)"', calls)]
    assert programs == ["dash", "cat", "mv"]
    assert not re.search(r"\b(?:socket|connect)\(", calls)


def test_hooks_differ_in_their_word_only() -> None:
    """What is mended in one must be mended in the other."""
    code = {
        hook: [line.replace(hook, "HOOK") for line in path.read_text().splitlines() if not line.startswith("#")]
        for hook, path in HOOKS.items()
    }
    assert code["prolog"] == code["epilog"]
