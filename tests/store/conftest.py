"""A database for each test, on both engines, and segments to write into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slurmgpu.store.engine import connect
from slurmgpu.store.migrate import upgrade
from tests.store.postgres import Postgres, programs


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("NO POSTGRESQL HERE, its tests are skipped: install the package postgresql")
    made = Postgres()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return server.database()
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    maker = connect(url, create=True)
    upgrade(maker)
    maker.dispose()
    made = connect(url)
    yield made
    made.dispose()
