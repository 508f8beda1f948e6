"""Opening the database, and saying clearly when it cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from slurmgpu.store.schema import REVISION

_BUSY_MS = 30_000


class StoreError(Exception):
    """The database cannot be used; the message says what to do."""


def connect(url: str, *, create: bool = False) -> Engine:
    """An engine for the database. Raises :class:`StoreError` when there is none, or none of this revision.

    ``create``: the caller makes or upgrades the schema, so what is there is not judged.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        _check_sqlite_file(parsed, create)
    try:
        engine = create_engine(parsed)
    except (NoSuchModuleError, ModuleNotFoundError, ArgumentError) as error:
        raise StoreError(f"store.url {display(url)}: {error}; install the driver or correct the url") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "begin", _sqlite_begin)
    if not create:
        try:
            check_revision(engine, url)
        except StoreError:
            engine.dispose()
            raise
    return engine


def revision_of(connection: Connection) -> str | None:
    """The migration that the database stands at; None when it has no schema of ours."""
    try:
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DBAPIError:
        connection.rollback()
        return None


def check_revision(engine: Engine, url: str) -> None:
    """Raise :class:`StoreError` unless the schema is the one of this program."""
    try:
        with engine.connect() as connection:
            found = revision_of(connection)
    except SQLAlchemyError as error:
        raise StoreError(f"{display(url)} cannot be opened: {first_line(error)}") from error
    if found is None:
        raise StoreError(f"no database at {display(url)} yet: run slurmgpu db init")
    at = f"{display(url)} is at revision {found}"
    if found < REVISION:
        raise StoreError(f"{at}, this program needs {REVISION}: run slurmgpu db upgrade")
    if found > REVISION:
        raise StoreError(f"{at}, newer than this program's {REVISION}: upgrade slurmgpu")


def display(url: str) -> str:
    """The database's address without its password."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return str(parsed.database)
    return parsed.render_as_string(hide_password=True)


def first_line(error: BaseException) -> str:
    """The driver's own words, in one line."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError("store.url must be sqlite:////path/file or postgresql+psycopg://host/name") from error
    # A bare postgresql:// means another driver in each release of SQLAlchemy.
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _check_sqlite_file(url: URL, create: bool) -> None:
    path = Path(url.database or "")
    if not url.database or url.database == ":memory:":
        return
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path.parent}: {error.strerror}: set store.url or SLURMGPU_STORE_URL") from error
    elif not path.exists():
        raise StoreError(f"no database at {path} yet: run slurmgpu db init")


def _sqlite_settings(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _sqlite_begin alone
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    """A writer takes its lock at once: a reader that turns into a writer half-way could not wait for another."""
    writing = connection.get_execution_options().get("slurmgpu_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
