"""Shapes of load in which a queue holds very many messages, each in a place of its own, until all of them go.

What comes in: a rig. What goes out: BACKLOG_SHAPES by name.
Rules: as in `shapes.py`. What is gathered in seconds here would be millions in an hour: the hold must not grow with
it.
Not here: publishing (`shapes.py`), consumers (`consumer_shapes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pamqp import commands

from tests.stalls.rig import Attacker, Rig
from tests.stalls.wire import method, publish

Shape = Callable[[Rig], None]
Basic, Queue = commands.Basic, commands.Queue
MESSAGES, CHUNK = 300_000, 20_000


def declared(rig: Rig, name: str, durable: bool = False, **arguments: object) -> Attacker:
    attacker = rig.attacker()
    attacker.run(method(Queue.Declare(queue=name, durable=durable, exclusive=not durable, arguments=arguments)))
    return attacker


def in_segments_of_one_message(rig: Rig) -> Attacker:
    """Transient and persistent ones in turn."""
    attacker = declared(rig, "turns", durable=True)
    chunk = b"".join(publish("", "turns", delivery_mode=1 + number % 2) for number in range(CHUNK))
    for _ in range(MESSAGES // CHUNK):
        attacker.run(chunk)
    return attacker


def delivered(attacker: Attacker, queue: str) -> None:
    """All of it, to a consumer that is gone then and acknowledges nothing."""
    attacker.run(method(Basic.Consume(queue=queue, consumer_tag="c", nowait=True)))
    attacker.read_for(2)
    attacker.run(method(Basic.Cancel("c", nowait=True)))


def a_purge_of_segments_of_one_message(rig: Rig) -> None:
    in_segments_of_one_message(rig).run(method(Queue.Purge(queue="turns", nowait=True)))


def a_deletion_of_segments_of_one_message(rig: Rig) -> None:
    in_segments_of_one_message(rig).run(method(Queue.Delete(queue="turns", nowait=True)))


def segments_of_one_message_acknowledged_together(rig: Rig) -> None:
    """Most of them were on the disk meanwhile."""
    attacker = in_segments_of_one_message(rig)
    delivered(attacker, "turns")
    attacker.run(method(Basic.Ack(0, True)))


def in_stretches_of_one_message(rig: Rig) -> Attacker:
    """Every other one of what was delivered is acknowledged, all the rest comes back."""
    attacker = declared(rig, "rest")
    for _ in range(MESSAGES // CHUNK):
        attacker.run(publish("", "rest") * CHUNK)
    delivered(attacker, "rest")
    for first in range(1, MESSAGES, CHUNK):
        attacker.run(b"".join(method(Basic.Ack(tag)) for tag in range(first, first + CHUNK, 2)))
    return attacker


def stretches_of_one_message_that_come_back_and_are_purged(rig: Rig) -> None:
    attacker = in_stretches_of_one_message(rig)
    attacker.run(method(Basic.Nack(0, True, True)))
    attacker.run(method(Queue.Purge(queue="rest", nowait=True)))


def stretches_of_one_message_that_come_back_at_a_loss(rig: Rig) -> None:
    in_stretches_of_one_message(rig).close()


def counted_messages_that_come_back_together(rig: Rig) -> None:
    attacker = declared(rig, "counted", durable=True, **{"x-queue-type": "quorum"})
    for _ in range(MESSAGES // CHUNK):
        attacker.run(publish("", "counted") * CHUNK)
    delivered(attacker, "counted")
    attacker.run(method(Basic.Nack(0, True, True)))
    attacker.run(method(Queue.Delete(queue="counted", nowait=True)))


def every_other_one(attacker: Attacker, messages: int) -> None:
    """Of these in the queue "times", half fall due at one moment, in between the others."""
    begun = time.monotonic()
    for _ in range(0, messages, 200):
        left_ms = max(1, int((begun + 9 - time.monotonic()) * 1000))
        attacker.send(
            b"".join(
                publish("", "times", expiration=str(left_ms if number % 2 else 1_000_000)) for number in range(200)
            )
        )
    attacker.run(b"")
    attacker.read_for(max(0.0, begun + 12 - time.monotonic()))


def every_other_one_expires_at_once(rig: Rig) -> None:
    every_other_one(declared(rig, "times"), MESSAGES)


def every_other_one_dies_at_once(rig: Rig) -> None:
    attacker = declared(rig, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    attacker.run(method(Queue.Declare(queue="times", exclusive=True, nowait=True, arguments=arguments)))
    every_other_one(attacker, 200_000)


def unacknowledged_ones_that_expire_one_by_one(rig: Rig) -> None:
    attacker = declared(rig, "times")
    attacker.run(method(Basic.Consume(queue="times", nowait=True)))
    chunk = b"".join(publish("", "times", expiration=str(3_000 + number * 7 % 3_000)) for number in range(3_000))
    for _ in range(60):
        attacker.run(chunk)
    attacker.read_for(7)


BACKLOG_SHAPES: dict[str, Shape] = {
    shape.__name__: shape
    for shape in (
        a_purge_of_segments_of_one_message,
        a_deletion_of_segments_of_one_message,
        segments_of_one_message_acknowledged_together,
        stretches_of_one_message_that_come_back_and_are_purged,
        stretches_of_one_message_that_come_back_at_a_loss,
        counted_messages_that_come_back_together,
        every_other_one_expires_at_once,
        every_other_one_dies_at_once,
        unacknowledged_ones_that_expire_one_by_one,
    )
}
