"""What a transaction has of the sources that this node leads.

What comes in: a transaction as it was cut, which queue is of which source. What goes out: an entry of each source
that has anything in it; of the transaction, what is of the local source.
Rules: 1. One entry of a source in a transaction, with the transaction's index. 2. Of the local source, rows leave the
disk in a later transaction than the one with their settling; of any other one each disk sees to that, so it is said
at once which ranges cover whole rows.
Not here: what gathers (`buffer.py`), an entry's bytes (`sqlite/payload.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from amqpd.journal.lane import Lane
from amqpd.journal.numbers import Numbers
from amqpd.journal.operation_marks import GatheringMarks
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.transaction import JournalTransaction


class LedSource:
    """A replicated source while this node is its leader: its epoch, its sequence numbers and its lane."""

    def __init__(self, epoch: int, numbers: Numbers, lane: Lane) -> None:
        self.epoch = epoch
        self.numbers = numbers
        self.lane = lane


def lanes_of(led_sources: Mapping[int, LedSource]) -> list[Lane]:
    """Each once."""
    return list({id(led.lane): led.lane for led in led_sources.values()}.values())


def divide(
    transaction: JournalTransaction,
    retired: list[SeqRange],
    led_sources: dict[int, LedSource],
    of: dict[int, int],
    marks: Mapping[int, GatheringMarks],
) -> list[SeqRange]:
    """What is of these sources becomes entries of theirs; `of`: queue_id -> source; `marks`: of operations, by
    source. Of what is `retired` with this transaction, that of the local source."""
    entries: dict[int, SourceEntry] = {}
    for source, led in led_sources.items():
        if led.numbers.wanted:
            # The others are asked for nothing: with many sources each transaction is of a few.
            _entry(entries, source, led_sources, transaction).reserved = led.numbers.take(transaction.index)
    for source, gathered in marks.items():
        _entry(entries, source, led_sources, transaction).marks = gathered.changes()
    for queue_id in of.keys() & transaction.delivered.keys():
        below = transaction.delivered.pop(queue_id)
        _entry(entries, of[queue_id], led_sources, transaction).delivered[queue_id] = below
    rows, settled = transaction.rows, transaction.settled
    counts, dropped = transaction.counts, transaction.dropped
    transaction.rows = [each for each in rows if each.queue_id not in of]
    transaction.settled = [each for each in settled if each.queue_id not in of]
    transaction.counts = [each for each in counts if each[0] not in of]
    transaction.dropped = [each for each in dropped if each not in of]
    for row in rows:
        if row.queue_id in of:
            _entry(entries, of[row.queue_id], led_sources, transaction).rows.append(row)
    for part in settled:
        if part.queue_id in of:
            _entry(entries, of[part.queue_id], led_sources, transaction).settled.append(part)
    for part in retired:
        if part.queue_id in of:
            _entry(entries, of[part.queue_id], led_sources, transaction).retired.append(part)
    for count in counts:
        if count[0] in of:
            _entry(entries, of[count[0]], led_sources, transaction).counts.append(count)
    for queue_id in dropped:
        if queue_id in of:
            _entry(entries, of[queue_id], led_sources, transaction).dropped.append(queue_id)
    transaction.entries = [entry for entry in entries.values() if not _is_empty(entry)]
    return [each for each in retired if each.queue_id not in of]


def _entry(
    entries: dict[int, SourceEntry], source: int, led_sources: dict[int, LedSource], transaction: JournalTransaction
) -> SourceEntry:
    """Made when there is something for it."""
    entry = entries.get(source)
    if entry is None:
        entry = entries[source] = SourceEntry(source, led_sources[source].epoch, transaction.index)
    return entry


def _is_empty(entry: SourceEntry) -> bool:
    # What is retired is settled, too.
    rare = entry.delivered or entry.counts or entry.dropped or entry.reserved or entry.marks
    return not (entry.rows or entry.settled or rare)
