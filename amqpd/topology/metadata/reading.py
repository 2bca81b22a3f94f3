"""Records of the topology from a store that others write too: what cannot be read is left out, and named.

What comes in: keys and values. What goes out: records; for a queue whose record cannot be read, one that stands in
for it; the sentences about all that cannot be read.
Rules: 1. One record that cannot be read stops no node: what depends on it is missing, or out of service. 2. A queue
that cannot be read keeps its name: a message for it is refused, and not taken for one that no queue wants. 3. A
record that was read before stays as it was, until a node starts. 4. The local store has a checksum for each record:
there the same is damage of the file, and raises (`strict`).
Not here: the form of a record (`codec.py`), what out of service means (`node/quarantine.py`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import structlog
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges import check_types
from amqpd.topology.metadata.codec import PREFIX, RECORDS, decode_key, decode_record, encode_key, is_source, kind_of
from amqpd.topology.metadata.store import MetadataEntry, Operation, PutKey, Snapshot, StoreDamaged
from amqpd.topology.policy_keys import PolicyInvalid, check_values
from amqpd.vocabulary.records import Change, Delete, ExchangeRecord, PolicyRecord, Put, Record, UnreadableQueue

REASON_MAX = 400
STATE = "out of service, with what depends on it"
WAY_OUT = "until the record is put back as it was in a backup of etcd, or deleted there (docs/clustering.md)"

log = structlog.get_logger(component="topology")


class RecordReader:
    """Reader of one process's view of the topology. `unreadable`: keys, and why each of them cannot be read."""

    def __init__(self, *, strict: bool) -> None:
        self.unreadable: dict[str, str] = {}
        self._strict = strict

    def read(self, key: str, value: str, *, stands_in: bool = True) -> Record | None:
        """None: it cannot be read. `stands_in`: of a queue there is something all the same. Raises StoreDamaged if it
        is strict."""
        before = self.unreadable.pop(key, None)
        try:
            record = decode_record(key, value)
            if isinstance(record, ExchangeRecord) and not self._strict:
                check_types(record)
            elif isinstance(record, PolicyRecord) and not self._strict:
                check_values(record.definition)
        except (StoreDamaged, AMQPPreconditionFailed, PolicyInvalid) as error:
            if self._strict:
                raise
            reason = str(error) if isinstance(error, StoreDamaged) else f"the metadata's record {key}: {error}"
            self._name(key, reason, before)
            return _stand_in(key, value, self.unreadable[key]) if stands_in else None
        if before is not None:
            log.info("a record of the topology can be read again", key=key)
        return record

    def read_all(self, entries: Iterable[MetadataEntry]) -> Iterator[Record]:
        for entry in entries:
            if (record := self.read(entry.key, entry.value)) is not None:
                yield record

    def in_order(self, snapshot: Snapshot) -> list[MetadataEntry]:
        """The entries of a snapshot of `PREFIX`, virtual hosts and users first, bindings last. What was unreadable
        before is forgotten. Raises StoreDamaged if it is strict."""
        self.unreadable = {}
        of: dict[str, list[MetadataEntry]] = {kind: [] for kind in RECORDS}
        for entry in snapshot.entries:
            try:
                of[kind_of(entry.key)].append(entry)
            except StoreDamaged as error:
                if self._strict:
                    raise
                self._name(entry.key, str(error), None)
        return list(chain.from_iterable(of.values()))

    def changes_of(self, operations: Sequence[Operation], is_known: Callable[[str], bool]) -> Iterator[Change]:
        """What a revision of the store changed. `is_known`: there is a record of this key already, which is left as
        it is. Raises StoreDamaged if it is strict."""
        for operation in operations:
            if not operation.key.startswith(PREFIX):
                continue
            if isinstance(operation, PutKey):
                record = self.read(operation.key, operation.value, stands_in=not is_known(operation.key))
                if record is not None:
                    yield Put(record)
                continue
            self.unreadable.pop(operation.key, None)
            try:
                yield Delete(decode_key(operation.key))
            except StoreDamaged:
                if self._strict:
                    raise

    def sentences(self) -> list[str]:
        """What cannot be read, as sentences for an operator."""
        return [f"{reason}: it is {STATE} {WAY_OUT}" for _, reason in sorted(self.unreadable.items())]

    def refuse(self, puts: Iterable[Put]) -> None:
        """What is to be made must not be there already, as something that nobody can read. Raises
        AMQPPreconditionFailed."""
        if not self.unreadable:
            return
        for put in puts:
            if put.create and (reason := self.unreadable.get(encode_key(put.record.key))) is not None:
                raise AMQPPreconditionFailed(f"{reason}: it is {STATE}")

    def _name(self, key: str, reason: str, before: str | None) -> None:
        reason = reason if len(reason) <= REASON_MAX else f"{reason[:REASON_MAX]}..."
        self.unreadable[key] = reason
        if reason != before:
            log.error("a record of the topology is left out", reason=reason)


def records_of(snapshot: Snapshot) -> list[Record]:
    """The records of a snapshot of `PREFIX`, virtual hosts and users first, bindings last. Raises StoreDamaged."""
    reader = RecordReader(strict=True)
    return list(reader.read_all(reader.in_order(snapshot)))


def queue_of(key: str) -> tuple[str, str] | None:
    """The virtual host and the name; None: it is no queue's key."""
    try:
        kind, *names = decode_key(key)
    except StoreDamaged:
        return None
    return (names[0], names[1]) if kind == "queue" else None


def _stand_in(key: str, value: str, reason: str) -> UnreadableQueue | None:
    """With its number, its source and its node, if those can be read: what the journal has of it stays its own."""
    parts = queue_of(key)
    if parts is None:
        return None
    number, source, node = secrets.randbits(63), 0, ""
    try:
        fields = json.loads(value)
        found = fields["id"], fields.get("source", 0), fields.get("node", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = None, None, None
    if type(found[0]) is int and 0 <= found[0] < 1 << 63 and is_source(found[1]):
        number, source = found[:2]
        node = found[2] if isinstance(found[2], str) else ""
    return UnreadableQueue(*parts, number, source=source, node=node, reason=reason)
