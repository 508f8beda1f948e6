"""Ids of clusters, nodes and GPUs: looked up once, made when they are new."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from slurmgpu.store import schema


def insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT of the connection's dialect, which knows ON CONFLICT."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def row_id(connection: Connection, table: Table, key: dict[str, Any], **more: Any) -> int:
    """The id of the row with this unique key; it is made, with ``more``, when there is none."""
    where = [table.c[name] == value for name, value in key.items()]
    found = connection.execute(select(table.c.id).where(*where)).scalar()
    if found is None:
        made = insert(connection, table).values(**key, **more).on_conflict_do_nothing().returning(table.c.id)
        found = connection.execute(made).scalar()
    if found is None:  # another collector was quicker
        found = connection.execute(select(table.c.id).where(*where)).scalar_one()
    return int(found)


class Names:
    """A cache that lives as long as what it holds is committed; clear it after a rollback."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, ...], int] = {}

    def clear(self) -> None:
        """Forget all."""
        self._ids.clear()

    def node(self, connection: Connection, cluster: str, node: str) -> tuple[int, int]:
        """(cluster id, node id)."""
        cluster_id = self._get(connection, ("cluster", cluster), schema.cluster, {"name": cluster})
        key = {"cluster_id": cluster_id, "name": node}
        return cluster_id, self._get(connection, ("node", cluster, node), schema.node, key)

    def gpu(self, connection: Connection, uuid: str) -> int:
        """The GPU's id."""
        return self._get(connection, ("gpu", uuid), schema.gpu, {"uuid": uuid})

    def _get(self, connection: Connection, name: tuple[str, ...], table: Table, key: dict[str, Any]) -> int:
        if name not in self._ids:
            self._ids[name] = row_id(connection, table, key)
        return self._ids[name]
