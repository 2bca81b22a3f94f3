"""Random shapes of load, drawn from a seed: whatever one client may do, in sizes that it may choose.

What comes in: a seed. What goes out: a list of acts that names what was drawn, and that can be carried out on a rig.
Rules: 1. Equal seeds give equal bytes. 2. A shape is large where a client can make it large at little cost: it
is meant to hold the broker up. 3. What the broker refuses is part of it: the client connects again.
Not here: how long it held the broker up (`search.py`), the known shapes (`shapes.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from pamqp import base, commands

from tests.stalls.rig import Attacker, Rig
from tests.stalls.wire import method, methods, publish

Basic, Exchange, Queue, Tx, Confirm, Channel = (
    commands.Basic,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
    commands.Confirm,
    commands.Channel,
)
TYPES: tuple[str, ...] = ("direct", "fanout", "topic", "headers")
TYPES += ("x-consistent-hash", "x-modulus-hash", "x-random", "x-recent-history")
# What one client sends is bounded by its own patience: these bytes take it seconds on loopback.
PHASE_BYTES_MAX = 2_000_000
MANY = (1, 3, 20, 100, 400, 1_500, 5_000)
CHANNELS = (1, 1, 2, 5, 30, 300)
# What is gathered is not bounded so: an hour brings any amount.
ACCUMULATED_CHUNK = 20_000


class Drawn:
    """One shape. `acts` says what it does, for people."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self.acts: list[str] = []
        self.counted: Counter[str] = Counter()
        self._queues: list[str] = []
        self._exchanges: list[tuple[str, str]] = [("amq.fanout", "fanout"), ("amq.topic", "topic")]
        self._tags = 0
        self._channels = 1
        self._prefix = f"s{seed}-"

    def run(self, rig: Rig) -> None:
        draw = self._random
        self._rig = rig
        self._attackers = [rig.attacker() for _ in range(draw.choice((1, 1, 1, 2, 4)))]
        self._open_channels()
        preparations = (self._make_exchanges, self._make_queues, self._bind, self._bind_exchanges, self._fill)
        for step in preparations[: draw.randint(3, 5)]:
            step()
        steps: tuple[Callable[[], None], ...] = (
            self._publish_small,
            self._publish_small,
            self._publish_headers,
            self._publish_copies,
            self._publish_delayed,
            self._transaction,
            self._consume,
            self._get,
            self._settle,
            self._requests,
            self._channels_again,
            self._cancel_all,
            self._purge_or_delete,
            self._unbind,
            self._bind,
            self._make_queues,
            self._fill,
            self._wait,
            self._break_off,
            self._fail_channels,
            self._accumulate,
            self._settle_every_other,
        )
        for step in draw.choices(steps, k=draw.randint(3, 9)):
            step()
        if draw.random() < 0.5:
            self._break_off()

    # Sending

    def _say(self, kind: str, what: str) -> None:
        self.counted[kind] += 1
        self.acts.append(what)

    def _one(self) -> Attacker:
        return self._random.choice(self._attackers)

    def _send(self, data: bytes, attacker: Attacker | None = None) -> None:
        attacker = attacker or self._one()
        if not attacker.run(data):
            self._recover(attacker)

    def _recover(self, attacker: Attacker) -> None:
        """The broker closed a channel or the connection: go on with a new connection."""
        attacker.close()
        self._attackers[self._attackers.index(attacker)] = self._rig.attacker()
        self.counted["closed by the broker"] += 1
        self._channels = 1

    def _times(self, make: Callable[[int], bytes], most: int = MANY[-1]) -> tuple[int, bytes]:
        """This many different ones, as far as they fit."""
        wanted = min(self._random.choice(MANY), most)
        pieces: list[bytes] = []
        size = 0
        for number in range(wanted):
            pieces.append(make(number))
            size += len(pieces[-1])
            if size > PHASE_BYTES_MAX:
                break
        return len(pieces), b"".join(pieces)

    def _channel(self) -> int:
        return self._random.randint(1, self._channels)

    # What there is

    def _open_channels(self) -> None:
        self._channels = self._random.choice(CHANNELS)
        data = methods_on(range(2, self._channels + 1), Channel.Open())
        for attacker in self._attackers:
            attacker.run(data)
        self._say("channels", f"{self._channels} channels on each of {len(self._attackers)} connections")

    def _make_exchanges(self) -> None:
        draw = self._random
        kind = draw.choice(TYPES)
        count = min(draw.choice(MANY), 1_500)
        arguments: dict[str, Any] = {}
        if draw.random() < 0.3:
            arguments["alternate-exchange"] = draw.choice(self._exchanges)[0]
        if kind == "x-consistent-hash" and draw.random() < 0.5:
            arguments["hash-header"] = "h"
        if kind == "x-recent-history":
            arguments["x-recent-history-length"] = draw.choice((1, 20, 1_000))
        delayed = draw.random() < 0.1
        if delayed:
            arguments["x-delayed-type"] = kind
        names = [f"{self._prefix}x{len(self._exchanges)}-{number}" for number in range(count)]
        declared = "x-delayed-message" if delayed else kind
        self._send(
            methods(
                Exchange.Declare(
                    exchange=name, exchange_type=declared, nowait=True, auto_delete=True, arguments=arguments
                )
                for name in names
            )
        )
        self._exchanges += [(name, kind) for name in names]
        self._say("exchanges", f"{count} exchanges of type {kind} {arguments}")

    def _make_queues(self) -> None:
        draw = self._random
        arguments = self._queue_arguments()
        exclusive = draw.random() < 0.5 and len(self._attackers) == 1 and arguments.get("x-queue-type") != "quorum"
        durable = arguments.get("x-queue-type") == "quorum" or draw.random() < 0.3
        start = len(self._queues)

        def declare(number: int) -> bytes:
            name = f"{self._prefix}q{start + number}"
            self._queues.append(name)
            return method(
                Queue.Declare(queue=name, nowait=True, exclusive=exclusive, durable=durable, arguments=arguments)
            )

        count, data = self._times(declare)
        self._send(data)
        what = f"{count} queues {arguments}{' exclusive' * exclusive}{' durable' * durable}"
        self._say("queues", what)

    def _queue_arguments(self) -> dict[str, Any]:
        draw = self._random
        arguments: dict[str, Any] = {}
        if draw.random() < 0.4:
            arguments["x-message-ttl"] = draw.choice((0, 1, 100, 1_000))
        if draw.random() < 0.4:
            arguments["x-dead-letter-exchange"] = draw.choice(["", *(name for name, _ in self._exchanges[-50:])])
            if draw.random() < 0.5:
                arguments["x-dead-letter-routing-key"] = draw.choice(self._queues or ["k"])
        if draw.random() < 0.3:
            arguments["x-max-length"] = draw.choice((0, 1, 50, 5_000))
            arguments["x-overflow"] = draw.choice(("drop-head", "reject-publish", "reject-publish-dlx"))
        if draw.random() < 0.2:
            arguments["x-max-length-bytes"] = draw.choice((0, 1_000, 100_000))
        other = draw.random()
        if other < 0.15:
            arguments["x-max-priority"] = draw.choice((1, 10, 255))
        elif other < 0.25:
            arguments["x-single-active-consumer"] = True
        elif other < 0.35:
            arguments = {
                name: value
                for name, value in arguments.items()
                if name not in ("x-overflow", "x-max-length-bytes") and (name, value) != ("x-max-length", 0)
            }
            arguments |= {"x-queue-type": "quorum", "x-delivery-limit": draw.choice((0, 3, 100))}
        if draw.random() < 0.1:
            arguments["x-expires"] = draw.choice((100, 2_000))
        return arguments

    def _key(self, kind: str, number: int) -> str:
        draw = self._random
        if kind == "topic":
            words = [draw.choice(("#", "*", "a", "b", f"w{number}")) for _ in range(draw.choice((1, 3, 20, 60)))]
            return ".".join(words)[:255]
        if kind == "x-consistent-hash":
            return str(draw.randint(1, 1_000))
        return draw.choice(("k", f"k{number}"))

    def _binding_arguments(self, kind: str, number: int) -> dict[str, Any]:
        draw = self._random
        if kind != "headers" and draw.random() < 0.9:
            return {}
        arguments: dict[str, Any] = {f"h{n}": draw.choice((1, number, "v")) for n in range(draw.choice((1, 2, 10)))}
        arguments["x-match"] = draw.choice(("all", "any", "all-with-x", "any-with-x"))
        return arguments

    def _bind(self) -> None:
        draw = self._random
        if not self._queues:
            return
        few = draw.sample(self._exchanges, min(len(self._exchanges), draw.choice((1, 2, 10))))
        one = draw.random() < 0.3

        def bind(number: int) -> bytes:
            exchange, kind = few[number % len(few)]
            return method(
                Queue.Bind(
                    queue=self._queues[0 if one else number % len(self._queues)],
                    exchange=exchange,
                    routing_key=self._key(kind, number),
                    arguments=self._binding_arguments(kind, number),
                    nowait=True,
                )
            )

        count, data = self._times(bind)
        self._send(data)
        self._say("bindings", f"{count} bindings from {[kind for _, kind in few][:4]}, one queue: {one}")

    def _bind_exchanges(self) -> None:
        draw = self._random
        own = self._exchanges[2:] or self._exchanges
        chained = draw.random() < 0.5

        def bind(number: int) -> bytes:
            source, kind = own[number % len(own)] if chained else draw.choice(own)
            destination = own[(number + 1) % len(own)][0] if chained else draw.choice(own)[0]
            key = self._key(kind, number)
            return method(Exchange.Bind(destination=destination, source=source, routing_key=key, nowait=True))

        count, data = self._times(bind)
        self._send(data)
        self._say("exchange bindings", f"{count} bindings of exchanges, chained: {chained}")

    def _unbind(self) -> None:
        exchange, kind = self._random.choice(self._exchanges)
        if not self._queues:
            return

        def unbind(number: int) -> bytes:
            queue = self._queues[number % len(self._queues)]
            return method(Queue.Unbind(queue=queue, exchange=exchange, routing_key=self._key(kind, number)))

        count, data = self._times(unbind, 1_500)
        self._send(data)
        self._say("unbind", f"{count} unbindings from {kind}")

    # Publishing

    def _address(self) -> tuple[str, str]:
        draw = self._random
        if self._queues and draw.random() < 0.3:
            return "", "direct"
        return draw.choice(self._exchanges[-20:])

    def _routing_key(self, exchange: str, kind: str, number: int) -> str:
        draw = self._random
        if not exchange and self._queues:
            return self._queues[number % len(self._queues)]
        if kind == "topic":
            return ".".join(draw.choice(("a", "b", f"w{number}")) for _ in range(draw.choice((1, 5, 60))))[:255]
        return draw.choice(("k", f"k{number}"))

    def _properties(self) -> dict[str, Any]:
        draw = self._random
        properties: dict[str, Any] = {}
        if draw.random() < 0.3:
            properties["delivery_mode"] = 2
        if draw.random() < 0.2:
            properties["expiration"] = str(draw.choice((0, 1, 500, 3_000)))
        if draw.random() < 0.2:
            properties["priority"] = draw.randint(0, 255)
        return properties

    def _publish_many(self, headers: Callable[[int], dict[str, Any]] | None, kind: str) -> None:
        draw = self._random
        exchange, of = self._address()
        alike = draw.random() < 0.3
        body = bytes(draw.choice((0, 0, 10, 1_000, 50_000)))
        base_properties = self._properties()
        mandatory = draw.random() < 0.1
        channel = self._channel()

        def make(number: int) -> bytes:
            number = 0 if alike else number
            properties = dict(base_properties)
            if headers is not None:
                properties["headers"] = headers(number)
            key = self._routing_key(exchange, of, number)
            return publish(exchange, key, body, channel, mandatory, **properties)

        if alike:
            first = make(0)
            count = min(draw.choice(MANY), PHASE_BYTES_MAX // len(first) + 1)
            data = first * count
        else:
            count, data = self._times(make)
        self._send(data)
        what = f"{count} publishes ({kind}) to {of}, alike: {alike}, {len(body)} bytes, {base_properties}"
        self._say(f"publishes: {kind}", what)

    def _publish_small(self) -> None:
        self._publish_many(None, "small")

    def _publish_headers(self) -> None:
        draw = self._random
        size = draw.choice((1, 5, 100, 2_000))
        nested = draw.choice((0, 0, 3, 100))

        def headers(number: int) -> dict[str, Any]:
            value: Any = draw.choice((1, number, "v"))
            for _ in range(nested):
                value = {"n": value}
            return {f"h{n}": value for n in range(size)} | {"h": number}

        self._publish_many(headers, "headers")

    def _publish_copies(self) -> None:
        draw = self._random
        size = draw.choice((1, 50, 1_000, 15_000))
        keys = [draw.choice(self._queues) if self._queues and draw.random() < 0.5 else f"k{n}" for n in range(size)]
        name = draw.choice(("CC", "BCC"))
        self._publish_many(lambda _: {name: keys}, "copies")

    def _publish_delayed(self) -> None:
        delay_ms = self._random.choice((1, 50, 500))
        self._publish_many(lambda _: {"x-delay": delay_ms}, "delayed")

    def _fill(self) -> None:
        if self._queues:
            self._publish_many(None, "fill")

    def _accumulate(self) -> None:
        """Far more than one phase brings, each message unlike its neighbours: a place of its own for each."""
        draw = self._random
        if not self._queues:
            return
        queue, times = draw.choice(self._queues), draw.choice((2, 5, 12))
        how = draw.sample(("modes", "expirations", "sizes", "priorities"), draw.randint(1, 3))
        span_ms, soon_ms = draw.choice((1, 2, 3_000)), draw.choice((300, 3_000, 100_000))

        def make(number: int) -> bytes:
            properties: dict[str, Any] = {}
            if "modes" in how:
                properties["delivery_mode"] = 1 + number % 2
            if "expirations" in how:
                properties["expiration"] = str(soon_ms + number * 7 % span_ms)
            if "priorities" in how:
                properties["priority"] = number % 256
            return publish("", queue, bytes(number % 7 if "sizes" in how else 0), **properties)

        chunk = b"".join(map(make, range(ACCUMULATED_CHUNK)))
        attacker = self._one()
        for _ in range(times):
            attacker.send(chunk)
        self._send(b"", attacker)
        self._say("accumulated", f"{times * ACCUMULATED_CHUNK} publishes to one queue that differ in {how}")

    def _settle_every_other(self) -> None:
        """Of what one channel was delivered, as far as that is; then all the rest at once."""
        draw = self._random
        attacker = self._one()
        for first in range(1, 100_000, 20_000):
            attacker.send(b"".join(method(Basic.Ack(tag)) for tag in range(first, first + 20_000, 2)))
        rest: base.Frame = draw.choice((Basic.Ack(0, True), Basic.Nack(0, True, True), Basic.Nack(0, True, False)))
        self._send(method(rest), attacker)
        self._say("settled every other", f"every other of 100,000 tags acknowledged, then {rest.name}")

    def _transaction(self) -> None:
        draw = self._random
        attacker, exchange_of = self._one(), self._address()
        channel = self._channels + 1
        data = method(Channel.Open(), channel) + method(Tx.Select(), channel)

        def make(number: int) -> bytes:
            return publish(exchange_of[0], self._routing_key(*exchange_of, number), b"", channel)

        count, publishes = self._times(make)
        end: base.Frame = draw.choice((Tx.Commit(), Tx.Commit(), Tx.Rollback()))
        self._send(data + publishes + method(end, channel) + method(Channel.Close(200, "", 0, 0), channel), attacker)
        self._say("transactions", f"transaction of {count} publishes to {exchange_of[1]}, {end.name}")

    # Consuming

    def _consume(self) -> None:
        draw = self._random
        if not self._queues:
            return
        no_ack, prefetch = draw.random() < 0.4, draw.choice((0, 0, 1, 100))
        priorities = draw.random() < 0.3
        one = draw.random() < 0.4

        def consume(number: int) -> bytes:
            self._tags += 1
            arguments = {"x-priority": draw.randint(-5_000, 5_000)} if priorities else {}
            return method(
                Basic.Consume(
                    queue=self._queues[0 if one else number % len(self._queues)],
                    consumer_tag=f"t{self._tags}",
                    no_ack=no_ack,
                    nowait=True,
                    arguments=arguments,
                ),
                1 + number % self._channels,
            )

        count, data = self._times(consume)
        self._send(methods_on(range(1, self._channels + 1), Basic.Qos(prefetch_count=prefetch)) + data)
        self._say(
            "consumers", f"{count} consumers, no_ack {no_ack}, prefetch {prefetch}, one queue {one}, {priorities=}"
        )

    def _get(self) -> None:
        if not self._queues:
            return
        queue, no_ack = self._random.choice(self._queues), self._random.random() < 0.5
        count, data = self._times(lambda _: method(Basic.Get(queue=queue, no_ack=no_ack), self._channel()))
        self._send(data)
        self._say("gets", f"{count} basic.get")

    def _settle(self) -> None:
        draw = self._random
        how: base.Frame = draw.choice(
            (
                Basic.Ack(0, True),
                Basic.Nack(0, True, True),
                Basic.Nack(0, True, False),
                Basic.Recover(True),
            )
        )
        repeated = draw.choice((1, 5, 300))
        self._send(methods_on(range(1, self._channels + 1), how) * repeated)
        self._say("settled", f"{repeated} times {how.name} on {self._channels} channels")

    def _requests(self) -> None:
        draw = self._random
        makers: tuple[Callable[[int], base.Frame], ...] = (
            lambda n: Basic.Qos(prefetch_count=n % 50),
            lambda n: Basic.Qos(prefetch_count=n % 50, global_=True),
            lambda _: Channel.Flow(active=True),
            lambda n: Queue.Declare(queue=(self._queues or ["none"])[n % max(1, len(self._queues))], passive=True),
            lambda _: Confirm.Select(),
            lambda n: Exchange.Declare(exchange=self._exchanges[n % len(self._exchanges)][0], passive=True),
            lambda n: Queue.Declare(queue=f"{self._prefix}r{n}", auto_delete=True, exclusive=True),
        )
        make = draw.choice(makers)
        count, data = self._times(lambda n: method(make(n), self._channel()))
        self._send(data)
        self._say("requests", f"{count} {make(0).name}")

    def _channels_again(self) -> None:
        draw = self._random
        rounds = draw.choice((1, 10, 50))
        numbers = range(2, self._channels + 1)
        data = methods_on(numbers, Channel.Close(200, "", 0, 0)) + methods_on(numbers, Channel.Open())
        self._send(data * rounds)
        self._say("channels again", f"{len(numbers)} channels closed and opened {rounds} times")

    def _cancel_all(self) -> None:
        count, data = self._times(
            lambda n: method(Basic.Cancel(f"t{n + 1}", nowait=True), 1 + n % self._channels), max(1, self._tags)
        )
        self._send(data)
        self._say("cancels", f"{count} cancels")

    def _purge_or_delete(self) -> None:
        draw = self._random
        if not self._queues:
            return
        some = draw.sample(self._queues, min(len(self._queues), draw.choice(MANY)))
        if draw.random() < 0.5:
            self._send(methods(Queue.Purge(queue=name, nowait=True) for name in some))
            self._say("purges", f"{len(some)} purges")
        else:
            self._send(methods(Queue.Delete(queue=name, nowait=True) for name in some))
            gone = set(some)
            self._queues = [name for name in self._queues if name not in gone]
            self._say("deletes", f"{len(some)} deletes")

    def _fail_channels(self) -> None:
        count = self._random.choice((1, 30, 300))
        attacker = self._one()
        numbers = range(1_000, 1_000 + count)
        attacker.send(methods_on(numbers, Channel.Open()))
        attacker.send(b"".join(publish("no such exchange", "", b"", number) for number in numbers))
        self._say("failed channels", f"{count} channels that fail")

    def _wait(self) -> None:
        seconds = self._random.choice((0.05, 0.6, 1.5))
        self._one().read_for(seconds)
        self._say("waits", f"waits {seconds} s")

    def _break_off(self) -> None:
        attacker = self._one()
        self._attackers[self._attackers.index(attacker)] = self._rig.attacker()
        attacker.close()
        self._channels = 1
        self._say("breaks off", "a connection breaks off")


def methods_on(channels: range, value: base.Frame) -> bytes:
    return b"".join(method(value, number) for number in channels)
