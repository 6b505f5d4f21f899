"""What every test may use."""

from hypothesis import settings

from tests.checks.tables import pytest_terminal_summary, table_row

__all__ = ["pytest_terminal_summary", "table_row"]

# A property holds or not: how long an example takes on a busy machine says nothing about it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
