"""What every test may use."""

from tests.tables import pytest_terminal_summary, table_row

__all__ = ["pytest_terminal_summary", "table_row"]
