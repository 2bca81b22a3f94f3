"""Sessions of a client that knows the protocol, made from a seed: what the fuzz tests mutate.

What comes in: a random generator, a name that keeps the session's queues and exchanges apart from those of others,
and what the broker has delivered so far. What goes out: frames, in the order in which the client sends them, and
`made`, a count of everything that was made.
Rules: 1. A polite session is valid: the broker closes neither the connection nor a channel (a test holds the
generator to that, and to making everything). 2. A rude one makes soft errors too, and answers channel.close as it
should; there must be a queue "witness" of somebody else. 3. Equal seeds and equal deliveries give equal bytes.
Not here: mutations (`mutations.py`), feeding and judging (`test_fuzz.py`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pamqp import body, commands, frame, header

from tests.core.harness import PROTOCOL_HEADER

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
EXCHANGE_TYPES = (
    *("direct", "fanout", "topic", "headers", "x-random", "x-modulus-hash", "x-recent-history"),
    *("x-consistent-hash", "x-delayed-message"),
)
EXCHANGE_ARGUMENTS: dict[str, tuple[dict[str, Any], ...]] = {
    "x-consistent-hash": ({}, {"hash-header": "h"}, {"hash-property": "message_id"}),
    "x-delayed-message": tuple({"x-delayed-type": kind} for kind in ("direct", "topic", "headers", "x-random")),
    "x-recent-history": ({}, {"x-recent-history-length": 2}),
}
# What a queue may ask for beside its dead letters. Times are short: the fuzzed node's clock moves by milliseconds.
QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": 0},
    {"x-message-ttl": 20},
    {"x-max-length": 0},
    {"x-max-length": 3},
    {"x-max-length-bytes": 500},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-single-active-consumer": True},
)
CLASSIC_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-max-priority": 5},
    {"x-max-length": 2, "x-overflow": "reject-publish-dlx"},
)
QUORUM_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-delivery-limit": 0},
    {"x-delivery-limit": 2},
    {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
)
# What a hostile client puts into headers that the broker reads; what cannot be so closes the channel.
HOSTILE_HEADERS: tuple[dict[str, Any], ...] = (
    {"x-death": "never"},
    {"x-death": [1, "a", {}, {"queue": 1, "reason": None, "count": "x"}]},
    {"x-death": [{"queue": "q", "reason": "expired", "count": 2**62}], "x-first-death-queue": {}},
    {"x-delay": {"a": 1}},
    {"x-delay": -5},
    {"x-delay": 2**62},
    {"x-delivery-count": "many"},
    {"x-recent-history-no-store": 7},
    {"CC": [{}, 1, None, "a" * 255]},
    {"h": [[[{}]]]},
)
WRONG_PROPERTIES: tuple[dict[str, Any], ...] = (
    *({"headers": headers} for headers in ({"CC": {}}, {"CC": ["a" * 256]}, {"BCC": "a"}, {"CC": None})),
    *({"expiration": text} for text in (" 5", "\u0663", "-1", "9" * 200)),
    {"user_id": "somebody"},
)
REPLY_TO = "amq.rabbitmq.reply-to"
WORDS = ("a", "b", "a.b", "a.b.c", "a..c", "", "*.b", "#.c", "a.#")


@dataclass
class ChannelModel:
    mode: str = ""
    flow: bool = True
    consumers: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """consumer tag -> (queue, no_ack)"""
    gets: list[bool] = field(default_factory=list)
    """no_ack of each basic.get that is not answered yet"""
    outstanding: list[int] = field(default_factory=list)
    settled_in_tx: list[int] = field(default_factory=list)
    global_qos: bool = False
    """no quorum queue can be consumed then"""
    replies: str = ""
    """the tag of its consumer of direct replies"""


class Session:
    def __init__(self, random: Random, name: str, rude: bool = False) -> None:
        self.random = random
        self.name = name
        self.rude = rude
        self.made: Counter[str] = Counter()
        self.frame_max = 131_072
        self.channels: dict[int, ChannelModel] = {}
        self.queues: dict[str, dict[str, bool]] = {}
        self.quorum: set[str] = set()
        self.exchanges: dict[str, str] = {}
        self._frames: list[bytes] = []
        self._number = 0
        self._expected_closes: Counter[int] = Counter()
        self._fresh: dict[str, int] = {}
        """declared in this act, and on which channel: a client does not use it on another before it is answered"""

    # Acts, each a list of frames

    def handshake(self) -> list[bytes]:
        random = self.random
        self._frames = [PROTOCOL_HEADER]
        capabilities = {
            name: True
            for name in ("consumer_cancel_notify", "connection.blocked", "authentication_failure_close", "basic.nack")
            if random.random() < 0.8
        }
        properties: dict[str, Any] = {"product": "fuzz", "version": 1.5, "capabilities": capabilities}
        mechanism = random.choice(("PLAIN", "PLAIN", "AMQPLAIN"))
        response = "\0guest\0guest" if mechanism == "PLAIN" else "\5LOGINS\0\0\0\5guest\x08PASSWORDS\0\0\0\5guest"
        self._send(commands.Connection.StartOk(properties, mechanism, response), 0)
        self.frame_max = random.choice((4096, 8192, 131_072, 131_072))
        channel_max = random.choice((16, 2047))
        self._send(commands.Connection.TuneOk(channel_max, self.frame_max, random.choice((0, 1, 60))), 0)
        self._send(commands.Connection.Open(virtual_host="/"), 0)
        for _ in range(random.randint(1, 3)):
            self._open_channel()
        return self._taken()

    def work(self, count: int) -> list[bytes]:
        """`count` things to do, each of one or more frames. What was done before is answered by now."""
        self._fresh = {}
        for _ in range(count):
            if not self.channels:
                self._open_channel()
            (step,) = self.random.choices(_STEPS, _WEIGHTS)
            step(self, self.random.choice(list(self.channels)))
        return self._taken()

    def goodbye(self) -> list[bytes]:
        self._send(commands.Connection.Close(200, "bye", 0, 0), 0)
        return self._taken()

    # What the broker sent

    def delivered(self, channel: int, consumer_tag: str, tag: int) -> None:
        model = self.channels.get(channel)
        if model is not None and not model.consumers.get(consumer_tag, ("", True))[1]:
            model.outstanding.append(tag)

    def got(self, channel: int, tag: int | None) -> None:
        """The answer to a basic.get: a tag, or None for get-empty."""
        model = self.channels.get(channel)
        if model is not None and model.gets and not model.gets.pop(0) and tag is not None:
            model.outstanding.append(tag)

    def channel_closed(self, channel: int) -> None:
        """The broker closed it with an error."""
        if self._expected_closes[channel]:
            self._expected_closes[channel] -= 1
            return
        if channel in self.channels:
            self._forget_channel(channel)
            self._send(commands.Channel.CloseOk(), channel)

    # Frames

    def _send(self, method: Any, channel: int) -> None:
        self.made[method.name] += 1
        self._frames.append(frame.marshal(method, channel))

    def _taken(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        return frames

    def _new_name(self, kind: str) -> str:
        self._number += 1
        return f"{self.name}.{kind}{self._number}"

    def _chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def _arguments(self) -> dict[str, Any]:
        """Arguments that mean nothing to a queue, of every type that a table can hold."""
        values: tuple[Any, ...] = (
            1,
            -5,
            2**40,
            True,
            None,
            "text",
            2.5,
            bytearray(b"\xff\xfe"),
            ["a", 1],
            {"b": {"c": []}},
        )
        return {f"k{n}": self.random.choice(values) for n in range(self.random.randint(0, 3))}

    def _open_channel(self, _: int = 0) -> None:
        free = [number for number in (1, 2, 3, 5, 16) if number not in self.channels]
        if free:
            number = self.random.choice(free)
            self.channels[number] = ChannelModel()
            self._send(commands.Channel.Open(), number)

    def _close_channel(self, channel: int) -> None:
        self._forget_channel(channel)
        self._send(commands.Channel.Close(200, "done", 0, 0), channel)

    def _forget_channel(self, channel: int) -> None:
        for tag in list(self.channels[channel].consumers):
            self._forget_consumer(channel, tag)
        del self.channels[channel]

    def _forget_consumer(self, channel: int, tag: str) -> None:
        queue, _ = self.channels[channel].consumers.pop(tag, ("", False))
        if self.queues.get(queue, {}).get("auto_delete"):
            self._forget_queue(queue)

    def _forget_queue(self, queue: str) -> None:
        self.queues.pop(queue, None)
        for model in self.channels.values():
            for tag in [tag for tag, (name, _) in model.consumers.items() if name == queue]:
                del model.consumers[tag]

    def _some_queue(self, channel: int) -> str:
        while not (usable := [name for name in self.queues if self._fresh.get(name, channel) == channel]):
            self._declare_queue(channel)
        return self.random.choice(usable[-3:])

    def _some_exchange(self, channel: int) -> str:
        while not (usable := [name for name in self.exchanges if self._fresh.get(name, channel) == channel]):
            self._declare_exchange(channel)
        return self.random.choice(usable[-3:])

    # Topology

    def _declare_queue(self, channel: int) -> None:
        if self._chance(0.1):
            self._send(commands.Queue.Declare(queue="", exclusive=True), channel)
            return
        name = self._new_name("q")
        options = {option: self._chance(0.3) for option in ("durable", "exclusive", "auto_delete")}
        nowait = self._chance(0.2)
        arguments = self._arguments()
        if self._chance(0.6):
            quorum = self._chance(0.3)
            if quorum:
                options = {"durable": True, "exclusive": False, "auto_delete": False}
                arguments["x-queue-type"] = "quorum"
                self.quorum.add(name)
            for some in (QUEUE_ARGUMENTS, QUORUM_ARGUMENTS if quorum else CLASSIC_ARGUMENTS):
                if self._chance():
                    arguments |= self.random.choice(some)
            if self._chance(0.7):
                exchanges = [known for known in self.exchanges if self._fresh.get(known, channel) == channel]
                arguments["x-dead-letter-exchange"] = self.random.choice(("", "amq.fanout", "gone", *exchanges))
                if self._chance():
                    arguments["x-dead-letter-routing-key"] = self.random.choice((*WORDS, *self.queues))
            elif "x-dead-letter-strategy" in arguments:
                arguments["x-dead-letter-exchange"] = ""
        for argument in arguments:
            self.made[f"argument {argument}"] += argument.startswith("x-")
        self._send(commands.Queue.Declare(0, name, nowait=nowait, arguments=arguments, **options), channel)
        self.queues[name], self._fresh[name] = options, channel

    def _declare_queue_again(self, channel: int) -> None:
        self._send(commands.Queue.Declare(queue=self._some_queue(channel), passive=True), channel)

    def _declare_exchange(self, channel: int) -> None:
        name, kind = self._new_name("x"), self.random.choice(EXCHANGE_TYPES)
        arguments: dict[str, Any] = {"alternate-exchange": "amq.fanout"} if self._chance(0.2) else {}
        arguments |= self.random.choice(EXCHANGE_ARGUMENTS.get(kind, ({},)))
        self.made[f"type {kind}"] += 1
        self._send(
            commands.Exchange.Declare(
                exchange=name,
                exchange_type=kind,
                durable=self._chance(),
                nowait=self._chance(0.2),
                arguments=arguments,
            ),
            channel,
        )
        self.exchanges[name], self._fresh[name] = kind, channel

    def _bind(self, channel: int) -> None:
        exchange, queue = self._some_exchange(channel), self._some_queue(channel)
        arguments: dict[str, Any] = {}
        if self.exchanges[exchange] == "headers":
            arguments = {"x-match": self.random.choice(("all", "any")), "h": self.random.choice((1, "a"))}
        key = self.random.choice(WORDS)
        if self.exchanges[exchange] == "x-consistent-hash":
            key = self.random.choice(("1", "20", "9" * 200))
        unbind = self._chance(0.2)
        if unbind:
            self._send(commands.Queue.Unbind(0, queue, exchange, key, arguments), channel)
        else:
            nowait = self._chance(0.2)
            self._send(commands.Queue.Bind(0, queue, exchange, key, nowait, arguments), channel)

    def _bind_exchange(self, channel: int) -> None:
        source, destination = self._some_exchange(channel), self._some_exchange(channel)
        key = "3" if self.exchanges[source] == "x-consistent-hash" else "a"
        if self._chance(0.3):
            self._send(commands.Exchange.Unbind(0, destination, source, key, False, {}), channel)
        else:
            self._send(commands.Exchange.Bind(0, destination, source, key, False, {}), channel)

    def _delete_exchange(self, channel: int) -> None:
        exchange = self._some_exchange(channel)
        del self.exchanges[exchange]
        self._send(commands.Exchange.Delete(exchange=exchange), channel)

    def _delete_queue(self, channel: int) -> None:
        queue = self._some_queue(channel)
        self._forget_queue(queue)
        self._send(commands.Queue.Delete(queue=queue), channel)

    def _purge(self, channel: int) -> None:
        self._send(commands.Queue.Purge(queue=self._some_queue(channel)), channel)

    # Publishing

    def _publish(self, channel: int) -> None:
        self._frames += self._content(channel)

    def _publish_many(self, channel: int) -> None:
        """The same again and again: what the kernel makes a run of."""
        self.made["run"] += 1
        self._frames += self._content(channel) * self.random.choice((2, 5, 40))

    def _publish_interleaved(self, channel: int) -> None:
        """Two channels' frames in turn (section 4.2.6 allows it)."""
        other = self.random.choice(list(self.channels))
        if other == channel:
            return
        self.made["interleaved"] += 1
        one, two = self._content(channel), self._content(other)
        while one or two:
            frames = self.random.choice([frames for frames in (one, two) if frames])
            self._frames.append(frames.pop(0))

    def _content(self, channel: int) -> list[bytes]:
        random = self.random
        if self.exchanges and self._chance(0.4):
            exchange, key = self._some_exchange(channel), random.choice(WORDS)
        else:
            exchange, key = "", self._some_queue(channel) if self._chance(0.9) else "nobody"
        mandatory = self._chance(0.2)
        data = random.randbytes(random.choice((0, 0, 1, 16, 100, 100, 1000, 5000)))
        properties = self._properties(channel)
        self.made["Basic.Publish"] += 1
        self.made["empty body" if not data else "body"] += 1
        for name in properties:
            self.made[f"property {name}"] += 1
        self.made["mandatory"] += mandatory
        frames = [
            frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory), channel),
            frame.marshal(header.ContentHeader(0, len(data), commands.Basic.Properties(**properties)), channel),
        ]
        size = self.frame_max - 8
        if 1 < len(data) <= 100 and self._chance(0.2):
            size = random.randint(1, len(data))
        pieces = [frame.marshal(body.ContentBody(data[at : at + size]), channel) for at in range(0, len(data), size)]
        if len(pieces) > 1:
            self.made["several body frames"] += 1
        if pieces and self._chance(0.05):
            self.made["empty body frame"] += 1
            pieces.insert(random.randrange(len(pieces)), frame.marshal(body.ContentBody(b""), channel))
        return frames + pieces

    def _properties(self, channel: int) -> dict[str, Any]:
        copies = {"CC": ["a.b", *list(self.queues)[:2]], "BCC": [*list(self.queues)[-1:], "nobody"]}
        choices: dict[str, tuple[Any, ...]] = {
            "delivery_mode": (1, 2, 2),
            "headers": (
                {"h": 1},
                {"h": "a", "n": {"m": [1, None]}},
                {},
                copies,
                {"x-delay": 5, **copies},
                *HOSTILE_HEADERS,
            ),
            "expiration": ("1000", "0", "15", "+20"),
            "user_id": ("guest",),
            "priority": (0, 9),
            "content_type": ("text/plain",),
            "correlation_id": ("1", "2" * 40),
            "reply_to": (REPLY_TO,) if self.channels[channel].replies else ("there",),
            "message_id": ("m",),
        }
        probability = self.random.choice((0.0, 0.2, 0.6))
        return {name: self.random.choice(values) for name, values in choices.items() if self._chance(probability)}

    # Consuming

    def _consume(self, channel: int) -> None:
        queue, tag, no_ack = self._some_queue(channel), self._new_name("t"), self._chance()
        if queue in self.quorum and self.channels[channel].global_qos:
            return
        self._send(
            commands.Basic.Consume(
                0, queue, tag, no_ack=no_ack, nowait=self._chance(0.2), arguments=self._arguments()
            ),
            channel,
        )
        self.channels[channel].consumers[tag] = (queue, no_ack)

    def _consume_replies(self, channel: int) -> None:
        model = self.channels[channel]
        if model.replies:
            self._send(commands.Basic.Cancel(model.replies), channel)
            model.replies = ""
        else:
            model.replies = self._new_name("r")
            self._send(commands.Basic.Consume(0, REPLY_TO, model.replies, no_ack=True), channel)

    def _cancel(self, channel: int) -> None:
        consumers = self.channels[channel].consumers
        tag = self.random.choice(list(consumers)) if consumers else "never"
        if consumers:
            self._forget_consumer(channel, tag)
        self._send(commands.Basic.Cancel(tag, self._chance(0.2)), channel)

    def _get(self, channel: int) -> None:
        queue, no_ack = self._some_queue(channel), self._chance()
        self._send(commands.Basic.Get(queue=queue, no_ack=no_ack), channel)
        self.channels[channel].gets.append(no_ack)

    def _qos(self, channel: int) -> None:
        whole = self._chance(0.3)
        self.channels[channel].global_qos |= whole
        self._send(commands.Basic.Qos(0, self.random.choice((0, 1, 2, 100)), whole), channel)

    def _settle(self, channel: int) -> None:
        """Acknowledge, reject or return something that was delivered."""
        model = self.channels[channel]
        if not model.outstanding:
            return
        at = self.random.randrange(len(model.outstanding))
        tag, multiple, requeue = model.outstanding[at], self._chance(0.4), self._chance()
        settled = model.outstanding[: at + 1] if multiple else [tag]
        model.outstanding = [tag for tag in model.outstanding if tag not in settled]
        if model.mode == "tx":
            model.settled_in_tx += settled
        method: Any = commands.Basic.Ack(tag, multiple)
        if self._chance(0.3):
            method = commands.Basic.Nack(tag, multiple, requeue)
        elif not multiple and self._chance(0.3):
            method = commands.Basic.Reject(tag, requeue)
        self._send(method, channel)

    def _settle_all(self, channel: int) -> None:
        model = self.channels[channel]
        if model.mode == "tx":
            model.settled_in_tx += model.outstanding
        model.outstanding = []
        self._send(self.random.choice((commands.Basic.Ack(0, True), commands.Basic.Nack(0, True, True))), channel)
        # What was delivered and not seen yet is settled too: nothing of it may be settled again.
        self._round_trip(channel)

    def _recover(self, channel: int) -> None:
        self.channels[channel].outstanding = []
        if self._chance():
            self._send(commands.Basic.Recover(True), channel)
        else:
            # By hand: pamqp warns that it is deprecated.
            self.made["Basic.RecoverAsync"] += 1
            self._frames.append(b"\x01" + struct.pack(">HI", channel, 5) + b"\x00\x3c\x00\x64\x01\xce")
        self._round_trip(channel)

    def _round_trip(self, channel: int) -> None:
        """The easy way to know what is delivered: close the channel, which ends all tags."""
        self._close_channel(channel)

    # Modes, flow, connection

    def _select(self, channel: int) -> None:
        model = self.channels[channel]
        if not model.mode:
            model.mode = self.random.choice(("confirm", "confirm", "tx"))
        method: Any = commands.Confirm.Select(self._chance(0.2)) if model.mode == "confirm" else commands.Tx.Select()
        self._send(method, channel)

    def _end_transaction(self, channel: int) -> None:
        model = self.channels[channel]
        if model.mode != "tx":
            return
        if self._chance(0.7):
            self._send(commands.Tx.Commit(), channel)
        else:
            model.outstanding = sorted(model.outstanding + model.settled_in_tx)
            self._send(commands.Tx.Rollback(), channel)
        model.settled_in_tx = []

    def _flow(self, channel: int) -> None:
        model = self.channels[channel]
        model.flow = not model.flow
        self._send(commands.Channel.Flow(model.flow), channel)

    def _heartbeat(self, _: int) -> None:
        self.made["heartbeat"] += 1
        self._frames.append(HEARTBEAT)

    def _update_secret(self, _: int) -> None:
        self._send(commands.Connection.UpdateSecret("guest", "because"), 0)

    # Soft errors

    def _soft_error(self, channel: int) -> None:
        if not self.rude:
            return
        missing = self.name + ".missing"
        wrong: Any = self.random.choice(
            (
                commands.Queue.Declare(queue=missing, passive=True),
                commands.Queue.Bind(0, missing, "amq.direct", "k", False, {}),
                commands.Basic.Consume(queue=missing),
                commands.Basic.Get(queue=missing),
                commands.Basic.Consume(queue="witness"),
                commands.Queue.Purge(queue="witness"),
                commands.Basic.Ack(10**9),
                commands.Basic.Nack(10**9, True),
                commands.Exchange.Declare(exchange="amq.made.up"),
                commands.Exchange.Declare(exchange="amq.direct", exchange_type="fanout"),
                commands.Exchange.Delete(exchange=""),
                commands.Tx.Commit(),
            )
        )
        self.made["soft error"] += 1
        if self._chance(0.3):
            properties = commands.Basic.Properties(**self.random.choice(WRONG_PROPERTIES))
            self._send(commands.Basic.Publish(0, "", "nobody"), channel)
            self._frames.append(frame.marshal(header.ContentHeader(0, 0, properties), channel))
        else:
            self._send(wrong, channel)
        if self._chance(0.5):
            self._frames += self._content(channel)
        self._forget_channel(channel)
        self._expected_closes[channel] += 1
        self._send(commands.Channel.CloseOk(), channel)


Step = Callable[[Session, int], None]
_TABLE: tuple[tuple[Step, int], ...] = (
    (Session._publish, 30),
    (Session._publish_many, 8),
    (Session._publish_interleaved, 8),
    (Session._consume, 8),
    (Session._consume_replies, 2),
    (Session._get, 12),
    (Session._settle, 20),
    (Session._settle_all, 2),
    (Session._recover, 2),
    (Session._cancel, 3),
    (Session._qos, 4),
    (Session._declare_queue, 6),
    (Session._declare_queue_again, 3),
    (Session._declare_exchange, 5),
    (Session._bind, 8),
    (Session._bind_exchange, 3),
    (Session._delete_exchange, 1),
    (Session._delete_queue, 2),
    (Session._purge, 2),
    (Session._select, 6),
    (Session._end_transaction, 6),
    (Session._flow, 2),
    (Session._heartbeat, 2),
    (Session._update_secret, 1),
    (Session._open_channel, 4),
    (Session._close_channel, 2),
    (Session._soft_error, 6),
)
_STEPS = [step for step, _ in _TABLE]
_WEIGHTS = [weight for _, weight in _TABLE]
