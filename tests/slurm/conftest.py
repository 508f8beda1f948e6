"""One real Slurm with slurmgpu in it for all tests of this folder. A person's cluster beside it is not disturbed."""

from collections.abc import Iterator

import pytest
from cluster import Cluster
from settings import Settings

INSTANCE = 90


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    reason = Cluster.unusable()
    if reason:
        pytest.skip(f"NO REAL SLURM HERE, its tests are skipped: {reason}")
    made = Cluster(Settings(instance=INSTANCE, slurmgpu=True, interval_s=1.0, flush_s=3.0))
    try:
        made.up()
        yield made
    finally:
        made.down()
