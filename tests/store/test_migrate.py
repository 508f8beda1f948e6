"""Migrations make what the code expects, and the wrong revision is told with what to run."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from slurmgpu.store.engine import StoreError, connect
from slurmgpu.store.migrate import downgrade, upgrade
from slurmgpu.store.schema import REVISION, metadata


def test_migrations_make_the_schema_of_the_code(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_down_takes_all_away_and_up_brings_it_back(engine: Engine) -> None:
    downgrade(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    assert upgrade(engine) == (None, REVISION)
    assert set(metadata.tables) <= set(inspect(engine).get_table_names())


def test_no_database_says_what_to_run(tmp_path: object) -> None:
    with pytest.raises(StoreError, match=r"no database at .*none\.db yet: run slurmgpu db init"):
        connect(f"sqlite:///{tmp_path}/none.db")


def test_empty_database_says_what_to_run(url: str) -> None:
    made = connect(url, create=True)
    made.connect().close()
    made.dispose()
    with pytest.raises(StoreError, match="yet: run slurmgpu db init"):
        connect(url)


@pytest.mark.parametrize(("found", "words"), [("0000", "run slurmgpu db upgrade"), ("9999", "upgrade slurmgpu")])
def test_other_revisions_are_refused(engine: Engine, url: str, found: str, words: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})
    with pytest.raises(StoreError, match=f"revision {found}.*{words}"):
        connect(url)


@pytest.mark.parametrize("url", ["nonsense", "nosuch://x/y"])
def test_url_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        connect(url)
    assert "\n" not in str(caught.value)


def test_password_is_never_shown() -> None:
    from slurmgpu.store.engine import display

    assert "secret" not in display("postgresql+psycopg://me:secret@host/db")
