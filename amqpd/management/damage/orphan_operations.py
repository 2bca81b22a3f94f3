"""What an operator does with messages whose queue is unknown: lists them, adopts, exports and deletes them.

What comes in: the numbers of orphans, and who gets their messages. What goes out: rows; messages in the queue that
adopts them; lines of an export; the log and the audit log of who did it.
Rules: 1. One thing at a time is done with an orphan. 2. Everything goes in small steps, the broker going on in
between. 3. Adopting goes row by row, in the order of the queue that it was: a message leaves the orphan in the
transaction of the journal in which it enters the other queue. 4. A damaged row stops adopting, and is a line of its
own in an export, with the reason and the bytes that could be read: an adoption ends there, since what stands behind
must not overtake it unnoticed. 5. The limits of the queue that adopts hold: what it does not take stays, and adopting
can be repeated. However it ends, it is said how much was moved, and that is on disk. 6. In an export all of a message
is in its line: where it was published, its properties, its body, as a text or in base64.
Not here: what an orphan is (`node/orphans.py`), reading the disk (`journal/writer.py`).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import Any

import structlog
import trio

from amqpd.journal.lane import joined
from amqpd.journal.records import Row
from amqpd.kernel import Run
from amqpd.management.errors import AtAnotherNode, BadArgument, Conflict, NotFound, Unavailable
from amqpd.management.messages.bodies import Reader
from amqpd.management.messages.operations import LIFE_SIGN_S, MOVED_BYTES_MAX, SHORTAGES
from amqpd.management.messages.repair import Mover
from amqpd.management.operators import Operator
from amqpd.management.running import NodeAnswer, until_durable
from amqpd.node.node import Node
from amqpd.node.orphans import Orphan, bodies_of, live
from amqpd.queues.browsing import id_of, runs_in
from amqpd.queues.contents import names, properties_of
from amqpd.queues.messages import Messages
from amqpd.queues.port import QueuePort
from amqpd.vocabulary.journal_numbers import delayed_numbers


class Adoption:
    """One orphan on its way into one queue."""

    def __init__(self, node: Node, orphan: Orphan, target: QueuePort) -> None:
        self._node = node
        self._orphan = orphan
        self._target = target
        self._mover = Mover(node, orphan.withdrawn, target)
        self._count = 0
        self._stopped: str | None = None

    async def steps(
        self,
        rows: AsyncGenerator[tuple[Messages, Row], None],
        run_effects: Callable[[], None],
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Until nothing is left, or something stands in the way; what was moved is on disk then.
        From time to time it says how far it is. `run_effects` has the node act on what was done."""
        nbytes, told_at = 0, trio.current_time()
        lanes = joined(self._orphan.lane.alone, self._target.lane.alone)
        async with aclosing(rows) as found:
            async for level, row in found:
                bodies = bodies_of(row)
                self._stopped = self._reason(row)
                if self._stopped is not None:
                    break
                level.store.cut_at(row.first_seq, row.last_seq)
                self._count += self._mover.move(level, bodies, row.first_seq, row.last_seq)
                run_effects()
                if self._mover.full:
                    name = self._target.record.name
                    self._stopped = f"the queue '{name}' takes no more: make space in it, and adopt the rest"
                    break
                nbytes += len(row.data)
                if nbytes > MOVED_BYTES_MAX:
                    await until_durable(self._node, run_effects, lanes)
                    nbytes = 0
                if trio.current_time() - told_at > LIFE_SIGN_S:
                    told_at = trio.current_time()
                    yield [self.account()]
        await until_durable(self._node, run_effects, lanes)

    def account(self) -> dict[str, Any]:
        """`stopped`: why there is something left, in a sentence; None while there is no reason."""
        return {"count": self._count, "left": self._orphan.ready_count, "stopped": self._stopped}

    def _reason(self, row: Row) -> str | None:
        """Not to go on with this row."""
        if row.damage:
            return f"{row.damage}: the rest stays parked, and `amqpd orphans export` writes what of it can be read"
        if short := sorted(SHORTAGES & self._node.alarms.kinds):
            return f"the {short[0]} alarm is on: nothing is adopted until it is off"
        if not self._target.is_served:
            return f"the queue '{self._target.record.name}' was deleted meanwhile, or is out of service now"
        return None


