"""Tells of messages that are traced: published, routed, delivered, settled, dead-lettered.

What comes in: what channels and queues do with runs; random numbers and the time, by calls that are handed in. What
goes out: a `SpanFact` for each step, to `tell`, which never waits and never fails.
Rules: 1. A message without a sampled traceparent costs the look for one. 2. A delivery's parent is what the message
itself says, so that it has one after a restart, too; the publish is linked while it is remembered. Where several
publishes came with one context it is not known which was whose, and none is linked. 3. What is remembered has bounds:
publishes go, the oldest first; deliveries beyond theirs are settled without being told, and of a batch that is
delivered only the beginning is. 4. Messages of one run that are alike, headers included, are one span, with their
number. 5. Names that clients chose are as they came (`surrogateescape`): what sends facts on makes them sendable.
Attributes have the names of OpenTelemetry's semantic conventions for messaging where these have one, and begin with
`amqpd.` else.
Not here: who asks (`publishing/publish.py`, `node/node.py`, `session/settling.py`), what becomes of the facts
(`amqpd/process/spans.py`).

Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ and .../messaging/rabbitmq/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from amqpd.kernel import Run
from amqpd.tracing.context import TraceContext, TracedFields, contents_of, may_be_sampled, number_sampled
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import QueueRecord

Value = str | int | bool | list[str]


class SpanFact(NamedTuple):
    """One span, as the core tells it; times are in microseconds since the epoch."""

    name: str
    context: TraceContext
    """whose trace it is in"""
    span_id: int
    parent_id: int
    """`context.span_id`, or that of another span of ours"""
    serves: bool
    """it is the broker's half of what a client does; else what goes on inside"""
    start_us: int
    end_us: int
    attributes: Mapping[str, Value]
    link_id: int = 0
    """another span of the trace, which it follows from; 0: none"""
    error: str = ""
    """why it failed; empty: it did not"""


Tell = Callable[[SpanFact], None]


# Some 2 MB: what a consumer gets within a minute or so of its publish.
PUBLISHES_MAX = 10_000
# The same for deliveries that nobody has settled yet, on the whole node. Each message is one.
DELIVERIES_MAX = 10_000
# Of the queues that a publish goes to, that are named.
NAMES_MAX = 16
# What it takes to tell of something, in the unit of `flow/turns.py`.
SPAN_WORK = 40
# Of messages that differ and are delivered together, about ten milliseconds of it.
TOGETHER_MAX = 250

_SYSTEM: dict[str, Value] = {"messaging.system": "rabbitmq"}


class Publishing:
    """A publish on its way: begun, routed, and told of when it is done."""

    __slots__ = ("client", "contents", "ended", "queues", "routed_us", "run", "start_us")

    def __init__(self, client: Client, run: Run, contents: TracedFields, start_us: int) -> None:
        self.client = client
        self.run = run
        self.contents = contents
        self.start_us = self.routed_us = start_us
        self.queues: tuple[str, ...] | None = None
        """where it goes, once that is known"""
        self.ended = False


class Delivery:
    """Messages that a client has and did not settle yet."""

    __slots__ = ("attributes", "context", "queue", "span_id")

    def __init__(self, context: TraceContext, span_id: int, queue: str, attributes: dict[str, Value]) -> None:
        self.context = context
        self.span_id = span_id
        self.queue = queue
        self.attributes = attributes


class SentRange(NamedTuple):
    """Messages low..high-1 of the run, as they go to a client."""

    run: Run
    low: int
    high: int
    redelivered: bool
    tag: int
    """of the first of them"""
    operation: str
    """deliver or get"""
    no_ack: bool


Deliveries = dict[int, Delivery]
"""of a channel, by delivery tag"""


