"""Making and upgrading the schema, with Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine

from slurmgpu.store.engine import revision_of
from slurmgpu.store.schema import REVISION

_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(engine: Engine, to: str = "head") -> tuple[str | None, str]:
    """Bring the schema up to date; the revisions before and after."""
    with engine.connect() as connection:
        before = revision_of(connection)
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        command.upgrade(_config(connection), to)
    return before, REVISION if to == "head" else to


def downgrade(engine: Engine, to: str) -> None:
    """Take the schema back to an earlier revision, or to ``base``."""
    with engine.execution_options(slurmgpu_writing=True).begin() as connection:
        command.downgrade(_config(connection), to)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    return config
