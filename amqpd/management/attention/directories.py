"""Data directories of all nodes that are not in use, of nodes that have several: what each lacks, and what to do.

What comes in: the rows in which nodes tell of themselves (`figures/node_facts.py`). What goes out: sentences.
Rules: 1. A node of an older version tells of none. 2. What a node tells that is no directory of a known state is
passed over. 3. Pure.
Not here: when one is left behind, and its repair (`datadir/disks/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

BEHIND, REPAIR, FULL, SLOW, LEFT_OUT = "behind", "repair", "full", "slow", "left out"
DOCUMENT = "docs/disks.md"


class NodeDirectory(NamedTuple):
    """One data directory of one node."""

    node: str
    path: str
    state: str
    """in use is none of them"""
    reason: str
    """why it is so; empty: the state says it"""
    unrepaired: str
    """why it could not be made equal to the others when that was tried last; empty: it was not, or it will be"""
    counting: int
    """how many directories have everything, of how many that are `listed`"""
    listed: int

    @property
    def is_bad(self) -> bool:
        """What is stored from now on is on fewer disks until somebody acts."""
        return self.state == BEHIND

    def says(self, clustered: bool) -> str:
        """One sentence, without its full stop."""
        at = f" of node {self.node}" if clustered else ""
        # What ends a node of one directory names it; here it is named already.
        reason = self.reason.replace(f"the data directory {self.path} ", "it ", 1)
        why = f" ({reason})" if reason else ""
        return f"data directory {self.path}{at} {self._rest(why)}"

    def _rest(self, why: str) -> str:
        on = f"{self.counting} of {self.listed}"
        match self.state:
            case "behind" if self.unrepaired:
                return (
                    f"is left behind{why}, and could not be made equal to the others: {self.unrepaired}; {on} have "
                    f"everything; it is tried again by itself ({DOCUMENT})"
                )
            case "behind":
                return (
                    f"is left behind{why}: {on} have everything; bring its disk back, or put an empty one there, and "
                    f"it is made equal to the others by itself ({DOCUMENT})"
                )
            case "repair":
                return f"is made equal to the others{why}: until then {on} have everything"
            case "full":
                return "is full, and is left behind if that lasts: make space on its disk"
            case "slow":
                return f"does not answer{why}, and counts with what it has: look at its disk"
        return (
            "was taken out of the configuration and is not kept up: name it again, or empty it, so that nobody takes "
            "it for the data of this node"
        )


def of_node(facts: Mapping[str, Any]) -> Iterator[NodeDirectory]:
    """Of the row of one node."""
    said = facts.get("directories")
    for row in said if isinstance(said, list) else []:
        if _is_directory(row):
            numbers = int(row["counting"]), int(row["listed"])
            texts = row["path"], row["state"], row["reason"], row["unrepaired"]
            yield NodeDirectory(str(facts["name"]), *texts, *numbers)


def _is_directory(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in ("path", "state", "reason", "unrepaired"))
        and all(isinstance(row.get(name), int) for name in ("counting", "listed"))
        and row["state"] in (BEHIND, REPAIR, FULL, SLOW, LEFT_OUT)
    )