class Tracer:
    """Makes the spans of the traced messages of one node: publishes, deliveries, settlements, dead letters."""

    def __init__(self, span_id: Callable[[], int], clock_us: Callable[[], int], tell: Tell) -> None:
        """`span_id`: a random number of 64 bits, not 0; `clock_us`: since the epoch."""
        self._span_id = span_id
        self._clock_us = clock_us
        self._tell = tell
        self._published: dict[tuple[int, int], tuple[int, int]] = {}
        """trace and span of the publisher -> our span, when it ended; 0: there were several"""
        self.delivered_count = 0
        """messages that are delivered, traced and not settled"""
        self.untold = 0
        """messages that were too many at a time: of their delivery, or how they were settled, nothing is told"""

    # In

    def looks_at(self, batch: Run) -> bool:
        """One of the batch's messages may be traced: each is to be published by itself."""
        return may_be_sampled(batch.raw())

    def begin(self, client: Client, run: Run) -> Publishing | None:
        """The client has sent all of it; None: it is not traced."""
        contents = contents_of(run.properties)
        return None if contents is None else Publishing(client, run, contents, self._clock_us())

    def routed(self, publishing: Publishing, queues: Sequence[str]) -> None:
        """It is known which queues it goes to."""
        publishing.routed_us, publishing.queues = self._clock_us(), tuple(queues)

    def published(self, publishing: Publishing, run: Run, outcome: str) -> None:
        """What can be done at once is done; it may be confirmed when it is safe. `run`: the publish, or a part of it
        whose route is its own."""
        publishing.run, publishing.ended = run, True
        self._tell_publish(publishing, outcome, "")

    def failed(self, publishing: Publishing, error: str) -> None:
        """It was not taken, and its channel is closed."""
        publishing.ended = True
        self._tell_publish(publishing, "failed", error)

    def _tell_publish(self, publishing: Publishing, outcome: str, error: str) -> None:
        context, span_id, now_us = publishing.contents.context, self._span_id(), self._clock_us()
        run, queues, client = publishing.run, publishing.queues, publishing.client
        names = run.names_of(0)
        exchange = names[1 : 1 + names[0]].decode("utf-8", "surrogateescape")
        about = {**_about(client, publishing.contents, names), **_sizes(run.count, run.body_bytes)}
        if queues is not None:
            routing: dict[str, Value] = {
                **about,
                "messaging.operation.name": "route",
                "amqpd.route.queue_count": len(queues),
                "amqpd.route.queues": list(queues[:NAMES_MAX]),
            }
            times = publishing.start_us, publishing.routed_us
            self._tell(SpanFact("route", context, self._span_id(), span_id, False, *times, routing))
        attributes: dict[str, Value] = {
            **about,
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "amqpd.outcome": outcome,
        }
        if error:
            attributes["error.type"] = error.partition(" ")[0]
        else:
            self._remember(context, span_id, now_us)
        name = f"publish {exchange or 'amq.default'}"
        times = publishing.start_us, now_us
        self._tell(SpanFact(name, context, span_id, context.span_id, True, *times, attributes, 0, error))

    def _remember(self, context: TraceContext, span_id: int, now_us: int) -> None:
        published, key = self._published, (context.trace_id, context.span_id)
        if key in published:
            span_id = 0
        elif len(published) >= PUBLISHES_MAX:
            del published[next(iter(published))]
        published[key] = span_id, now_us

    # Out

    def delivered(self, client: Client, queue: str, arrived_ms: int, sent: SentRange, unacked: Deliveries) -> int:
        """It goes to the client. `arrived_ms`: when the first of it came into the queue; `unacked`: its channel's.
        What it took, see SPAN_WORK."""
        now_us, operation, work = self._clock_us(), sent.operation, 0
        for part, at, contents in self._traced(sent.run, sent.low, sent.high):
            work += SPAN_WORK
            context, span_id, names = contents.context, self._span_id(), part.names_of(0)
            about = _about(client, contents, names, queue)
            attributes: dict[str, Value] = {
                **about,
                **_sizes(part.count, part.body_bytes),
                "messaging.rabbitmq.message.delivery_tag": sent.tag + at,
                "messaging.operation.name": operation,
                "messaging.operation.type": "receive",
                "amqpd.redelivered": sent.redelivered,
            }
            link_id, published_us = self._published.get((context.trace_id, context.span_id), (0, 0))
            # The queue counts in milliseconds, so the first of its own may be before the publish ended.
            start_us = min(now_us, max(arrived_ms * 1000, published_us if link_id else 0))
            name = f"{operation} {queue}"
            times = start_us, now_us
            self._tell(SpanFact(name, context, span_id, context.span_id, False, *times, attributes, link_id))
            if not sent.no_ack:
                self._await_settlement(unacked, sent.tag + at, part.count, Delivery(context, span_id, queue, about))
        return work

    def _await_settlement(self, unacked: Deliveries, tag: int, count: int, delivery: Delivery) -> None:
        fitting = min(count, DELIVERIES_MAX - self.delivered_count)
        self.untold += count - fitting
        self.delivered_count += fitting
        for each in range(tag, tag + fitting):
            unacked[each] = delivery

    def settled(self, unacked: Deliveries, tag: int, count: int, operation: str, outcome: str) -> int:
        """The client has settled these tags, or its channel has ended. `operation`: ack, reject or requeue. What it
        took, see SPAN_WORK."""
        tags: Sequence[int] = range(tag, tag + count)
        if len(unacked) < count:
            tags = [each for each in unacked if tag <= each < tag + count]
        together: dict[Delivery, list[int]] = {}
        for each in tags:
            delivery = unacked.pop(each, None)
            if delivery is not None:
                together.setdefault(delivery, []).append(each)
        if not together:
            return 0
        now_us = self._clock_us()
        for delivery, settled in together.items():
            self.delivered_count -= len(settled)
            attributes: dict[str, Value] = {
                **delivery.attributes,
                **({"messaging.batch.message_count": len(settled)} if len(settled) > 1 else {}),
                "messaging.rabbitmq.message.delivery_tag": settled[0],
                "messaging.operation.name": operation,
                "messaging.operation.type": "settle",
                "amqpd.outcome": outcome,
            }
            context, span_id, name = delivery.context, self._span_id(), f"{operation} {delivery.queue}"
            self._tell(SpanFact(name, context, span_id, delivery.span_id, False, now_us, now_us, attributes))
        return SPAN_WORK * len(together)

    def forget(self, unacked: Deliveries) -> None:
        """Their channel is gone."""
        self.delivered_count -= len(unacked)
        unacked.clear()

    def dead_lettered(self, record: QueueRecord, run: Run, low: int, high: int, reason: str) -> int:
        """Messages low..high-1 of the run left the queue for its dead letter exchange. What it took, see
        SPAN_WORK."""
        now_us, queue, work = self._clock_us(), record.name, 0
        for part, _, contents in self._traced(run, low, high):
            work += SPAN_WORK
            context, name = contents.context, f"dead-letter {queue}"
            attributes: dict[str, Value] = {
                **_message(contents, part.names_of(0), queue),
                **_sizes(part.count, part.body_bytes),
                "messaging.operation.name": "dead-letter",
                "amqpd.vhost": record.vhost,
                "amqpd.reason": reason,
            }
            times = now_us, now_us
            self._tell(SpanFact(name, context, self._span_id(), context.span_id, False, *times, attributes))
        return work

    def _traced(self, run: Run, low: int, high: int) -> Iterator[tuple[Run, int, TracedFields]]:
        """Of the messages low..high-1 those that are traced, in runs of which all messages have the same properties;
        with the number of messages in front of each."""
        if not run.mixed:
            contents = contents_of(run.properties)
            if contents is not None:
                yield run if high - low == run.count else run.part(low, high), 0, contents
            return
        whole = run if high - low == run.count else run.part(low, high)
        if not whole.mixed:
            yield from self._traced(whole, 0, whole.count)
            return
        left = number_sampled(whole.raw())
        for at in range(whole.count if left else 0):
            part = whole.part(at, at + 1)
            contents = contents_of(part.properties)
            if contents is not None:
                yield part, at, contents
                left -= 1
                if at >= TOGETHER_MAX or left <= 0:
                    break
        self.untold += max(0, left)


