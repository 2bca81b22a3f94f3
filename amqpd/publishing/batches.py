"""The way of a batch: publishes that differ, looked up by key, divided by queue, entered together.

What comes in: a batch and the channel it came by. What goes out: each of its messages in the queues that its key
leads to, in the order of publication; or a no, when one of them has to be looked at by itself.
Rules: 1. Either the whole batch is taken or nothing has happened: after a no, its messages are published one after
the other (`publish.py`), and each error comes at its message. 2. A key is looked up once for a batch, a queue is
entered once; no object is made for a message. 3. The confirms of a batch wait for all of its queues. 4. Keys that are
new are looked up as far as the turn's budget reaches; a message at least goes on in each turn (`connection.py`).
Not here: which publishes make a batch (`kernel/mixed.py`), what decides a route (`routing.py`), single runs
(`publish.py`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final

from pamqp.exceptions import AMQPSoftError

from amqpd.flow.disk_space import LARGE_BYTES_MIN
from amqpd.flow.turns import COPY_WORK
from amqpd.journal.lane import NONE, joined
from amqpd.kernel import Mixed
from amqpd.publishing.acceptance import COPIES_AT_ONCE, accepted
from amqpd.publishing.offering import offer
from amqpd.publishing.ports import PublishingChannel, PublishingNode
from amqpd.publishing.publish import forget_routes, route_by_key
from amqpd.publishing.routes import Route
from amqpd.queues.port import QueuePort

# Of a batch that is divided, copies of messages: more are too much for one step, each may take a microsecond.
COPIES_MAX: Final = 32_768
# Messages that take about as long as a unit of `flow/turns.py`.
MESSAGES_A_WORK: Final = 2


def publish_batch(node: PublishingNode, channel: PublishingChannel, batch: Mixed) -> bool:
    """Take the batch in; False: nothing was done, and it must go message by message."""
    if batch.body_size_max > node.limits.message_bytes_max:
        return False
    if node.tracer is not None and node.tracer.looks_at(batch):
        return False
    properties = node.properties.read(batch.common)
    if not properties.plain:
        return False
    routes = _routes_by_key(node, channel, batch.keys)
    if not routes:
        return False
    found = [route.queues or () for route in routes]
    first = found[0]
    alike = len(found) == 1 or found.count(first) == len(found)
    # Which of the messages go to the most queues is not known here: as if all did.
    widest = max([len(queues) for queues in found])
    if batch.nbytes * widest >= LARGE_BYTES_MIN:
        return False  # whether it fits on the disk is asked for each of them
    if not alike and batch.count * widest > COPIES_MAX:
        return False
    confirms = channel.confirms
    if alike:
        for queue in first:
            if queue.may_refuse:
                return False
        if confirms is not None:
            confirms.published += batch.count
        batch.drop_keys()
        copies = len(first)
        passed_on = batch.count * copies
        taken, waits = offer(node, first, batch, properties, None, channel.connection)
    else:
        queues, ends, parts = _parts_by_key(found)
        for queue in queues:
            if queue.may_refuse:
                return False
        if confirms is not None:
            confirms.published += batch.count
        taken, waits = batch.count, NONE
        copies, passed_on = len(queues), 0
        for queue, part in zip(queues, batch.divided(ends, parts, copies), strict=True):
            part_taken, part_waits = offer(node, (queue,), part, properties, None, channel.connection)
            waits = joined(waits, part_waits)
            passed_on += part.count
            if part_taken < 0:
                taken = part_taken
    connection = channel.connection
    node.turns.charge(connection, batch.count // MESSAGES_A_WORK + COPY_WORK * copies)
    connection.publishing = True
    connection.published += batch.count
    channel.published += batch.count
    _count(routes, batch, passed_on)
    connection.published_bytes += batch.body_bytes
    accepted(node, channel, batch.count, max(taken, 0), waits, True)
    return True


def _count(routes: list[Route], batch: Mixed, copies: int) -> None:
    """The batch was taken, and is `copies` in queues: it has passed the exchanges of its keys, mostly one."""
    passed = routes[0].passed
    for route in routes:
        if route.passed is not passed:
            break
    else:
        passed.count(batch.count, copies)
        return
    # Which key a message has stands in its place in the index (`kernel/mixed.py`): the fourth of eight numbers.
    for number, messages in Counter(memoryview(batch.index).cast("H")[3::8]).items():
        route = routes[number]
        route.passed.count(messages, messages * len(route.queues or ()))


def _routes_by_key(node: PublishingNode, channel: PublishingChannel, keys: tuple[bytes, ...]) -> list[Route]:
    """Of each key; nothing, if one of them does not lead to queues at once."""
    routes = channel.routes
    if routes.version != node.topology.version:
        forget_routes(node, channel)
    known, found = routes.known, list[Route]()
    for key in keys:
        route = known.get(key)
        if route is None:
            try:
                route = route_by_key(node, channel, key)
            except AMQPSoftError:
                return []  # it is raised again at its message
            if route is None or channel.connection.intake.work_left <= 0:
                return []  # the next turn goes on with what is remembered now
        queues = route.queues
        if not queues or len(queues) > COPIES_AT_ONCE:
            return []
        found.append(route)
    return found


def _parts_by_key(found: list[tuple[QueuePort, ...]]) -> tuple[list[QueuePort], bytes, bytes]:
    """The queues, each once, in the order in which they come; and which of them each key leads to, as `Mixed.divided`
    wants it."""
    numbers: dict[QueuePort, int] = {}
    ends: list[int] = []
    parts: list[int] = []
    for queues in found:
        for queue in queues:
            parts.append(numbers.setdefault(queue, len(numbers)))
        ends.append(len(parts))
    return list(numbers), array("I", ends).tobytes(), array("I", parts).tobytes()