# A line of an export goes over the control socket in pieces of at most this number of characters: a message may be
# larger than what one row of an answer may be.
PIECE_CHARACTERS = 96 << 10

Rows = list[dict[str, Any]]
log = structlog.get_logger(component="orphans")


class OrphanOperations:
    """The use cases for orphans: listed, adopted, exported, deleted. Each gives lists of rows as they come."""

    def __init__(self, node: Node, reader: Reader, run_effects: Callable[[], None]) -> None:
        """`run_effects` is called after anything that acted on the node."""
        self._node = node
        self._reader = reader
        self._run_effects = run_effects

    async def listed(self) -> AsyncGenerator[Rows, None]:
        """A row for each orphan, with the exchange and the routing key of its first message: with the default
        exchange, that is the name of the queue that it was in."""
        for orphan in list(self._node.orphans):
            facts = orphan.facts_of()
            oldest, newest = facts.pop("oldest_ms"), facts.pop("newest_ms")
            first = {"exchange": None, "routing_key": None, "damage": None}
            if not orphan.busy:
                first |= await self._first(orphan)
            yield [{**facts, "oldest": moment(oldest), "newest": moment(newest), **first}]

    async def adopt(self, orphan_id: str, vhost: str, name: str | None, by: Operator) -> AsyncGenerator[Rows, None]:
        """Its messages go to the end of the queue `name`. What was done so far, from time to time, and at the end:
        `count`, `left`, `stopped` (why something is left). Raises NotFound, Conflict, Unavailable."""
        orphan = self._orphan(orphan_id)
        if name is None:
            raise BadArgument("say which queue adopts the messages")
        target = self._target(vhost, name)
        with self._busy(orphan, "adopted"):
            act = Adoption(self._node, orphan, target)
            try:
                async with aclosing(act.steps(self.rows(orphan), self._run_effects)) as pages:
                    async for page in pages:
                        yield page
                if not orphan.ready_count:
                    await self._end(orphan)
                yield [act.account()]
            finally:
                record = target.record
                about = {"to_queue": record.name, "to_vhost": record.vhost, **act.account()}
                self._record("adopted", orphan, record.vhost, about, by)

    def give_back(self, orphan_id: str, vhost: str, by: Operator) -> dict[str, Any]:
        """Its messages go on waiting for their times, as the virtual host's delayed messages; `count`, `left`,
        `stopped` as `adopt` has them. Raises NotFound, Conflict."""
        orphan = self._orphan(orphan_id)
        if vhost not in self._node.topology.vhosts:
            raise NotFound(f"there is no virtual host '{vhost}': `amqpd vhost list` says which there are")
        if orphan.id not in delayed_numbers(self._node.identity.id, vhost):
            raise BadArgument(
                f"the orphan {orphan.id} is not what is left of the delayed messages of virtual host '{vhost}': "
                "name another virtual host, or a queue with --queue"
            )
        if not self._node.registry.delays(vhost):
            raise Conflict(
                f"virtual host '{vhost}' has no exchange of the type x-delayed-message, and what falls due would be "
                "dropped: declare the exchange, its queues and bindings first"
            )
        store = self._node.delayed.get(vhost)
        if store is not None and store.ready_count:
            raise Conflict(
                f"virtual host '{vhost}' has other delayed messages: adopt these when those have fallen due, or name "
                "a queue with --queue"
            )
        count = orphan.ready_count
        with self._busy(orphan, "adopted"):
            self._node.registry.give_back(vhost, orphan)
        self._run_effects()
        self._record("adopted", orphan, vhost, {"to_vhost": vhost, "delayed": True, "count": count}, by)
        return {"count": count, "left": 0, "stopped": None}

    async def export(self, orphan_id: str, by: Operator) -> AsyncGenerator[Rows, None]:
        """Rows whose `text`, end to end, is a JSON object in a line for each message and each damaged row; the last
        row has `count` (messages), `damaged` (rows) and `missing` (messages in them)."""
        orphan = self._orphan(orphan_id)
        count = damaged = missing = 0
        with self._busy(orphan, "exported"):
            async with aclosing(self.rows(orphan)) as found:
                async for level, row in found:
                    for text in lines(orphan, level, row):
                        count += not row.damage
                        pieces = range(0, len(text), PIECE_CHARACTERS)
                        yield [{"text": text[at : at + PIECE_CHARACTERS]} for at in pieces]
                    if row.damage:
                        damaged += 1
                        missing += sum(last - first + 1 for first, last in live(level, row))
        done = {"count": count, "damaged": damaged, "missing": missing}
        self._record("exported", orphan, None, done, by)
        yield [done]

    async def delete(self, orphan_id: str, by: Operator, *, dry_run: bool = False) -> dict[str, int]:
        """`count`: how many messages it was, or would be. Raises NotFound, Conflict."""
        orphan = self._orphan(orphan_id)
        count = orphan.ready_count
        if not dry_run:
            with self._busy(orphan, "deleted"):
                await self._end(orphan)
            self._record("deleted", orphan, None, {"count": count}, by)
        return {"count": count}

    # What these have in common

    def _orphan(self, orphan_id: str) -> Orphan:
        number = int(orphan_id) if orphan_id.isascii() and orphan_id.isdecimal() else None
        orphan = None if number is None else self._node.orphans.get(number)
        if orphan is None:
            raise NotFound(f"there is no orphan {orphan_id}: `amqpd orphans list` says which there are")
        return orphan

    def _target(self, vhost: str, name: str) -> QueuePort:
        queue = self._node.ports.get((vhost, name))
        if queue is None:
            raise NotFound(f"there is no queue '{name}' in virtual host '{vhost}': declare it first")
        if queue.is_remote:
            raise AtAnotherNode(
                f"another node leads the queue '{name}': give the orphan to a queue of this node (declare one here), "
                "or write its messages to a file with `amqpd orphans export`"
            )
        if not queue.is_served:
            raise Unavailable(f"the queue '{name}' is out of service: `amqpd status` says why")
        return queue

    @contextmanager
    def _busy(self, orphan: Orphan, what: str) -> Iterator[None]:
        if orphan.busy:
            raise Conflict(f"the orphan {orphan.id} is just being {orphan.busy}: try again when that has ended")
        orphan.busy = what
        try:
            yield
        finally:
            orphan.busy = ""

    async def rows(self, orphan: Orphan) -> AsyncGenerator[tuple[Messages, Row], None]:
        """The orphan's rows of which something is left, in order."""
        for level in orphan.levels_in_order():
            seq = 0
            while (index := level.store.index_of(seq)) < len(level.store.segments):
                seq = max(seq, level.store.segments[index].first)
                found = await self._read(level, seq, level.store.next_seq - 1)
                if not found or found[0].first_seq > seq:
                    last = found[0].first_seq - 1 if found else level.store.next_seq - 1
                    reason = f"the row with message {seq} of queue {level.queue_id} is missing in the journal"
                    found.insert(0, Row(level.queue_id, seq, last, damage=reason))
                for row in found:
                    if live(level, row):
                        yield level, row
                    seq = row.last_seq + 1

    async def _read(self, level: Messages, first: int, last: int) -> list[Row]:
        answer = NodeAnswer[list[Row]]()
        self._reader.read(level.queue_id, first, last, answer.give)
        return await answer.wait()

    async def _first(self, orphan: Orphan) -> dict[str, Any]:
        """What the first message says of where it was published."""
        for level in orphan.levels_in_order():
            if level.store.segments:
                seq = level.store.segments[0].first + level.store.segments[0].head
                for row in await self._read(level, seq, seq):
                    bodies = bodies_of(row)
                    if row.damage:
                        return {"damage": row.damage}
                    return names(bodies.alike(seq - row.first_seq, seq - row.first_seq + 1)[0])
        return {}

    async def _end(self, orphan: Orphan) -> None:
        """Nothing of it is on the disk any more when this returns."""
        orphan.drop()
        await until_durable(self._node, self._run_effects, orphan.lane.alone)
        self._node.orphans.forget(orphan)
        self._run_effects()

    def _record(self, what: str, orphan: Orphan, vhost: str | None, about: dict[str, Any], by: Operator) -> None:
        log.warning(f"orphan {what} by an operator", orphan=orphan.id, **by.log_fields, **about)
        self._node.acts.of_orphan(f"orphan_{what}", orphan.id, vhost, about, by.caller)


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
