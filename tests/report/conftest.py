"""The store's fixtures serve the reports, too."""

from tests.store.conftest import engine, url

__all__ = ["engine", "url"]