def _about(client: Client, contents: TracedFields, names: bytes, queue: str = "") -> dict[str, Value]:
    return {
        **_message(contents, names, queue),
        "messaging.client.id": client.name,
        "amqpd.vhost": client.vhost,
        "amqpd.user": client.user,
    }


def _message(contents: TracedFields, names: bytes, queue: str) -> dict[str, Value]:
    """`names`: its exchange and its routing key, as in basic.publish."""
    size = names[0]
    exchange = names[1 : 1 + size].decode("utf-8", "surrogateescape")
    routing_key = names[2 + size :].decode("utf-8", "surrogateescape")
    # The conventions' name of a destination: what there is of exchange, routing key and, for who receives, queue; the
    # last once if both are the same.
    parts = [exchange, routing_key, "" if queue == routing_key else queue]
    found: dict[str, Value] = {
        **_SYSTEM,
        "messaging.destination.name": ":".join(part for part in parts if part) or "amq.default",
    }
    if routing_key:
        found["messaging.rabbitmq.destination.routing_key"] = routing_key
    if contents.message_id:
        found["messaging.message.id"] = contents.message_id.decode("utf-8", "surrogateescape")
    if contents.correlation_id:
        found["messaging.message.conversation_id"] = contents.correlation_id.decode("utf-8", "surrogateescape")
    return found


def _sizes(count: int, body_bytes: int) -> dict[str, Value]:
    """Of several messages their number, of one its size."""
    return {"messaging.batch.message_count": count} if count > 1 else {"messaging.message.body.size": body_bytes}
