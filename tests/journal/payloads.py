"""What an entry has, read back from its payload, for disks that keep no tables, and for tests."""

from __future__ import annotations

import json

from amqpd.journal.records import Row, SeqRange, SourceEntry
from amqpd.journal.sqlite.payload import PayloadChunk, decode, numbers, pairs, triples
from amqpd.journal.sqlite.statements import NUMBER_BYTES, NUMBERS


def entry_of(payload: bytes) -> SourceEntry:
    """As it was when it was made, with its bodies joined."""
    found = decode(payload)
    entry = SourceEntry(found.source, found.epoch, found.idx, reserved=found.reserved)
    for chunk in found.chunks:
        entry.rows += _rows(chunk)
    entry.settled = [SeqRange(*each[:3]) for each in json.loads(found.settled or "[]")]
    entry.retired = [SeqRange(*each) for each in triples(found.retired)]
    entry.delivered = dict(pairs(found.delivered))
    entry.counts = triples(found.counts)
    entry.dropped = numbers(found.dropped)
    entry.marks = [*found.marks]
    return entry


def _rows(chunk: PayloadChunk) -> list[Row]:
    timed = {
        (queue_id, first, last): bytes(chunk.data[at - 1 : at - 1 + nbytes])
        for queue_id, first, last, at, nbytes, _ in json.loads(chunk.deadlines or "[]")
    }
    rows = []
    for at in range(chunk.rows):
        begin = at * NUMBERS * NUMBER_BYTES
        said = [
            int(bytes(chunk.numbers[begin + each * NUMBER_BYTES : begin + (each + 1) * NUMBER_BYTES]))
            for each in range(NUMBERS)
        ]
        queue_id, first, last, persistent, offset, nbytes, _, body_bytes, published_ms, _ = said
        data = bytes(chunk.data[offset - 1 : offset - 1 + nbytes])
        deadlines = timed.get((queue_id, first, last), b"")
        rows.append(Row(queue_id, first, last, data, bool(persistent), body_bytes, published_ms, deadlines))
    return rows
