"""What an operator sees of the messages in a queue, and does to them: listed, deleted, moved.

What comes in: requests (`requests.py`). What goes out: rows of messages; queues without them; the log of who did it.
Rules: 1. Nothing is taken, and the queue's memory and its consumers do not notice it. 2. Everything goes in small
steps, the broker going on in between. 3. What was deleted or moved is on disk before it is told, and a large move
waits for the disk on its way instead of gathering in memory. 4. A caller that leaves stops the command after a step;
what is done by then is done, and logged. 5. What is damaged is listed without its body, is deleted as other messages
are, and ends a move. 6. To look, as to delete, needs the permission to read the queue, as a purge does; to move needs
as well what a publisher to the other queue needs.
Not here: what stands where (`queues/browsing.py`), taking out (`repair.py`), damage (`damage/damaged_rows.py`), what
a message says (`queues/contents.py`), reading from the disk (`bodies.py`), what arguments mean (`requests.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import structlog
import trio

from amqpd.declarations.names import locked
from amqpd.journal.lane import Lanes, joined
from amqpd.management.asking import refusals
from amqpd.management.errors import AtAnotherNode, BadArgument, NotPermitted, Unavailable
from amqpd.management.messages.bodies import Bodies, Reader, StretchPart
from amqpd.management.messages.leader_queues import leader_queue, require_here
from amqpd.management.messages.repair import Mover, delete, gone_from
from amqpd.management.messages.requests import MessagesRequest
from amqpd.management.operators import Operator
from amqpd.management.pacing import WalkPace, in_order
from amqpd.management.running import until_durable
from amqpd.node.node import Node
from amqpd.queues.browsing import UNACKED, Stretch, id_of, ready, runs_in, still, unacked
from amqpd.queues.contents import rows_of
from amqpd.queues.leader import LeaderQueue

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.port import QueuePort

# What is moved waits for its commit after this number of bytes, what is deleted after this number of steps.
MOVED_BYTES_MAX = 1 << 20
DELETED_STEPS_MAX = 256
# A caller that waits is told this often that the work goes on.
LIFE_SIGN_S = 1.0
# While one of these is on nothing is moved: a move takes of both. (An alarm of the operator's own does not count: a
# queue is best repaired while publishers wait.)
SHORTAGES = frozenset(("memory", "disk"))

Rows = list[dict[str, Any]]
log = structlog.get_logger(component="messages")


class MessageOperations:
    """The use cases for the messages of a queue: listed, deleted, moved. Each gives lists of rows as they come;
    the empty ones are signs of life."""

    def __init__(self, node: Node, reader: Reader, run_effects: Callable[[], None]) -> None:
        """`run_effects` is called after anything that acted on the node, and to have it look at the clock."""
        self._node = node
        self._reader = reader
        self._run_effects = run_effects

    async def list(self, request: MessagesRequest, by: Operator) -> AsyncGenerator[Rows, None]:
        """A row for each message that is meant, up to the count that is asked for. Raises NotFound, NotPermitted,
        Conflict."""
        queue = self._readable(request.vhost, request.queue, by)
        self._run_effects()
        holders = await holders_of(self._node, queue) if request.unacked and request.held_by else None
        left, told_at = request.count, trio.current_time()
        async with aclosing(self._parts(queue, request)) as parts:
            async for part in parts:
                page: Rows = []
                for first, last in meant(part, request):
                    last = min(last, first + left - 1)
                    if first <= last:
                        page += rows_of(
                            queue, part.stretch, part.bodies, first, last, request.body, self._node.now_ms
                        )
                        left -= last - first + 1
                if holders is not None and part.stretch.state == UNACKED:
                    page = [{**row, **holders.of(row["id"])} for row in page]
                if page or trio.current_time() - told_at > LIFE_SIGN_S:
                    told_at = trio.current_time()
                    yield page
                if not left:
                    return

    async def delete(self, request: MessagesRequest, by: Operator) -> AsyncGenerator[Rows, None]:
        """What was done so far, from time to time, and at the end: `count`, `first_id`, `last_id`. Raises NotFound,
        NotPermitted, Conflict."""
        act = _Act(self, self._readable(request.vhost, request.queue, by), request, by)
        async with aclosing(act.look() if request.dry_run else act.delete()) as pages:
            async for page in pages:
                yield page

    async def move(self, request: MessagesRequest, by: Operator) -> AsyncGenerator[Rows, None]:
        """As `delete`; and `full`, when the other queue takes no more; `damaged`, what it stopped at. Raises
        Unavailable while memory or disk is short."""
        act = _Act(self, self._readable(request.vhost, request.queue, by), request, by)
        target = self._writable(request.to_vhost, request.to_queue, by)
        if target is act.queue:
            raise BadArgument(f"the queue '{request.queue}' is where they are: name another one to move them to")
        async with aclosing(act.look() if request.dry_run else act.move(target)) as pages:
            async for page in pages:
                yield page

    def _readable(self, vhost: str, name: str, by: Operator) -> LeaderQueue:
        """Of a queue that is exclusive to a connection no user reads. Raises NotFound, NotPermitted, Conflict."""
        queue = leader_queue(self._node, vhost, name)
        if by.user is not None:
            with refusals():
                self._node.access.require(by.user, vhost, "read", "queue", name)
                if queue.record.exclusive:
                    raise locked(queue.record)
        return queue

    def _writable(self, vhost: str, name: str, by: Operator) -> LeaderQueue:
        """As a publisher to the default exchange writes to it. Raises NotFound, NotPermitted, Conflict."""
        if by.user is not None:
            if not self._node.access.may_enter(by.user, vhost):
                raise NotPermitted(f"user '{by.user}' has no permissions in vhost '{vhost}'")
            with refusals():
                self._node.access.require(by.user, vhost, "write", "exchange", "")
        try:
            return leader_queue(self._node, vhost, name)
        except AtAnotherNode as error:
            raise AtAnotherNode(f"{error}, and messages are moved between queues that one node leads") from None

    async def _parts(self, queue: LeaderQueue, request: MessagesRequest) -> AsyncGenerator[StretchPart, None]:
        bodies = Bodies(self._reader)
        for stretch in stretches(queue, request):
            async with aclosing(bodies.parts(stretch, request.step)) as parts:
                async for part in parts:
                    require_here(queue)
                    if stretch.level.store.damaged:
                        queue.look_for_damage()
                    yield part


class _Act:
    """Deleting or moving, step by step, with its account."""

    def __init__(
        self, messages: MessageOperations, queue: LeaderQueue, request: MessagesRequest, by: Operator
    ) -> None:
        self.queue = queue
        self._messages = messages
        self._node = messages._node
        self._request = request
        self._by = by
        self._left = request.count
        self._count = 0
        self._ids: tuple[int, int] | None = None
        self._damaged: tuple[int, int] | None = None
        """first and last id of the damaged messages at which a move ended"""
        self._told_at = trio.current_time()

    async def look(self) -> AsyncGenerator[Rows, None]:
        """Only count what would be done."""
        if self._request.condition:
            async with aclosing(self._messages._parts(self.queue, self._request)) as parts:
                async for part in parts:
                    for first, last in meant(part, self._request):
                        self._done(part.stretch, first, min(last, first + self._left - 1))
                    if not self._left:
                        break
                    for page in self._progress():
                        yield page
        else:
            for at, stretch in enumerate(stretches(self.queue, self._request)):
                self._done(stretch, stretch.first, min(stretch.last, stretch.first + self._left - 1))
                if not self._left:
                    break
                if at % self._request.step == 0:
                    await trio.lowlevel.checkpoint()
        yield [self._account(False)]

    async def delete(self) -> AsyncGenerator[Rows, None]:
        try:
            deleting = self._delete_those() if self._request.condition else self._delete_stretches()
            steps = 0
            async with aclosing(deleting) as done:
                async for _ in done:
                    steps += 1
                    self._messages._run_effects()
                    if not self._left:
                        break
                    if steps % DELETED_STEPS_MAX == 0:
                        await self._durable(self.queue.lane.alone)
                    for page in self._progress():
                        yield page
            await self._durable(self.queue.lane.alone)
            yield [self._account(False)]
        finally:
            self._log("messages deleted by an operator")

    async def move(self, target: LeaderQueue) -> AsyncGenerator[Rows, None]:
        mover = Mover(self._node, partial(gone_from, self._node, self.queue), target)
        nbytes = 0
        try:
            async with aclosing(self._messages._parts(self.queue, self._request)) as parts:
                async for part in parts:
                    if short := sorted(SHORTAGES & self._node.alarms.kinds):
                        raise Unavailable(f"the {short[0]} alarm is on: nothing is moved until it is off")
                    require_here(target)
                    level = part.stretch.level
                    if part.bodies.damage:
                        self._stopped_at(part)
                        break
                    level.store.cut_at(part.bodies.first, part.bodies.last)
                    for first, last in meant(part, self._request):
                        last = min(last, first + self._left - 1)
                        if first <= last and not mover.full:
                            nbytes += sum(
                                run.stride * (stop - start)
                                for run, start, stop, _ in runs_in(part.bodies, first, last)
                            )
                            self._done(part.stretch, first, last, mover.move(level, part.bodies, first, last))
                    self._messages._run_effects()
                    if not self._left or mover.full:
                        break
                    if nbytes > MOVED_BYTES_MAX:
                        await self._durable(joined(self.queue.lane.alone, target.lane.alone))
                        nbytes = 0
                    for page in self._progress():
                        yield page
            await self._durable(joined(self.queue.lane.alone, target.lane.alone))
            yield [self._account(mover.full)]
        finally:
            self._log("messages moved by an operator", to_queue=target.record.name, to_vhost=target.record.vhost)

    async def _delete_those(self) -> AsyncGenerator[None, None]:
        """Those of which the condition holds."""
        async with aclosing(self._messages._parts(self.queue, self._request)) as parts:
            async for part in parts:
                level = part.stretch.level
                level.store.cut_at(part.bodies.first, part.bodies.last)
                for first, last in meant(part, self._request):
                    last = min(last, first + self._left - 1)
                    if first <= last:
                        self._done(part.stretch, first, last, delete(self._node, self.queue, level, first, last))
                yield

    async def _delete_stretches(self) -> AsyncGenerator[None, None]:
        """All that is meant by its place: no body has to be read for it."""
        bodies = Bodies(self._messages._reader)
        for stretch in stretches(self.queue, self._request):
            seq, last = stretch.first, min(stretch.last, stretch.first + self._left - 1)
            while seq <= last and not self.queue.is_deleted:
                found = await bodies.piece(stretch.level, seq, last)
                if stretch.level.store.damaged:
                    self.queue.look_for_damage()
                if found is None:
                    break
                if self.queue.is_away:
                    require_here(self.queue)
                self._done(stretch, *found, delete(self._node, self.queue, stretch.level, *found))
                seq = found[1] + 1
                yield
                await trio.lowlevel.checkpoint()

    def _done(self, stretch: Stretch, first: int, last: int, count: int | None = None) -> None:
        """`count` of the messages first..last are, from the first on; or all of them."""
        count = last - first + 1 if count is None else count
        if count > 0:
            last = first + count - 1
            self._count += count
            self._left -= count
            low, high = (id_of(self.queue.record.id, stretch.level, seq) for seq in (first, last))
            self._ids = (low, high) if self._ids is None else (min(low, self._ids[0]), max(high, self._ids[1]))

    def _account(self, full: bool) -> dict[str, Any]:
        first, last = self._ids or (None, None)
        about = {"count": self._count, "first_id": first, "last_id": last, "full": full}
        return {**about, "damaged": self._damaged} if self._damaged else about

    def _stopped_at(self, part: StretchPart) -> None:
        for damage in self.queue.damaged():
            if damage.level is part.stretch.level and damage.segment.first <= part.first <= damage.segment.last:
                self._damaged = damage.left

    def _progress(self) -> Iterator[Rows]:
        if trio.current_time() - self._told_at > LIFE_SIGN_S:
            self._told_at = trio.current_time()
            yield [self._account(False)]

    async def _durable(self, lanes: Lanes) -> None:
        await until_durable(self._node, self._messages._run_effects, lanes)

    def _log(self, event: str, **fields: Any) -> None:
        request, (first, last) = self._request, self._ids or (None, None)
        about = {**fields, **request.said, "count": self._count, "first_id": first, "last_id": last}
        log.warning(event, queue=request.queue, vhost=request.vhost, **self._by.log_fields, **about)


def stretches(queue: LeaderQueue, request: MessagesRequest) -> Iterator[Stretch]:
    """What the request means by state, place and id."""
    if request.unacked:
        yield from unacked(queue, request.ids)
    if request.ready:
        yield from ready(queue, request.start, request.ids)


def meant(part: StretchPart, request: MessagesRequest) -> Iterator[tuple[int, int]]:
    """What of the part is still there, and what the request's condition holds of."""
    for first, last in still(part.stretch, part.first, part.last):
        if not request.condition:
            yield first, last
            continue
        if part.bodies.damage:
            continue  # nobody knows what it says
        for run, start, stop, seq in list(runs_in(part.bodies, first, last)):
            if request.condition.holds(run.properties):
                yield seq, seq + stop - start - 1


