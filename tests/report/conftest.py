"""The store's fixtures serve the reports, too."""

from tests.store.conftest import engine, postgres, url

__all__ = ["engine", "postgres", "url"]
