"""One database for the plans, filled with finished and standing work; nothing is committed to it."""

from tests.db.conftest import scenery

__all__ = ["scenery"]
