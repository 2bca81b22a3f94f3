"""Rows of a table that `make test` leaves to `make test-heavy`: what they show is shown by the rows that stay, too.

What comes in: rows. What goes out: rows for `pytest.mark.parametrize`, of which some are marked slow.
Rules: 1. What stays is named, so a new row is slow until somebody says that it is quick and of another kind. 2. A
name that is no row is a mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """One row."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(kept: Collection[str], rows: Iterable[str]) -> list[Any]:
    """All rows, in their order."""
    rows = list(rows)
    assert set(kept) <= set(rows), f"no rows: {sorted(set(kept) - set(rows))}"
    return [row if row in kept else slow(row) for row in rows]
