"""Transactions that wait at the same time, carried out by one request: etcd syncs its disk for each.

What comes in: transactions in their order. What goes out: the same in groups, and a group as one transaction.
Rules: 1. Only what puts is joined, and only where none puts a key that another one names: then the order makes no
difference, and what is true of all together is true of each. What several compare in the same way is compared once.
2. A group is as much as etcd takes at once. 3. A group that is refused says nothing about each of its transactions:
they are carried out one by one.
Not here: carrying them out (`store.py`, `transactions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amqpd.topology.metadata.etcd.transactions import PART_CHARACTERS_MAX, PART_OPERATIONS_MAX
from amqpd.topology.metadata.store import Compare, MetadataTransaction, PutKey, bytes_of

COMPARES_MAX = 120
"""Of etcd's 128. A record with a number brings one, beside those that the transaction has."""


def groups_of(transactions: Sequence[MetadataTransaction]) -> Iterator[list[MetadataTransaction]]:
    """In their order; what is not joined is alone."""
    group = _Group()
    for each in transactions:
        if group.members and not group.fits(each):
            yield group.members
            group = _Group()
        group.add(each)
    if group.members:
        yield group.members


def joined(group: Sequence[MetadataTransaction]) -> MetadataTransaction:
    """All of it, or nothing."""
    compares = dict.fromkeys(compare for each in group for compare in each.compares)
    return MetadataTransaction(tuple(compares), tuple(operation for each in group for operation in each.operations))


class _Group:
    def __init__(self) -> None:
        self.members: list[MetadataTransaction] = []
        self._put: set[str] = set()
        self._compared: dict[str, Compare] = {}
        self._characters = 0

    def fits(self, transaction: MetadataTransaction) -> bool:
        puts = {operation.key for operation in transaction.operations}
        compares = {compare.key: compare for compare in transaction.compares}
        if not (_only_puts(transaction) and _only_puts(self.members[0])):
            return False
        if not (self._put.isdisjoint(puts | compares.keys()) and puts.isdisjoint(self._compared)):
            return False
        # Many require the same virtual host to be there.
        if any(self._compared.get(key, compare) != compare for key, compare in compares.items()):
            return False
        put = len(self._put) + len(puts)
        return (
            put <= PART_OPERATIONS_MAX
            and put + len(self._compared.keys() | compares.keys()) <= COMPARES_MAX
            and self._characters + bytes_of(transaction.operations) <= PART_CHARACTERS_MAX
        )

    def add(self, transaction: MetadataTransaction) -> None:
        self.members.append(transaction)
        self._put |= {operation.key for operation in transaction.operations}
        self._compared |= {compare.key: compare for compare in transaction.compares}
        self._characters += bytes_of(transaction.operations)


def _only_puts(transaction: MetadataTransaction) -> bool:
    return all(isinstance(operation, PutKey) for operation in transaction.operations)
