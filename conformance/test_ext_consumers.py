"""Consumers: priorities, exclusive ones, notes of cancellation, prefetch.

What comes in and goes out: several consumers on a queue; who got what.
Rules: who was not given a message is asked after a round trip to the queue.
Not here: single active consumer (`test_ext_single_active.py`).
"""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pamqp import commands

from conformance.extensions import Reader, consumers, gone, named, refused, wait_until
from conformance.rules import rule

PRIORITY = "x-priority"


@pytest.fixture
def queue(channel, unique):
    """A queue on a confirming channel: a publish that returned was given to whoever gets it."""
    channel.confirm_delivery()
    channel.queue_declare(unique("q"), exclusive=True)
    return unique("q")


def publish(channel, queue: str, *numbers: int) -> None:
    for number in numbers:
        channel.basic_publish("", queue, str(number).encode())


@rule("RabbitMQ: consumer-priority", "The consumer with the higher priority gets everything while it can take it.")
def test_the_higher_priority_gets_everything(connection, channel, queue):
    low = Reader(connection.channel(), queue, arguments={PRIORITY: 1}, auto_ack=True)
    high = Reader(connection.channel(), queue, arguments={PRIORITY: 10}, auto_ack=True)
    publish(channel, queue, *range(20))
    high.wait(20)
    assert low.settle() == []


@rule("RabbitMQ: consumer-priority", "When the prefetch of the higher one is used up, the lower one gets messages.")
def test_a_lower_priority_gets_what_is_left(connection, channel, queue):
    first = connection.channel()
    first.basic_qos(prefetch_count=2)
    high = Reader(first, queue, arguments={PRIORITY: 10})
    low = Reader(connection.channel(), queue, arguments={PRIORITY: 1}, auto_ack=True)
    publish(channel, queue, *range(5))
    low.wait(3)
    assert (high.settle(), low.settle()) == ([b"0", b"1"], [b"2", b"3", b"4"])
    high.ack(0)
    publish(channel, queue, 5)
    high.wait(3)
    assert (high.bodies[2], low.settle()[3:]) == (b"5", [])


@rule("RabbitMQ: consumer-priority", "A consumer without x-priority has priority 0, negative ones come after it.")
def test_no_priority_is_zero(connection, channel, queue):
    below = Reader(connection.channel(), queue, arguments={PRIORITY: -1}, auto_ack=True)
    none = Reader(connection.channel(), queue, auto_ack=True)
    publish(channel, queue, *range(5))
    none.wait(5)
    assert below.settle() == []


@rule("RabbitMQ: consumer-priority", "Consumers of the same priority take turns.")
def test_equal_priorities_take_turns(connection, channel, queue):
    readers = [Reader(connection.channel(), queue, arguments={PRIORITY: 5}, auto_ack=True) for _ in range(2)]
    publish(channel, queue, *range(10))
    for reader in readers:
        reader.wait(5)
    assert [len(reader.settle()) for reader in readers] == [5, 5]


@rule("RabbitMQ: consumer-priority", "x-priority is an integer.")
@pytest.mark.parametrize(
    ("value", "kind"), [("10", "longstr"), (True, "bool"), (None, "void")], ids=["longstr", "bool", "void"]
)
def test_a_priority_has_to_be_an_integer(broker, connection, queue, value, kind):
    text = f"invalid arg 'x-priority' for {named(broker, 'queue', queue)}: \"expected integer, got {kind}\""
    with refused(f"PRECONDITION_FAILED - {text}"):
        Reader(connection.channel(), queue, arguments={PRIORITY: value})


@rule("RabbitMQ: consumers#arguments", "A consumer argument that nobody knows is accepted.")
def test_unknown_consumer_arguments_are_accepted(channel, queue):
    reader = Reader(channel, queue, arguments={"x-nobody-knows-this": 1}, auto_ack=True)
    publish(channel, queue, 1)
    assert reader.wait(1)[0].body == b"1"


