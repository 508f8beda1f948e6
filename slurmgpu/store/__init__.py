"""The database: schema, writer, queries and upkeep, through SQLAlchemy Core. The same code for SQLite and Postgres."""
