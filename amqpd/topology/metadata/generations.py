"""Generations of a metadata store that went back: one name for each of its histories.

What comes in: a store's identity. What goes out: the identity of its next generation; how two of them stand to each
other.
Rules: a store that was put back to an older copy and used again has another history behind that copy; numbers of
revisions, which both histories have, do not tell them apart, so its identity does: the store, the number of the
generation, and a token, since two histories may begin behind the same copy.
Not here: who sees that it went back (`etcd/turn.py`, `datadir/pairing.py`).
"""

from __future__ import annotations

BETWEEN = "-"
"""first generations are the name of the store alone"""


def next_generation(identity: str, token: str) -> str:
    return BETWEEN.join((_store_of(identity), str(_number_of(identity) + 1), token))


def are_of_one_store(one: str, other: str) -> bool:
    return _store_of(one) == _store_of(other)


def is_earlier(one: str, other: str) -> bool:
    """It is an earlier generation of the same store."""
    return are_of_one_store(one, other) and _number_of(one) < _number_of(other)


def _store_of(identity: str) -> str:
    return identity.split(BETWEEN)[0]


def _number_of(identity: str) -> int:
    parts = identity.split(BETWEEN)
    return int(parts[1]) if len(parts) > 1 else 1