@rule("RabbitMQ: consumers#arguments", "A consumer argument of another queue type is refused.")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_consumer_arguments_of_streams_are_refused(broker, connection, channel, unique, kind):
    name = unique(kind)
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    told = f"invalid arg 'x-stream-offset' for {named(broker, 'queue', name)} of queue type rabbit_{kind}_queue"
    with refused(f"PRECONDITION_FAILED - {told}"):
        Reader(connection.channel(), name, arguments={"x-stream-offset": "first"})


@rule("RabbitMQ: consumers#exclusivity", "An exclusive consumer refuses other consumers.")
def test_an_exclusive_consumer_refuses_others(broker, connection, queue):
    Reader(connection.channel(), queue, exclusive=True)
    for exclusive in (False, True):
        with refused(f"ACCESS_REFUSED - {named(broker, 'queue', queue)} in exclusive use"):
            Reader(connection.channel(), queue, exclusive=exclusive)


@rule("RabbitMQ: consumers#exclusivity", "There can be no exclusive consumer beside another one.")
def test_an_exclusive_consumer_needs_to_be_the_first(broker, connection, queue):
    Reader(connection.channel(), queue)
    with refused(f"ACCESS_REFUSED - {named(broker, 'queue', queue)} in exclusive use"):
        Reader(connection.channel(), queue, exclusive=True)


@rule("RabbitMQ: consumers#exclusivity", "When the exclusive consumer is gone, others may come.")
def test_exclusivity_ends_with_its_consumer(connection, channel, queue):
    holding = connection.channel()
    holding.basic_cancel(Reader(holding, queue, exclusive=True).tag)
    reader = Reader(connection.channel(), queue, exclusive=True, auto_ack=True)
    publish(channel, queue, 1)
    assert reader.wait(1)[0].body == b"1"


@rule("RabbitMQ: consumers#exclusivity", "basic.get is allowed beside an exclusive consumer.")
def test_get_beside_an_exclusive_consumer(connection, channel, queue):
    first = connection.channel()
    first.basic_qos(prefetch_count=1)
    Reader(first, queue, exclusive=True).channel.connection.process_data_events(0)
    publish(channel, queue, 1, 2)
    wait_until(lambda: channel.basic_get(queue, auto_ack=True)[2] == b"2")


@rule("RabbitMQ: consumer-cancel", "A consumer whose queue is deleted is told with basic.cancel.")
def test_a_deleted_queue_cancels_its_consumers(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True)
    readers = [Reader(connection.channel(), unique("q")) for _ in range(2)]
    channel.queue_delete(unique("q"))
    for reader in readers:
        reader.wait_for(lambda reader=reader: reader.cancelled, "basic.cancel")
        assert reader.channel.is_open
        assert reader.tag not in reader.channel.consumer_tags


@rule("RabbitMQ: consumer-cancel", "A client that did not say consumer_cancel_notify is told nothing.")
@pytest.mark.parametrize("capable", [False, True], ids=["without", "with"])
def test_cancel_needs_the_capability(broker, connection, unique, capable):
    connection.channel().queue_declare(unique("q"), durable=True)
    parameters = pika.URLParameters(broker.url)
    capabilities = {"capabilities": {"consumer_cancel_notify": capable}}
    parameters.client_properties = capabilities
    other = pika.BlockingConnection(parameters)
    told: list[Any] = []
    listening = other.channel()
    listening.add_on_cancel_callback(told.append)
    listening.basic_consume(unique("q"), lambda *_: None)
    connection.channel().queue_delete(unique("q"))
    if capable:
        while not told:
            other.process_data_events(0.1)
    listening.queue_declare(unique("r"), exclusive=True)  # a note would come before this answer
    other.process_data_events(0)
    assert bool(told) is capable
    other.close()


@rule("RabbitMQ: consumer-cancel", "The broker's basic.cancel asks for no answer and names the consumer.")
def test_the_form_of_a_cancel(broker, connection, unique):
    connection.channel().queue_declare(unique("q"), durable=True)
    client = broker.open_wire()
    client.open_channel()
    assert isinstance(
        client.call(commands.Basic.Consume(0, unique("q"), "mine"), channel=1), commands.Basic.ConsumeOk
    )
    connection.channel().queue_delete(unique("q"))
    number, method = client.read_method()
    assert (number, method.name) == (1, "Basic.Cancel")
    assert (method.consumer_tag, method.nowait) == ("mine", True)
    client.close()


