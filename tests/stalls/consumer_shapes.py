"""Shapes of load on the side of consumers, channels and connections that once held a broker up.

What comes in: a rig. What goes out: CONSUMER_SHAPES by name.
Rules: as in `shapes.py`.
Not here: publishing (`shapes.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp import base, commands

from tests.stalls.rig import Attacker, Rig
from tests.stalls.wire import method, methods, publish

Shape = Callable[[Rig], None]
Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue
# This many one channel may have.
CONSUMERS_A_CHANNEL = 10_000


def consumers(
    attacker: Attacker, count: int, priority: Callable[[int], int] | None = None, queue: str = "q", first: int = 2
) -> list[int]:
    """This many consumers with a prefetch of 1; the channels that they are on."""
    channels = []
    for channel, at in enumerate(range(0, count, CONSUMERS_A_CHANNEL), first):
        channels.append(channel)
        wanted: list[base.Frame] = [Channel.Open(), Basic.Qos(prefetch_count=1)]
        for number in range(at, min(at + CONSUMERS_A_CHANNEL, count)):
            arguments = {"x-priority": priority(number)} if priority is not None else None
            wanted.append(Basic.Consume(queue=queue, consumer_tag=f"t{number}", nowait=True, arguments=arguments))
        attacker.run(methods(wanted, channel))
    return channels


def declared(rig: Rig, **arguments: object) -> Attacker:
    attacker = rig.attacker()
    attacker.run(method(Queue.Declare(queue="q", arguments=arguments)))
    return attacker


def fed(attacker: Attacker, count: int) -> None:
    """Messages one by one: an entry of the ledger each, when two consumers take turns."""
    for at in range(0, count, 10_000):
        attacker.run(b"".join(publish("", "q", bytes((n % 250,))) for n in range(at, min(at + 10_000, count))))


def gets_beside_consumers_without_credit(rig: Rig) -> None:
    attacker = declared(rig)
    consumers(attacker, 100_000)
    fed(attacker, 102_000)
    attacker.run(method(Basic.Get(queue="q", no_ack=True)) * 1_000)


def channels_that_fail_and_are_not_answered(rig: Rig) -> None:
    attacker = declared(rig)
    failing = [Channel.Open(), Queue.Declare(queue="nothing", passive=True)]
    attacker.send(b"".join(methods(failing, channel) for channel in range(2, 32_000)))
    attacker.read_for(2.0)


def consumers_of_distinct_priorities(rig: Rig) -> None:
    attacker = declared(rig)
    channels = consumers(attacker, 20_000, lambda number: number * 7919 % 20_011)
    fed(attacker, 20_000)
    for channel in channels:
        attacker.run(method(Channel.Close(200, "", 0, 0), channel))


def prefetch_set_again_and_again(rig: Rig) -> None:
    attacker = declared(rig)
    (channel,) = consumers(attacker, 10_000)
    attacker.run(method(Basic.Qos(prefetch_count=5, global_=True), channel) * 13_000)
    attacker.run(method(Basic.Qos(prefetch_count=5), channel) * 13_000)


def cancels_from_the_end(rig: Rig) -> None:
    attacker = declared(rig)
    for number, channel in enumerate(consumers(attacker, 50_000)):
        tags = range((number + 1) * CONSUMERS_A_CHANNEL - 1, number * CONSUMERS_A_CHANNEL - 1, -1)
        attacker.run(methods((Basic.Cancel(f"t{tag}", True) for tag in tags), channel))


def single_active_consumers_that_leave(rig: Rig) -> None:
    attacker = declared(rig, **{"x-single-active-consumer": True})
    for number, channel in enumerate(consumers(attacker, 20_000, lambda number: number % 1_000)):
        tags = range(number * CONSUMERS_A_CHANNEL, (number + 1) * CONSUMERS_A_CHANNEL)
        attacker.run(methods((Basic.Cancel(f"t{tag}", True) for tag in tags), channel))


def a_connection_with_everything_that_is_lost(rig: Rig) -> None:
    attacker = declared(rig)
    consumers(attacker, 50_000)
    fed(attacker, 50_000)


def acknowledgements_in_any_order(rig: Rig) -> None:
    attacker = declared(rig)
    attacker.run(methods(Basic.Consume(queue="q", consumer_tag=tag, nowait=True) for tag in ("a", "b")))
    for _ in range(1_000):
        attacker.run(b"".join(publish("", "q", bytes((n % 250,))) for n in range(100)))
    attacker.run(methods(Basic.Ack(tag) for tag in range(2, 20_000)))
    attacker.run(methods(Basic.Ack(tag) for tag in range(80_000, 60_000, -1)))
    attacker.run(methods(Basic.Cancel(tag, True) for tag in ("a", "b")))
    attacker.run(methods(Basic.Nack(tag, False, True) for tag in range(60_000, 20_000, -2)))
    attacker.run(method(Basic.Recover(True)))


def a_prefetch_shared_by_very_many_consumers(rig: Rig) -> None:
    attacker, channel = (
        rig.attacker(),
        2,
    )  # on channel 1 each phase ends with a basic.qos, which lifts a shared prefetch
    names = [f"shared-{number}" for number in range(1_000)]
    attacker.run(methods(Queue.Declare(queue=name, nowait=True, exclusive=True) for name in names))
    attacker.run(methods((Channel.Open(), Basic.Qos(prefetch_count=2_000, global_=True)), channel))
    for tag in range(10):
        wanted = (Basic.Consume(queue=name, consumer_tag=f"{name} {tag}", nowait=True) for name in names)
        attacker.run(methods(wanted, channel))
    for _ in range(2):
        attacker.run(b"".join(publish("", name) * 2 for name in names))
        attacker.run(method(Basic.Ack(0, True), channel))


def a_deleted_queue_with_very_many_consumers(rig: Rig) -> None:
    attacker = declared(rig)
    consumers(attacker, 100_000)
    attacker.run(method(Queue.Delete(queue="q")))


def secrets_renewed_again_and_again(rig: Rig) -> None:
    attacker = declared(rig)
    consumers(attacker, 50_000)
    attacker.run(method(commands.Connection.UpdateSecret("s", "r"), 0) * 100)


CONSUMER_SHAPES: dict[str, Shape] = {
    shape.__name__: shape
    for shape in (
        gets_beside_consumers_without_credit,
        channels_that_fail_and_are_not_answered,
        consumers_of_distinct_priorities,
        prefetch_set_again_and_again,
        cancels_from_the_end,
        single_active_consumers_that_leave,
        a_connection_with_everything_that_is_lost,
        acknowledgements_in_any_order,
        a_prefetch_shared_by_very_many_consumers,
        a_deleted_queue_with_very_many_consumers,
        secrets_renewed_again_and_again,
    )
}
