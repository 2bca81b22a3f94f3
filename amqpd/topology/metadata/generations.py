"""Generations of a metadata store that went back: one name for each of its histories.

What comes in: a store's identity. What goes out: the identity of its next generation; whether two are generations of
one store.
Rules: a store that was put back to an older copy and used again has another history behind that copy; numbers of
revisions, which both histories have, do not tell them apart, so its identity does.
Not here: who sees that it went back (`etcd/store.py`, `datadir/cluster.py`).
"""

from __future__ import annotations

BETWEEN = "-"
"""first generations are without a number"""


def next_generation(identity: str) -> str:
    store, _, number = identity.partition(BETWEEN)
    return f"{store}{BETWEEN}{int(number or 1) + 1}"


def are_of_one_store(one: str, other: str) -> bool:
    return one.partition(BETWEEN)[0] == other.partition(BETWEEN)[0]