@rule("RabbitMQ: consumer-cancel", "Cancelling twice, or a consumer that the broker has cancelled, is no error.")
def test_cancelling_what_is_cancelled(broker, connection, unique):
    connection.channel().queue_declare(unique("q"), durable=True)
    client = broker.open_wire()
    client.open_channel()
    client.call(commands.Basic.Consume(0, unique("q"), "mine"), channel=1)
    connection.channel().queue_delete(unique("q"))
    client.read_method()
    for _ in range(2):
        answer = client.call(commands.Basic.Cancel("mine"), channel=1)
        assert (answer.name, answer.consumer_tag) == ("Basic.CancelOk", "mine")
    client.close()


@rule("RabbitMQ: consumer-prefetch", "prefetch-count counts for each consumer that comes after it.")
def test_prefetch_is_for_each_consumer(connection, channel, queue):
    reading = connection.channel()
    reading.basic_qos(prefetch_count=2)
    first = Reader(reading, queue)
    reading.basic_qos(prefetch_count=3)
    second = Reader(reading, queue)
    publish(channel, queue, *range(10))
    first.wait(2)
    second.wait(3)
    assert (len(first.settle()), len(second.settle())) == (2, 3)


@rule("RabbitMQ: consumer-prefetch", "A prefetch with global is shared by the channel's consumers.")
def test_a_global_prefetch_is_shared(connection, channel, queue):
    reading = connection.channel()
    reading.basic_qos(prefetch_count=3, global_qos=True)
    readers = [Reader(reading, queue) for _ in range(2)]
    publish(channel, queue, *range(10))
    readers[0].wait_for(lambda: sum(len(reader.got) for reader in readers) == 3, "the third delivery")
    assert sum(len(reader.settle()) for reader in readers) == 3


@rule("RabbitMQ: consumer-prefetch", "With both kinds of prefetch a consumer gets no more than either allows.")
def test_both_kinds_of_prefetch_hold(connection, channel, queue):
    reading = connection.channel()
    reading.basic_qos(prefetch_count=4)
    reading.basic_qos(prefetch_count=5, global_qos=True)
    readers = [Reader(reading, queue) for _ in range(2)]
    publish(channel, queue, *range(20))
    readers[0].wait_for(lambda: sum(len(reader.got) for reader in readers) == 5, "the fifth delivery")
    assert max(len(reader.settle()) for reader in readers) <= 4
    assert sum(len(reader.settle()) for reader in readers) == 5


@rule("RabbitMQ: consumer-prefetch", "A prefetch limit set on a live channel leaves the consumers that it has alone.")
def test_prefetch_does_not_change_older_consumers(connection, channel, queue):
    reading = connection.channel()
    reader = Reader(reading, queue)
    reading.basic_qos(prefetch_count=1)
    publish(channel, queue, *range(10))
    reader.wait(10)


@rule("RabbitMQ: consumer-prefetch", "Without acknowledgements there is no prefetch limit.")
def test_no_ack_has_no_prefetch(connection, channel, queue):
    reading = connection.channel()
    reading.basic_qos(prefetch_count=1)
    reader = Reader(reading, queue, auto_ack=True)
    publish(channel, queue, *range(10))
    reader.wait(10)


@rule(
    "RabbitMQ: queues#temporary-queues",
    "An auto-delete queue goes with its last consumer, not before the first one.",
)
def test_auto_delete_waits_for_the_last_consumer(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True, auto_delete=True)
    reading = connection.channel()
    tags = [Reader(reading, unique("q")).tag for _ in range(2)]
    assert consumers(channel, unique("q")) == 2
    reading.basic_cancel(tags[0])
    assert not gone(connection, unique("q"))
    reading.basic_cancel(tags[1])
    wait_until(lambda: gone(connection, unique("q")))
