"""Shapes of load that once held a broker up: what is prepared, and what is sent then.

What comes in: a rig. What goes out: SHAPES by name, and which of them are QUICK.
Rules: 1. A shape is a function that makes attackers and lets them act; its preparations count too, they are input as
well. 2. Each stands for a cause, not for a case: the sizes are those at which the fault took seconds.
Not here: what is measured (`rig.py`), random shapes (`drawn.py`), long backlogs (`backlog_shapes.py`), consumers
(`consumer_shapes.py`), definitions (`definition_shapes.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count, pairwise

from pamqp import commands

from tests.stalls.backlog_shapes import BACKLOG_SHAPES
from tests.stalls.consumer_shapes import CONSUMER_SHAPES
from tests.stalls.definition_shapes import DEFINITION_SHAPES, environment
from tests.stalls.rig import Attacker, Rig
from tests.stalls.wire import method, methods, publish

Shape = Callable[[Rig], None]
Basic, Exchange, Queue, Tx = commands.Basic, commands.Exchange, commands.Queue, commands.Tx


def declares(names: list[str], **arguments: object) -> bytes:
    return methods(Queue.Declare(queue=name, nowait=True, exclusive=True, arguments=arguments) for name in names)


def fanout(attacker: Attacker, exchange: str, queues: int) -> list[str]:
    """A fanout of this many queues."""
    names = [f"{exchange}-{number}" for number in range(queues)]
    data = method(Exchange.Declare(exchange=exchange, exchange_type="fanout", nowait=True)) + declares(names)
    attacker.run(data)
    attacker.run(methods(Queue.Bind(queue=name, exchange=exchange, nowait=True) for name in names))
    return names


def cc_keys_through_dead_letter_queues(rig: Rig) -> None:
    attacker, stages = rig.attacker(), 100
    for stage in range(stages + 1):
        data = method(Exchange.Declare(exchange=f"dlx-{stage}", exchange_type="fanout", nowait=True))
        arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": f"dlx-{stage + 1}"} if stage < stages else {}
        data += declares([f"dead-{stage}"], **arguments)
        attacker.run(data + method(Queue.Bind(queue=f"dead-{stage}", exchange=f"dlx-{stage}", nowait=True)))
    attacker.run(publish("dlx-0", "", headers={"CC": ["k"] * 20_000}))
    attacker.read_for(0.5)


def headers_bindings_that_are_all_looked_at(rig: Rig) -> None:
    attacker = rig.attacker()
    attacker.run(declares(["h"]))
    pairs = {"a": 1, "z": 2}
    attacker.run(
        methods(
            Queue.Bind(queue="h", exchange="amq.headers", routing_key=str(n), arguments=pairs, nowait=True)
            for n in range(1_000)
        )
    )
    attacker.run(publish("amq.headers", "", headers={"a": 1}) * 1_800)
    attacker.run(b"".join(publish("amq.headers", str(n), headers={"a": 1}) for n in range(1_800)))


def a_large_header_beside_many_bindings(rig: Rig) -> None:
    attacker = rig.attacker()
    attacker.run(declares(["h"]))
    value = {"t": [{"u": n} for n in range(100)]}
    wanted = {"a": value, "z": 1}
    attacker.run(
        methods(
            Queue.Bind(queue="h", exchange="amq.headers", routing_key=str(n), arguments=wanted, nowait=True)
            for n in range(500)
        )
    )
    attacker.run(b"".join(publish("amq.headers", str(n), headers={"a": value, "z": 2}) for n in range(100)))


def a_transaction_of_many_copies(rig: Rig) -> None:
    attacker = rig.attacker()
    fanout(attacker, "tx", 1_000)
    attacker.run(method(Tx.Select()))
    attacker.run(b"".join(publish("tx", str(n)) for n in range(7_000)) + method(Tx.Commit()))


def commits_that_overlap(rig: Rig) -> None:
    """On many channels of two connections that go away in the middle of them."""
    attackers = [rig.attacker(), rig.attacker()]
    for number, attacker in enumerate(attackers):
        fanout(attacker, f"held-{number}", 100)
        for channel in range(1, 20):
            if channel > 1:
                attacker.run(method(commands.Channel.Open(), channel))
            sent = b"".join(publish(f"held-{number}", str(n), channel=channel) for n in range(200))
            attacker.run(method(Tx.Select(), channel) + sent)
    for attacker in attackers:
        attacker.send(b"".join(method(Tx.Commit(), channel) for channel in range(1, 20)))
    attackers[0].read_for(0.1)
    for attacker in attackers:
        attacker.close()


def delayed_messages_due_together(rig: Rig) -> None:
    attacker = rig.attacker()
    fanout(attacker, "late", 1_000)
    attacker.run(b"".join(publish("late", str(n), headers={"x-delay": 1_500}) for n in range(2_000)))
    attacker.read_for(3.0)


def topic_patterns_with_many_wildcards(rig: Rig) -> None:
    attacker = rig.attacker()
    attacker.run(declares(["t"]))
    draw = random.Random(14)
    patterns = ["#." + ".#.".join(draw.choice("ab") for _ in range(60)) + ".#" for _ in range(1_024)]
    attacker.run(
        methods(
            Queue.Bind(queue="t", exchange="amq.topic", routing_key=pattern[:255], nowait=True)
            for pattern in patterns
        )
    )
    keys = [".".join(draw.choice("ab") for _ in range(120)) + f".{n}" for n in range(20)]
    attacker.run(b"".join(publish("amq.topic", key) for key in keys))


def chained_exchanges(rig: Rig) -> None:
    attacker, links = rig.attacker(), 1_000
    names = [f"chain-{number}" for number in range(links)]
    attacker.run(methods(Exchange.Declare(exchange=name, exchange_type="fanout", nowait=True) for name in names))
    attacker.run(
        methods(Exchange.Bind(destination=after, source=before, nowait=True) for before, after in pairwise(names))
    )
    attacker.run(b"".join(publish("chain-0", str(n)) for n in range(2_000)))


def headers_of_many_small_publishes(rig: Rig) -> None:
    """Each looks at a hundred exchanges, which is little: all of them came in one read."""
    attacker, links = rig.attacker(), 100
    names = [f"headers-{number}" for number in range(links)]
    attacker.run(methods(Exchange.Declare(exchange=name, exchange_type="headers", nowait=True) for name in names))
    attacker.run(
        methods(Exchange.Bind(destination=after, source=before, nowait=True) for before, after in pairwise(names))
    )
    attacker.run(b"".join(publish("headers-0", str(n), headers={"a": n}) for n in range(4_000)))


def a_history_that_goes_through_many_exchanges(rig: Rig) -> None:
    attacker, links = rig.attacker(), 300
    kept = {"x-recent-history-length": 5_000}
    attacker.run(
        method(Exchange.Declare(exchange="kept", exchange_type="x-recent-history", arguments=kept, nowait=True))
    )
    attacker.run(b"".join(publish("kept", str(n)) for n in range(5_000)))
    names = [f"after-{number}" for number in range(links)]
    attacker.run(methods(Exchange.Declare(exchange=name, exchange_type="fanout", nowait=True) for name in names))
    attacker.run(
        methods(Exchange.Bind(destination=after, source=before, nowait=True) for before, after in pairwise(names))
    )
    attacker.run(declares(["history"]) + method(Queue.Bind(queue="history", exchange=names[-1], nowait=True)))
    attacker.run(method(Exchange.Bind(destination="after-0", source="kept", nowait=True)))


def declares_on_all_channels(rig: Rig) -> None:
    """Each channel waits for the metadata store, and holds one frame more."""
    attackers, channels = [rig.attacker() for _ in range(6)], range(1, 2_041)
    for attacker in attackers:
        attacker.run(methods_on({number: commands.Channel.Open() for number in channels if number > 1}))
    for number, attacker in enumerate(attackers):
        for part in "ab":
            wanted = {
                channel: Queue.Declare(queue=f"all-{number}-{channel}-{part}", exclusive=True, nowait=True)
                for channel in channels
            }
            attacker.send(methods_on(wanted))
    another = rig.attacker()
    another.run(declares(["of another"]))
    for attacker in attackers:
        attacker.run(b"")


def methods_on(wanted: dict[int, object]) -> bytes:
    return b"".join(method(each, channel) for channel, each in wanted.items())


def slots_of_a_hash_exchange(rig: Rig) -> None:
    attacker = rig.attacker()
    names = [f"slot-{number}" for number in range(10_000)]
    attacker.run(method(Exchange.Declare(exchange="hash", exchange_type="x-consistent-hash", nowait=True)))
    attacker.run(declares(names))
    attacker.run(methods(Queue.Bind(queue=name, exchange="hash", routing_key="1", nowait=True) for name in names))
    attacker.run(b"".join(publish("hash", f"k{n}") for n in range(2_000)))


def one_message_to_very_many_queues(rig: Rig) -> None:
    attacker = rig.attacker()
    fanout(attacker, "wide", 20_000)
    attacker.run(publish("wide", ""))
    attacker.run(publish("wide", "", b"x" * 100, headers={"CC": ["a", "b"]}) * 5)


def queues_of_a_connection_that_ends(rig: Rig) -> None:
    attacker = rig.attacker()
    fanout(attacker, "ends", 5_000)
    attacker.run(publish("ends", ""))
    attacker.close()
    rig.attacker().read_for(0.5)


def a_policy_for_all_queues(rig: Rig) -> None:
    """Here by overflow of them all: policies are set by an operator."""
    attacker = rig.attacker()
    names = [f"full-{number}" for number in range(500)]
    attacker.run(method(Exchange.Declare(exchange="full", exchange_type="fanout", nowait=True)))
    attacker.run(declares(names, **{"x-max-length": 1, "x-overflow": "drop-head", "x-dead-letter-exchange": "full"}))
    attacker.run(methods(Queue.Bind(queue=name, exchange="full", nowait=True) for name in names))
    attacker.run(b"".join(publish("full", str(n)) for n in range(20)))


def a_backlog_that_goes_at_once(rig: Rig) -> None:
    attacker, bodies = rig.attacker(), count()
    attacker.run(declares(["backlog", "other"]))
    for _ in range(20):
        attacker.run(
            b"".join(
                publish("", "backlog", bytes(next(bodies) % 50), priority=next(bodies) % 9) for _ in range(5_000)
            )
        )
    attacker.run(method(Queue.Purge(queue="backlog", nowait=True)))
    for _ in range(20):
        attacker.run(b"".join(publish("", "backlog", bytes(next(bodies) % 50)) for _ in range(5_000)))
    attacker.run(method(Queue.Delete(queue="backlog", nowait=True)))


def messages_that_expire_together(rig: Rig) -> None:
    attacker, numbers = rig.attacker(), count()
    attacker.run(declares(["short", "other"]))
    for _ in range(20):
        data = b"".join(publish("", "short", expiration=str(6_000 + next(numbers) % 7)) for _ in range(5_000))
        attacker.run(data)
    attacker.read_for(6.5)


SHAPES: dict[str, Shape] = (
    CONSUMER_SHAPES
    | BACKLOG_SHAPES
    | DEFINITION_SHAPES
    | {
        shape.__name__: shape
        for shape in (
            cc_keys_through_dead_letter_queues,
            headers_bindings_that_are_all_looked_at,
            a_large_header_beside_many_bindings,
            a_transaction_of_many_copies,
            commits_that_overlap,
            delayed_messages_due_together,
            topic_patterns_with_many_wildcards,
            chained_exchanges,
            headers_of_many_small_publishes,
            a_history_that_goes_through_many_exchanges,
            declares_on_all_channels,
            slots_of_a_hash_exchange,
            one_message_to_very_many_queues,
            queues_of_a_connection_that_ends,
            a_policy_for_all_queues,
            a_backlog_that_goes_at_once,
            messages_that_expire_together,
        )
    }
)
QUICK = {
    "a_backlog_that_goes_at_once",
    "cc_keys_through_dead_letter_queues",
    "commits_that_overlap",
    "prefetch_set_again_and_again",
}
"""Of a backlog, dead letters, transactions and consumers: `make test` runs these, and `make test-heavy` the others,
of which three take a minute and more each."""


def environment_of(name: str) -> dict[str, str]:
    """What the broker of this shape needs beside the defaults."""
    return environment() if name in DEFINITION_SHAPES else {}
