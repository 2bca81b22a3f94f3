"""The firehose: copies of what clients publish and get in a virtual host, for a client that binds to
`amq.rabbitmq.trace`.

What comes in: an operator's word that a virtual host is traced; its publishes and deliveries. What goes out: messages
to that exchange, `publish.<exchange>` and `deliver.<queue>`, with the same body and headers that say whose it is.
Rules: 1. Off, it costs nothing but flags of the channel, which only what is not plain looks at, and a delivery. 2.
What is traced is not traced again. 3. It ends with the broker, or the vhost.
Not here: the operator's command (`management/traces.py`), how copies are published in time, or dropped (`copies.py`).

Source: https://www.rabbitmq.com/docs/firehose; RabbitMQ 4, deps/rabbit/src/rabbit_trace.erl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.propertylist import FLAGS, HEADERS, PropertyList
from amqpd.message.rewriting import readdressed, run_names
from amqpd.publishing.copies import OwnPublishes
from amqpd.publishing.ports import PublishingNode
from amqpd.queues.port import QueuePort
from amqpd.session.ports import ChannelBase
from amqpd.tracing.tracer import SentRange
from amqpd.vocabulary.records import Change, Delete
from amqpd.wire.fieldtypes import SignedInt
from amqpd.wire.fieldwriter import Encoded, join_table, write_table

EXCHANGE = "amq.rabbitmq.trace"
# A routing key is a short string; the names in it may be as long as that alone.
KEY_BYTES_MAX = 255

# All headers have to fit into one frame, of 128 KiB mostly: names of queues, and routing keys, beyond this many bytes
# are left out, and so are the message's own headers that are larger.
NAMES_BYTES_MAX = 16 * 1024
OWN_HEADERS_BYTES_MAX = 48 * 1024

_TEXT, _NUMBER = range(2)
_NAMES = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_KINDS = dict.fromkeys(("delivery_mode", "priority", "timestamp"), _NUMBER)


class FirehoseRun(NamedTuple):
    """A run of which the firehose publishes copies: all of its messages were published, or delivered."""

    run: Run
    key: str
    about: dict[str, Any]
    """headers beside those that say what the message was"""


class Tap:
    """The firehose of one virtual host: it publishes copies of what clients publish and get there."""

    def __init__(self, vhost: str, node: PublishingNode) -> None:
        self._node_name = node.identity.name
        self.copies = OwnPublishes(node, vhost, EXCHANGE, "firehose", "trace", self._made)

    def add(self, traced: FirehoseRun) -> None:
        self.copies.add(traced, traced.key, traced.run.count, traced.run.nbytes)

    def _made(self, traced: FirehoseRun) -> Run:
        return readdressed(traced.run, EXCHANGE, traced.key, _headers(traced, self._node_name))


class Firehose:
    """Publishes a copy of what passes in traced virtual hosts to `amq.rabbitmq.trace`."""

    def __init__(self, node: PublishingNode) -> None:
        self._node = node
        self.taps: dict[str, Tap] = {}
        """of the virtual hosts that are traced"""

    def start(self, vhost: str) -> bool:
        """Trace the virtual host, which must exist; False when it is traced already."""
        if vhost in self.taps:
            return False
        self.taps[vhost] = Tap(vhost, self._node)
        self._tell(vhost, True)
        return True

    def stop(self, vhost: str) -> bool:
        """False when it is not traced. What waits to be copied is given up."""
        tap = self.taps.pop(vhost, None)
        if tap is None:
            return False
        tap.copies.end()
        self._tell(vhost, False)
        return True

    def _tell(self, vhost: str, traced: bool) -> None:
        for connection in self._node.connections.values():
            if connection.vhost == vhost:
                for channel in connection.channels.values():
                    channel.traced = traced
                    channel.watched = traced or self._node.tracer is not None
        # Routes that are remembered lead past us, or to us.
        self._node.topology.forget_routes()

    def applied(self, changes: Iterable[Change]) -> None:
        """The topology has changed so."""
        for change in changes:
            if isinstance(change, Delete) and change.key[0] == "vhost":
                self.stop(change.key[1])

    def published(self, channel: ChannelBase, run: Run, keys: Sequence[str], queues: Sequence[QueuePort]) -> None:
        """A client published it with these routing keys."""
        tap = self.taps.get(channel.connection.vhost)
        exchange = run_names(run)[0]
        if tap is not None and exchange != EXCHANGE:
            about = _about(channel)
            about["routed_queues"] = _as_many_as_fit(queue.record.name for queue in queues)
            about["routing_keys"] = _as_many_as_fit(keys)
            tap.add(FirehoseRun(run, _key(f"publish.{exchange}"), about))

    def delivered(self, channel: ChannelBase, queue: QueuePort, sent: SentRange) -> None:
        """It goes to a client."""
        run, low, high = sent.run, sent.low, sent.high
        tap = self.taps.get(channel.connection.vhost)
        if run.mixed:
            for i in range(low, high) if tap is not None else ():
                self.delivered(channel, queue, sent._replace(run=run.part(i, i + 1), low=0, high=1))
            return
        exchange, key = run_names(run)
        if tap is not None and exchange != EXCHANGE:
            properties: Properties = self._node.properties.read(run.properties)
            about = {"redelivered": SignedInt(sent.redelivered), **_about(channel)}
            about["routing_keys"] = _as_many_as_fit((key, *properties.routing_keys))
            part = run if high - low == run.count else run.part(low, high)
            tap.add(FirehoseRun(part, _key(f"deliver.{queue.record.name}"), about))


def _key(text: str) -> str:
    return text.encode("utf-8", "surrogateescape")[:KEY_BYTES_MAX].decode("utf-8", "surrogateescape")


def _about(channel: ChannelBase) -> dict[str, Any]:
    connection = channel.connection
    return {
        "vhost": connection.vhost,
        "connection": connection.name,
        "channel": SignedInt(channel.id),
        "user": connection.user,
    }


def _as_many_as_fit(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    nbytes = 0
    for name in names:
        nbytes += len(name) + 5
        if nbytes > NAMES_BYTES_MAX:
            break
        found.append(name)
    return found


def _headers(traced: FirehoseRun, node: str) -> bytes:
    """The properties of the copy: nothing but headers."""
    table = {
        "exchange_name": run_names(traced.run)[0],
        "properties": Encoded(b"F" + _described(traced.run.properties)),
        "node": node,
        **traced.about,
    }
    return HEADERS.to_bytes(2, "big") + write_table(table)


def _described(raw: bytes) -> bytes:
    """The properties as a table, as rabbit_trace writes them: texts, tables, and numbers."""
    fields, entries = PropertyList(raw).fields, []
    for flag, name in zip(FLAGS, _NAMES, strict=True):
        field = fields.get(flag)
        if field is None:
            continue
        kind = _KINDS.get(name, _TEXT)
        if flag == HEADERS:
            value = b"F" + field if len(field) <= OWN_HEADERS_BYTES_MAX else b"F" + bytes(4)
        elif kind == _NUMBER:
            number = int.from_bytes(field, "big")
            value = b"I" + number.to_bytes(4, "big") if number < 1 << 31 else b"l" + field[-8:]
        else:
            value = b"S" + (len(field) - 1).to_bytes(4, "big") + field[1:]
        entries.append((name.encode(), value))
    return join_table(entries)
