"""Which keys of etcd belong to a metadata store, all below one prefix.

What comes in: the prefix. What goes out: keys, and the contract's keys from etcd's.
Rules: 1. `head` is put by every transaction that changes something, so its revision is that of the store: etcd counts
the changes of its other users too. A deletion in a revision without it was not asked for: a lease ran out. 2. What
the feed follows, `head` and the contract's keys, is one range; everything else sorts behind it.
Not here: what is in the values (`transactions.py`, `store.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one store, `prefix` included. `member`: the node that uses it."""

    prefix: str
    member: str

    @property
    def head(self) -> str:
        return f"{self.prefix}head"

    @property
    def entries(self) -> str:
        """What the contract's keys begin with."""
        return f"{self.prefix}keys/"

    @property
    def followed(self) -> tuple[str, str]:
        """Begin and end of `head` and all of `entries`."""
        return self.head, f"{self.prefix}keys0"

    @property
    def identity(self) -> str:
        return f"{self.prefix}store/identity"

    @property
    def tombstones(self) -> str:
        """What the keys of dropped numbers begin with (`topology/metadata/tombstones.py`)."""
        return f"{self.prefix}tombstone/"

    @property
    def journal(self) -> str:
        """What the node noted of its journal."""
        return f"{self.prefix}node/{self.member}/journal"

    @property
    def lives(self) -> str:
        """What the keys of a process of the node begin with."""
        return f"{self.prefix}node/{self.member}/incarnation/"

    def turn(self, incarnation: str) -> str:
        """What orders the transactions of one process (`turn.py`)."""
        return f"{self.lives}turn/{incarnation}"

    @property
    def leases(self) -> str:
        """What the notes of leases that were granted begin with."""
        return f"{self.lives}lease/"

    def lease(self, number: int) -> str:
        return f"{self.leases}{number}"

    def tombstone(self, number: int) -> str:
        return f"{self.tombstones}{number}"

    def key(self, key: str) -> str:
        return self.entries + key

    def contract_key(self, key: str) -> str:
        return key.removeprefix(self.entries)
