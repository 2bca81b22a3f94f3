"""What an operator does about damaged messages: export their bytes, or set them aside so that the queue goes on.

What comes in: which messages of which queue. What goes out: the raw bytes of a damaged row; files in the data
directory's `quarantine`, and queues without the row.
Rules: 1. The bytes are never taken for messages. 2. What is set aside is on disk, as a file with its facts beside it,
before it leaves the queue; where the files cannot be written nothing leaves. 3. A row that can be read after all goes
back in line. 4. Only what is ready leaves: what a consumer has is the consumer's. 5. The files of a row (`NAME.row`
with the bytes as they were read, `NAME.json`) are on stable storage, and so are their names, when `keep_row` returns;
another file of the same row gets a number, and the broker neither reads nor removes them.
Not here: finding damage (`queues/paging.py`), where a queue stops (`queues/damage.py`), deleting by number
(`messages/operations.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.journal.records import Row
from amqpd.management.errors import BadArgument, NotFound, Unavailable
from amqpd.management.messages.bodies import Bodies, Reader
from amqpd.management.messages.leader_queues import leader_queue, require_here
from amqpd.management.messages.repair import delete
from amqpd.management.messages.requests import MessagesRequest
from amqpd.management.operators import Operator
from amqpd.management.running import NodeAnswer, until_durable
from amqpd.node.node import Node
from amqpd.queues.browsing import EVERY, body_segment, ready
from amqpd.queues.damage import DamagedSegment, whole_again
from amqpd.queues.dispatchable import Paged
from amqpd.storage.files import sync_directory

# Of the bytes in one row of an answer, before base64: below what a row may have (`control_answers.VALUE_BYTES_MAX`).
PIECE_BYTES = 96 << 10

Rows = list[dict[str, Any]]
log = structlog.get_logger(component="messages")


@dataclass(frozen=True, slots=True)
class Which:
    """Damaged messages of a queue, or (`delayed`) of a virtual host's delayed ones: with these ids, pairs of first
    and last, or all."""

    vhost: str
    queue: str
    ids: Sequence[Sequence[int]] | None = None
    delayed: bool = False


class DamagedRows:
    """The use cases for damaged messages: export and quarantine. Each gives lists of rows as they come. `Which`
    says whose damage is meant."""

    def __init__(self, node: Node, reader: Reader, run_effects: Callable[[], None], data_dir: Path) -> None:
        """`run_effects` is called after anything that acted on the node."""
        self._node = node
        self._reader = reader
        self._run_effects = run_effects
        self._data_dir = data_dir

    async def export(self, which: Which) -> AsyncGenerator[Rows, None]:
        """What is known of the one damaged row that is meant, then its bytes in pieces (`data`, base64)."""
        queue, found = await self._meant(which)
        if len(found) > 1:
            rows = ", ".join(f"{first} to {last}" for first, last in (each.left for each in found))
            raise BadArgument(f"several rows are damaged, with the messages {rows}: choose one with --id")
        row = await self._read(found[0])
        yield [{**self._facts(queue, found[0], row), "row": True}]
        for at in range(0, len(row.data), PIECE_BYTES):
            yield [{"row": False, "data": b64encode(row.data[at : at + PIECE_BYTES]).decode()}]

    async def quarantine(self, which: Which, by: Operator, *, dry_run: bool = False) -> AsyncGenerator[Rows, None]:
        """A row for each damaged row that was set aside, or would be: `count`, `first_id`, `last_id`,
        `file`; or `whole`, when it can be read after all."""
        queue, found = await self._meant(which)
        for damage in found:
            first, last = damage.left
            row = await self._read(damage)
            if not damage.segment.left or queue.is_deleted:
                continue
            require_here(queue)
            about = {"count": damage.segment.left, "first_id": first, "last_id": last, "whole": False, "file": None}
            if row.data and not body_segment(row).damage:
                if not dry_run:
                    whole_again(damage)
                    queue.look_for_damage()
                    self._node.to_dispatch.add(queue)
                    self._run_effects()
                yield [{**about, "whole": True}]
                continue
            if dry_run:
                yield [about]
                continue
            yield [await self._set_aside(queue, damage, row, about, by)]

    async def _set_aside(
        self, queue: Paged, damage: DamagedSegment, row: Row, about: dict[str, Any], by: Operator
    ) -> dict[str, Any]:
        facts = self._facts(queue, damage, row)
        name = f"{queue.record.id}-{damage.first}-{damage.last}"
        try:
            file = await trio.to_thread.run_sync(keep_row, self._data_dir, name, row.data, facts)
        except OSError as error:
            raise Unavailable(
                f"the damaged messages cannot be written to {self._data_dir / 'quarantine'}: {error.strerror}; they "
                "stay in the queue"
            ) from error
        require_here(queue)
        level, segment = damage.level, damage.segment
        count = delete(self._node, queue, level, segment.first, segment.last)
        queue.look_for_damage()
        await until_durable(self._node, self._run_effects, queue.lane.alone)
        log.warning(
            "damaged messages set aside by an operator",
            queue=queue.record.name,
            vhost=queue.record.vhost,
            **by.log_fields,
            count=count,
            first_id=about["first_id"],
            last_id=about["last_id"],
            file=str(file),
        )
        return {**about, "count": count, "file": str(file)}

    async def _meant(self, which: Which) -> tuple[Paged, list[DamagedSegment]]:
        """The queue, and what is damaged in it: of the messages with these ids, or of all. Raises NotFound when there
        is none."""
        request = MessagesRequest.of_listing(
            {"vhost": which.vhost, "queue": which.queue, "ids": which.ids, "state": "all"}
        )
        if not which.delayed:
            queue: Paged = leader_queue(self._node, request.vhost, request.queue)
        elif (store := self._node.delayed.get(request.vhost)) is not None:
            queue = store
        else:
            raise NotFound(f"there is no queue '{request.queue}' in virtual host '{request.vhost}'")
        if request.ids != EVERY:
            await self._look_for_damage(queue, request)
        found = [
            damage
            for damage in queue.damaged()
            if any(low <= damage.last and high >= damage.first for low, high in request.ids)
        ]
        if not found:
            raise NotFound(
                f"no damage is known in the queue '{queue.record.name}': it is found when messages are read, and "
                "amqpd message list with a --count reads them"
            )
        return queue, found

    async def _look_for_damage(self, queue: Paged, request: MessagesRequest) -> None:
        """Read what is meant, in case nobody has."""
        bodies = Bodies(self._reader)
        for stretch in ready(queue, 1, request.ids):
            async with aclosing(bodies.parts(stretch, request.step)) as parts:
                async for _ in parts:
                    pass
        queue.look_for_damage()

    async def _read(self, damage: DamagedSegment) -> Row:
        """The row as the disk has it; without data when it has none."""
        answer, segment = NodeAnswer[list[Row]](), damage.segment
        self._reader.read(damage.level.queue_id, segment.first, segment.last, answer.give)
        found = await answer.wait()
        fitting = [row for row in found if (row.first_seq, row.last_seq) == (segment.first, segment.last)]
        return fitting[0] if fitting else Row(damage.level.queue_id, segment.first, segment.last)

    def _facts(self, queue: Paged, damage: DamagedSegment, row: Row) -> dict[str, Any]:
        segment = damage.segment
        return {
            "vhost": queue.record.vhost,
            "queue": queue.record.name,
            "queue_id": damage.level.queue_id,
            "first_id": damage.first,
            "last_id": damage.last,
            "not_settled": [[damage.first + low, damage.first + high - 1] for low, high in segment.live_ranges()],
            "messages": segment.left,
            "reason": damage.reason,
            "bytes": len(row.data),
            "body_bytes": row.body_bytes,
            "persistent": row.persistent,
            "published_ms": row.published_ms,
            "deadlines": row.deadlines.hex(),
            "found_ms": self._node.now_ms,
        }


FOLDER = "quarantine"


def keep_row(data_dir: Path, name: str, data: bytes, facts: Mapping[str, Any]) -> Path:
    """Where the bytes are now. Raises OSError, and leaves nothing behind then."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps({**facts, "sha256": hashlib.sha256(data).hexdigest()}, indent=2).encode() + b"\n"
    file = _unused(folder, name)
    about = file.with_suffix(".json")
    try:
        _write(file, data)
        _write(about, text)
        for each in (folder, data_dir):
            sync_directory(each)
    except OSError:
        file.unlink(missing_ok=True)
        about.unlink(missing_ok=True)
        raise
    return file


def _unused(folder: Path, name: str) -> Path:
    file, number = folder / f"{name}.row", 1
    while file.exists() or file.with_suffix(".json").exists():
        number += 1
        file = folder / f"{name}-{number}.row"
    return file


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
