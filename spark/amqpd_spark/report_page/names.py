"""Names of queues, users and exchanges, with what tells apart those that are equal.

What comes in: a table. What goes out: the columns to sum it by, and what to write of a row.
Rules: 1. Where a table has several virtual hosts each is named, "/" too; so are nodes. One alone is named if it is
not the usual one. 2. The whole table is looked at, for what a page does not show may have another.
Not here: the rows (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.report_page.parts import Cell

_PLACES = ("node", "vhost")


class Names:
    """`keys`: the table's columns that a name is to be taken with."""

    def __init__(self, table: DataFrame) -> None:
        self.keys = [name for name in _PLACES if name in table.columns]
        ends = [end(F.col(name)).alias(f"{name}_{end.__name__}") for name in self.keys for end in (F.min, F.max)]
        row = table.agg(*ends).first() if ends else None
        found = row.asDict() if row is not None else {}
        several = {name for name in self.keys if found[f"{name}_min"] != found[f"{name}_max"]}
        self._vhost = "vhost" in several or found.get("vhost_min") not in ("/", None)
        self._node = "node" in several

    def of(self, name: str, empty: str = "(none)") -> Callable[[dict[str, Any]], Cell]:
        """What is written where there is no name: `empty`."""

        def write(row: dict[str, Any]) -> Cell:
            # What has no virtual host or no node is of the log, or of all of them.
            where = [f"in {row['vhost']}"] if self._vhost and row.get("vhost") is not None else []
            where += [f"at {row['node']}"] if self._node and row.get("node") is not None else []
            return Cell(row[name] or empty, where=" ".join(where))

        return write
