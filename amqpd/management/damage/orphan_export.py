"""What an export of an orphan says: a line of JSON for each message, and for each damaged row.

What comes in: rows of the journal. What goes out: lines.
Rules: 1. All of a message is in its line: where it was published, its properties, its whole body, as a text when it
is one and in base64 when not. 2. Of a damaged row the line has the reason, the ids of its messages, and the bytes
that could be read, in base64: they are not what was written.
Not here: reading the rows, sending the lines (`orphan_operations.py`).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.node.orphans import Orphan, bodies_of, live
from amqpd.queues.browsing import id_of, runs_in
from amqpd.queues.contents import names, properties_of
from amqpd.queues.messages import Messages


def lines(orphan: Orphan, level: Messages, row: Row) -> Iterator[str]:
    """What an export says of the row."""
    parts = live(level, row)
    ids = [(id_of(orphan.id, level, first), id_of(orphan.id, level, last)) for first, last in parts]
    bodies = bodies_of(row)
    if row.damage:
        damaged = {"damage": row.damage, "ids": ids, "raw": b64encode(row.data).decode()}
        yield json.dumps(damaged) + "\n"
        return
    published = moment(row.published_ms or None)
    for first, last in parts:
        for run, start, stop, seq in runs_in(bodies, first, last):
            common = {**names(run), "properties": properties_of(run.properties), "published": published}
            for at in range(start, stop):
                about = {"id": id_of(orphan.id, level, seq + at - start), **common, **_payload(run, at)}
                yield json.dumps(about) + "\n"


def _payload(run: Run, at: int) -> dict[str, Any]:
    body = bytes(run.body(at))
    try:
        text, encoding = body.decode(), "string"
    except UnicodeDecodeError:
        text, encoding = b64encode(body).decode(), "base64"
    return {"payload": text, "payload_encoding": encoding, "payload_bytes": len(body)}


def moment(posix_ms: int | None) -> str | None:
    """As people write it, in UTC."""
    return None if posix_ms is None else datetime.fromtimestamp(posix_ms / 1000, UTC).isoformat(timespec="seconds")
