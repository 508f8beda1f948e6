"""One real Slurm with slurmgpu in it for all tests of this folder. No other cluster on this machine is disturbed."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import Cluster
from settings import ClusterError, Settings

from tests.slurm.scenarios import Table


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """What the scenarios showed."""
    made = Table()
    yield made
    out = request.config.getoption("--scenarios-out", None)
    if out:
        made.write(out)


def _of_another(settings: Settings) -> bool:
    """Whether the network is that of a cluster elsewhere: a killed run's in a chroot, or one with another folder."""
    return Path("/sys/class/net", settings.bridge).exists() and not settings.path.exists()


@contextmanager
def reserved() -> Iterator[int]:
    """The number of an instance that no other run of the tests on this machine has; free again however we end."""
    for instance in range(80, 100):
        with socket.socket(socket.AF_UNIX) as lock:
            try:
                lock.bind(f"\0slurmgpu-testcluster-{instance}")
            except OSError:
                continue
            if _of_another(Settings(instance=instance)):
                continue
            yield instance
            return
    raise ClusterError("twenty other test runs have a cluster on this machine")


@pytest.fixture(scope="session")
def usable() -> None:
    reason = Cluster.unusable()
    if reason:
        pytest.skip(f"NO REAL SLURM HERE, its tests are skipped: {reason}")


@pytest.fixture(scope="session")
def cluster(usable: None) -> Iterator[Cluster]:
    with reserved() as instance:
        made = Cluster(Settings(instance=instance, slurmgpu=True, interval_s=1.0, flush_s=3.0))
        try:
            made.up()
            yield made
        finally:
            made.down()


@pytest.fixture(scope="session")
def other_instance(usable: None) -> Iterator[int]:
    """For a cluster beside the one of the session."""
    with reserved() as instance:
        yield instance
