"""Transactions of the contract as transactions of etcd: one as several, or several as one.

What comes in: compares and operations. What goes out: `Committed` or `CompareFailed`, as `store.py` of the contract
says.
Rules: 1. A record with a number of the journal is compared with what it was when the tombstone was chosen
(`topology/metadata/tombstones.py`); first it is taken for absent, which a declaration is right about. 2. What has no
effect does not move `head`: etcd has one revision for all, so a transaction that only deletes looks first. 3. What is
more than etcd takes at once is done in parts, in the transaction's order, in which no part needs a later one. A
compare is in the part that operates on its key, else in each with something that belongs to its record, or binds it;
the others are looked at first. 4. Of transactions that wait at the same time only those are joined that put and where
none puts a key that another one names: then the order makes no difference. A group that is refused says nothing about
each of them: they are carried out one by one.
Not here: lost answers (`turn.py`), leases that are gone (`store.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from amqpd.topology.metadata.codec import decode_key, encode_key
from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.messages import EtcdEntry, Message
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.etcd.turn import EtcdTurn
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    MetadataEntry,
    MetadataTransaction,
    Operation,
    Outcome,
    PutKey,
    StoreDamaged,
    bytes_of,
)
from amqpd.topology.metadata.tombstones import is_numbered, numbers

# etcd takes 128 compares and 128 operations, and reads each key that is named when it refuses. An operation may bring
# a tombstone, and each transaction has three keys more.
PART_OPERATIONS_MAX = 60
PART_NAMED_MAX = 120
# Of etcd's 1.5 MiB: a character may take four bytes. (Keys and values are not in base64 by then.)
PART_CHARACTERS_MAX = 384 * 1024


class Transactions:
    """Carries out transactions in the turn of one process. One call at a time."""

    def __init__(self, turn: EtcdTurn) -> None:
        self._turn = turn
        self._key = turn.layout.key

    async def execute(self, transaction: MetadataTransaction, patience: EtcdPatience) -> Outcome:
        """The outcome of a transaction that is one part. Raises what `EtcdTurn.swap` raises."""
        await self._turn.resolve_open(patience)
        keys = {named.key for named in (*transaction.compares, *transaction.operations)}
        before: dict[str, EtcdEntry] = {}
        if all(isinstance(operation, DeleteKey) for operation in transaction.operations):
            before = await self._found(keys, patience)
            if not any(operation.key in before for operation in transaction.operations):
                return await self._outcome(transaction, before, patience) or Committed(self._turn.head)
        while True:
            compares, operations = self._request(transaction, before)
            revision, seen = await self._turn.swap(compares, operations, sorted(map(self._key, keys)), patience)
            if revision:
                return Committed(revision)
            before = self._of_contract(seen)
            if (refused := await self._outcome(transaction, before, patience)) is not None:
                return refused

    async def _outcome(
        self, transaction: MetadataTransaction, found: Mapping[str, EtcdEntry], patience: EtcdPatience
    ) -> CompareFailed | None:
        """None when all compares hold."""
        failed = [each for each in transaction.compares if not each.holds(_entry(found.get(each.key)))]
        if not failed:
            return None
        # What a lease that ran out took away is behind `head`: the reader of a newer revision has seen that.
        gone = any(each.key not in found for each in failed)
        return CompareFailed(await self._turn.touch(patience) if gone else self._turn.head)

    async def _found(self, keys: Collection[str], patience: EtcdPatience) -> dict[str, EtcdEntry]:
        return self._of_contract(await self._turn.read([self._key(key) for key in sorted(keys)], patience))

    def _of_contract(self, seen: Mapping[str, EtcdEntry]) -> dict[str, EtcdEntry]:
        layout = self._turn.layout
        return {layout.contract_key(key): found for key, found in seen.items() if key.startswith(layout.entries)}

    def _request(
        self, transaction: MetadataTransaction, before: Mapping[str, EtcdEntry]
    ) -> tuple[list[Message], list[Message]]:
        """Compares and operations, if the records with numbers are as they were `before`."""
        tombstone = self._turn.layout.tombstone
        numbered = [operation.key for operation in transaction.operations if is_numbered(operation.key)]
        compares = [self._compared(each) for each in transaction.compares]
        compares += [
            messages.revision_is(self._key(key), before[key].mod_revision if key in before else 0) for key in numbered
        ]
        kept = [(key, before[key].value) for key in numbered if key in before and not before[key].lease]
        puts = [each for each in transaction.operations if isinstance(each, PutKey) and not each.lease]
        used = numbers((each.key, each.value) for each in puts)
        operations = [self._operated(operation) for operation in transaction.operations]
        operations += [messages.put(tombstone(number), "") for number in sorted(numbers(kept) - used)]
        operations += [messages.delete(tombstone(number)) for number in sorted(used)]
        return compares, operations

    def _compared(self, compare: Compare) -> Message:
        key = self._key(compare.key)
        return (
            messages.is_present(key)
            if compare.mod_revision is None
            else messages.revision_is(key, compare.mod_revision)
        )

    def _operated(self, operation: Operation) -> Message:
        key = self._key(operation.key)
        if isinstance(operation, PutKey):
            return messages.put(key, operation.value, operation.lease)
        return messages.delete(key)


class _Part:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.compares: dict[Compare, None] = {}
        self._named: set[str] = set()
        self._characters = 0
        self._numbered = 0

    def fits(self, operation: Operation, compares: Collection[Compare]) -> bool:
        named = len(self._named | {operation.key, *(compare.key for compare in compares)})
        return (
            len(self.operations) < PART_OPERATIONS_MAX
            and named + self._numbered + is_numbered(operation.key) <= PART_NAMED_MAX
            and self._characters + bytes_of([operation]) <= PART_CHARACTERS_MAX
        )

    def add(self, operation: Operation, compares: Collection[Compare]) -> None:
        self.operations.append(operation)
        self.compares |= dict.fromkeys(compares)
        self._named |= {operation.key, *(compare.key for compare in compares)}
        self._characters += bytes_of([operation])
        self._numbered += is_numbered(operation.key)

    def require(self, compares: list[Compare]) -> None:
        """Takes as many of them as fit."""
        while compares and len(self._named) + self._numbered < PART_NAMED_MAX:
            compare = compares.pop()
            self.compares[compare] = None
            self._named.add(compare.key)


def parts_of(transaction: MetadataTransaction) -> Iterator[MetadataTransaction]:
    """What etcd takes at once each; the transaction itself, when that is little enough."""
    compares: dict[str, list[Compare]] = {}
    for compare in transaction.compares:
        compares.setdefault(compare.key, []).append(compare)
    operated = {operation.key for operation in transaction.operations}
    parts = [_Part()]
    for operation in transaction.operations:
        # What an earlier part has changed itself is not compared again.
        needed = (key for key in _needed_by(operation.key) if key not in operated)
        wanted = [compare for key in (operation.key, *needed) for compare in compares.get(key, ())]
        if parts[-1].operations and not parts[-1].fits(operation, wanted):
            parts.append(_Part())
        parts[-1].add(operation, wanted)
    placed = {compare for part in parts for compare in part.compares}
    left = [compare for compare in transaction.compares if compare not in placed]
    parts[0].require(left)
    for at in range(0, len(left), PART_NAMED_MAX):
        yield MetadataTransaction(tuple(left[at : at + PART_NAMED_MAX]), ())
    for part in parts:
        yield MetadataTransaction(tuple(part.compares), tuple(part.operations))


def _needed_by(key: str) -> tuple[str, ...]:
    """The keys of what a record of this key belongs to, or binds."""
    try:
        kind, *names = decode_key(key)
    except StoreDamaged:
        # No record's, as the keys beside the topology.
        return ()
    if kind == "binding":
        vhost, source, destination_type, destination = names[:4]
        ends = ("exchange", vhost, source), (destination_type, vhost, destination)
        return encode_key(("vhost", vhost)), *map(encode_key, ends)
    return (encode_key(("vhost", names[0])),)


def _entry(found: EtcdEntry | None) -> MetadataEntry | None:
    return None if found is None else MetadataEntry(found.key, found.value, found.mod_revision, found.lease)


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
