"""What is written to a database is written when the driver's call returns, or the call raises.

A statement with RETURNING gives a row and waits: outside of a transaction it is committed when its cursor goes, and
an error of that (no space left, a failed fsync) is dropped by the driver. SQLAlchemy adds it to inserts of a row."""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import ModuleType
from typing import Any

import pytest

import amqpd.journal.sqlite
import amqpd.topology.metadata.sqlite

WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b")


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for each in value for text in texts(each)] if isinstance(value, (list, tuple)) else []


@pytest.mark.parametrize("package", [amqpd.journal.sqlite, amqpd.topology.metadata.sqlite])
def test_no_statement_that_writes_gives_rows(package: ModuleType) -> None:
    found = 0
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if not name.startswith("__"):
                written = [text for text in texts(value) if WRITES.match(text)]
                found += len(written)
                assert not [text for text in written if "RETURNING" in text], f"{module.name}.{name}"
    assert found >= 8
