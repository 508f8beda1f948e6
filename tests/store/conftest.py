"""A database for each test, and segments to write into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slurmgpu.store.engine import connect
from slurmgpu.store.migrate import upgrade


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    upgrade(connect(url, create=True))
    made = connect(url)
    yield made
    made.dispose()