Held = tuple[int, int, dict[str, Any]]
"""first id, last id, who"""
NOBODY: dict[str, Any] = {"connection": None, "channel": None, "consumer_tag": None}


async def holders_of(node: Node, queue: QueuePort) -> Holders:
    """Walks over what is unacked in the queue's virtual host, in steps: what is settled meanwhile may be in it."""
    pace, found = WalkPace(), list[Held]()
    for connection in list(node.connections.values()):
        if connection.vhost != queue.record.vhost:
            continue
        for channel in list(connection.channels.values()):
            for entry in list(channel.unacked):
                await pace.step()
                if entry.queue is queue:
                    tag = None if entry.consumer is None else entry.consumer.tag
                    who = {"connection": connection.name, "channel": channel.id, "consumer_tag": tag}
                    found.append((entry.seq, entry.seq + entry.size - 1, who))
    return Holders(await in_order(found, itemgetter(0)))


class Holders:
    """The ledgers of all channels, as far as they have messages of one queue."""

    def __init__(self, found: list[Held]) -> None:
        """Ascending."""
        self._found = found

    def of(self, message_id: int) -> dict[str, Any]:
        """`connection`, `channel`, `consumer_tag` (None for basic.get): all None when nobody has it."""
        index = bisect_right(self._found, message_id, key=lambda each: each[0]) - 1
        if index >= 0 and self._found[index][1] >= message_id:
            return self._found[index][2]
        return NOBODY
