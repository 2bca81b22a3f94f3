"""Transactions that wait at the same time, carried out by one request: etcd syncs its disk for each.

What comes in: transactions in their order. What goes out: the same in groups, and a group as one transaction.
Rules: 1. Only what puts is joined, and only where no two name the same key: then it makes no difference in which
order they are carried out, and what is true of all together is true of each. 2. A group is as much as etcd takes at
once. 3. A group that is refused says nothing about each of its transactions: they are carried out one by one.
Not here: carrying them out (`store.py`, `transactions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amqpd.topology.metadata.etcd.transactions import PART_CHARACTERS_MAX, PART_OPERATIONS_MAX
from amqpd.topology.metadata.store import PutKey, Transaction, bytes_of

COMPARES_MAX = 120
"""Of etcd's 128. A record with a number brings one, beside those that the transaction has."""


def groups_of(transactions: Sequence[Transaction]) -> Iterator[list[Transaction]]:
    """In their order; what is not joined is alone."""
    group: list[Transaction] = []
    keys, operations, compares, characters = set[str](), 0, 0, 0
    for each in transactions:
        named = {part.key for part in (*each.compares, *each.operations)}
        size = bytes_of(each.operations)
        fits = (
            operations + len(each.operations) <= PART_OPERATIONS_MAX
            and compares + len(each.compares) + len(each.operations) <= COMPARES_MAX
            and characters + size <= PART_CHARACTERS_MAX
        )
        if group and not (fits and _only_puts(each) and _only_puts(group[0]) and named.isdisjoint(keys)):
            yield group
            group, keys, operations, compares, characters = [], set(), 0, 0, 0
        group.append(each)
        keys |= named
        operations += len(each.operations)
        compares += len(each.compares) + len(each.operations)
        characters += size
    if group:
        yield group


def joined(group: Sequence[Transaction]) -> Transaction:
    """All of it, or nothing."""
    return Transaction(
        tuple(compare for each in group for compare in each.compares),
        tuple(operation for each in group for operation in each.operations),
    )


def _only_puts(transaction: Transaction) -> bool:
    return all(isinstance(operation, PutKey) for operation in transaction.operations)
