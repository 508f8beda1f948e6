"""Alembic's environment: the connection comes from slurmgpu.store.migrate."""

from alembic import context

from slurmgpu.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
