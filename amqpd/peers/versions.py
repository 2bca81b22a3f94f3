"""Versions of what travels between nodes: which one a pair of nodes uses, and which one a set of nodes reads.

What comes in: the lowest and the highest version that nodes speak, as they said it in a handshake. What goes out: one
version for each link, and one for each replica set.
Rules: 1. A pair uses the highest version that both speak; with none in common there is no link, and the sentence that
says so names both and the way out. 2. A set uses the lowest version of its members, as their last links said: what a
leader hands to all of them alike is written so that each one reads it. A member that was never heard of has the
lowest version that this node speaks. 3. A node speaks the version before its own, so a cluster is upgraded one node
after the other.
Not here: the bytes of each version (`encoding.py`), where versions are told (`links/handshake.py`).

| version | what it added |
|---|---|
| 4 | a Greeting has one version, and a node refuses every other one |
| 5 | a Greeting has the lowest version, too; frames, heartbeats and answers name their sender's metadata revision |
| 6 | data connections, for sessions (of local sources, too) and applied revisions; marks of operations in entries |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

LOWEST, HIGHEST = 4, 6
"""that this node speaks"""
RANGED = 5
"""From this version on a Greeting names two versions, and is laid out alike for ever: what later versions add stands
behind. A node of an older one answers nothing else than its own version."""


NAMES_REVISIONS = 5
"""From this version on a message can name the metadata revision that its sender has heard of."""
HAS_DATA_LINKS = 6
"""From this version on a Greeting names the purpose of the connection: replication, or the sessions of remote
queues. A node of an older one takes every connection for one of replication, and is never dialed for another."""
READS_OPERATION_MARKS = 6
"""From this version on a node reads entries and states that have marks of operations (`journal/sqlite/payload.py`):
a source is open to clients of other nodes while all of its replica set do (`of_set`)."""


class Versions(NamedTuple):
    """The versions of the messages that a node speaks."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return str(self.highest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"

    def common(self, other: Versions) -> int | None:
        """The version that two nodes use; None: they have none in common."""
        version = min(self.highest, other.highest)
        return version if version >= max(self.lowest, other.lowest) else None


OWN = Versions(LOWEST, HIGHEST)


def none_in_common(own: Versions, peer: Versions) -> str:
    """For the operator of both."""
    older = "there" if peer.highest < own.lowest else "here"
    return (
        f"it speaks version {peer} of the messages, this node {own}: run the same amqpd on both, or upgrade the one "
        f"{older} through a release in between, which speaks both"
    )


def of_set(members: Iterable[str], heard: Mapping[str, int], own: int = HIGHEST) -> int:
    """The version that all of these read. `heard`: by name, the highest version that each one said last; `own`: of
    this node, which may be among them and need not be heard of."""
    return min([own, *(heard.get(name, LOWEST) for name in members)])
