"""Queues: declaring, binding, purging, deleting; exclusive, auto-delete, named by the broker."""

from __future__ import annotations

import re

import pika
import pytest
from pamqp import base, commands

from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import rule
from conformance.talk import alive, ask, bodies, confirmed, consume, depth, get, new_queue, publish, refused
from tests.clients.brokers import Connect
from tests.clients.wire import Wire

Basic, Channel, Exchange, Queue = commands.Basic, commands.Channel, commands.Exchange, commands.Queue


def locked(queue: str, broker: Broker) -> str:
    return (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '{broker.vhost}'. It "
        "could be originally declared on another connection or the exclusive property value does not match that of "
        "the original declaration."
    )


@rule("AMQP 0-9-1 section 1.7.2.1", "declare-ok has the name and counts messages that are ready, and consumers.")
def test_declare_ok(client: Wire, unique: Names) -> None:
    queue = unique("queue")
    answer = ask(client, Queue.Declare(queue=queue))
    assert (answer.queue, answer.message_count, answer.consumer_count) == (queue, 0, 0)
    for _ in range(3):
        confirmed(client, "", queue)
    assert get(client, queue, no_ack=False) is not None
    ask(client, Basic.Qos(prefetch_count=1))
    consume(client, queue)
    client.read_message()
    answer = ask(client, Queue.Declare(queue=queue))
    assert (answer.message_count, answer.consumer_count) == (1, 1)


@rule("AMQP 0-9-1 section 1.7.2.1", "Declaring a queue again in another way is refused with 406.")
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"durable": True}, "inequivalent arg 'durable' for {0}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "inequivalent arg 'auto_delete' for {0}: received 'true' but current is 'false'"),
    ],
    ids=["durable", "auto_delete"],
)
def test_declare_otherwise(client: Wire, unique: Names, broker: Broker, option: dict[str, bool], text: str) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    resource = f"queue '{queue}' in vhost '{broker.vhost}'"
    method = Queue.Declare(queue=queue, **option)  # type: ignore[arg-type]
    refused(client, method, 406, f"PRECONDITION_FAILED - {text.format(resource)}")


@rule("AMQP 0-9-1 section 1.7.2.1", "Exclusive or not is compared before all else: 405.")
def test_declare_exclusive_or_not(client: Wire, unique: Names, broker: Broker) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    refused(client, Queue.Declare(queue=queue, exclusive=True, durable=True), 405, locked(queue, broker))


@rule("AMQP 0-9-1 section 1.7.2.1", "Arguments that nobody knows are kept, and not compared.")
def test_unknown_arguments(client: Wire, unique: Names) -> None:
    for value in (1, "two", None):
        ask(client, Queue.Declare(queue=unique("queue"), arguments={"x-mine": value}))


@rule("AMQP 0-9-1 section 1.7.2.1", "A passive declaration looks at nothing but the name.")
def test_declare_passive(client: Wire, unique: Names, broker: Broker) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    ask(client, Queue.Declare(queue=queue, passive=True, durable=True, auto_delete=True))
    text = f"NOT_FOUND - no queue '{unique('missing')}' in vhost '{broker.vhost}'"
    refused(client, Queue.Declare(queue=unique("missing"), passive=True), 404, text)


@rule("AMQP 0-9-1 section 1.7.2.1", "An empty name asks for one of the broker's, which begins with amq.gen-.")
def test_names_of_the_broker(client: Wire) -> None:
    names = {new_queue(client) for _ in range(5)}
    assert len(names) == 5
    for name in names:
        assert re.fullmatch(r"amq\.gen-[\w-]{22}", name)
        ask(client, Queue.Declare(queue=name, passive=True))


@rule("AMQP 0-9-1 section 1.7.2.1", "A name of the broker's can be declared passively only.")
def test_a_name_of_the_broker_again(client: Wire) -> None:
    queue = new_queue(client)
    text = f"ACCESS_REFUSED - queue name '{queue}' contains reserved prefix 'amq.*'"
    refused(client, Queue.Declare(queue=queue, exclusive=True), 403, text)


@rule("AMQP 0-9-1 section 1.7.2.1", "An empty name in a passive declaration is the name of no queue.")
def test_an_empty_name_passively(client: Wire, broker: Broker) -> None:
    new_queue(client)
    refused(client, Queue.Declare(passive=True), 404, f"NOT_FOUND - no queue '' in vhost '{broker.vhost}'")


@rule("AMQP 0-9-1 section 1.7.2.1", "Names that begin with amq. are the broker's.")
def test_reserved_names(client: Wire) -> None:
    text = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    refused(client, Queue.Declare(queue="amq.mine"), 403, text)


@rule("AMQP 0-9-1 section 1.7.2.1", "An empty name elsewhere means the queue last declared on the channel.")
def test_the_last_queue(client: Wire) -> None:
    queue = new_queue(client)
    ask(client, Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    publish(client, "amq.direct", queue)
    assert bodies(client, "") == [b"x"]
    ask(client, Queue.Unbind(queue="", exchange="amq.direct", routing_key=""))
    publish(client, "amq.direct", queue)
    assert ask(client, Queue.Purge(queue="")).message_count == 0
    consume(client, "")
    ask(client, Basic.Cancel(consumer_tag="c"))
    ask(client, Queue.Delete(queue=""))


@rule("AMQP 0-9-1 section 1.7.2.3", "Without a queue declared on the channel an empty name is 404.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Queue.Bind(exchange="amq.direct"), id="bind"),
        pytest.param(Queue.Purge(), id="purge"),
        pytest.param(Queue.Delete(), id="delete"),
        pytest.param(Basic.Get(), id="get"),
        pytest.param(Basic.Consume(), id="consume"),
    ],
)
def test_no_last_queue(client: Wire, method: base.Frame) -> None:
    refused(client, method, 404, "NOT_FOUND - no previously declared queue")


@rule("AMQP 0-9-1 section 1.7.2.1", "An exclusive queue is of one connection: 405 for others, whatever they want.")
@pytest.mark.parametrize("what", ["declare", "passive", "consume", "get", "purge", "delete", "bind"])
def test_exclusive(client: Wire, wire: OpenWire, broker: Broker, unique: Names, what: str) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue, exclusive=True))
    method: base.Frame = {
        "declare": Queue.Declare(queue=queue, exclusive=True),
        "passive": Queue.Declare(queue=queue, passive=True),
        "consume": Basic.Consume(queue=queue),
        "get": Basic.Get(queue=queue),
        "purge": Queue.Purge(queue=queue),
        "delete": Queue.Delete(queue=queue),
        "bind": Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k"),
    }[what]
    other = wire()
    other.open_channel()
    refused(other, method, 405, locked(queue, broker))
    confirmed(other, "", queue)
    assert bodies(client, queue) == [b"x"]


@rule("AMQP 0-9-1 section 1.7.2.1", "An exclusive queue is deleted when its connection closes.")
@pytest.mark.parametrize("how", ["close", "cut"])
def test_exclusive_goes_with_its_connection(wire: OpenWire, unique: Names, how: str) -> None:
    owner, other = wire(), wire()
    owner.open_channel()
    ask(owner, Queue.Declare(queue=unique("queue"), exclusive=True, durable=True))
    if how == "close":
        owner.close()
    else:
        owner.socket.close()
    other.open_channel()
    answer = None
    for _ in range(200):  # a cut is noticed, not answered
        answer = other.call(Queue.Declare(queue=unique("queue"), passive=True), channel=1)
        assert isinstance(answer, Channel.Close)
        other.send(Channel.CloseOk(), channel=1)
        other.open_channel()
        if answer.reply_code == 404:
            break
    assert answer is not None
    assert answer.reply_code == 404


@rule("AMQP 0-9-1 section 1.7.2.1", "An auto-delete queue goes with its last consumer, and not before its first.")
@pytest.mark.parametrize("how", ["cancel", "channel", "connection"])
def test_auto_delete(client: Wire, wire: OpenWire, unique: Names, how: str) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue, auto_delete=True))
    assert get(client, queue) is None
    other = wire()
    other.open_channel()
    consume(other, queue, "one")
    consume(other, queue, "two")
    ask(other, Basic.Cancel(consumer_tag="one"))
    assert depth(client, queue) == 0
    if how == "cancel":
        ask(other, Basic.Cancel(consumer_tag="two"))
    elif how == "channel":
        ask(other, Channel.Close(200, "", 0, 0))
    else:
        other.close()
    refused(client, Queue.Declare(queue=queue, passive=True), 404)


@rule(
    "AMQP 0-9-1 section 1.7.2.3", "Binding twice is as good as once; bindings that differ in key or arguments count."
)
def test_bind_twice(client: Wire) -> None:
    queue = new_queue(client)
    for arguments in ({}, {}, {"a": 1}):
        ask(client, Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue, arguments=arguments))
    publish(client, "amq.direct", queue)
    assert bodies(client, queue) == [b"x"]
    ask(client, Queue.Unbind(queue=queue, exchange="amq.direct", routing_key=queue))
    publish(client, "amq.direct", queue)
    assert bodies(client, queue) == [b"x"]
    ask(client, Queue.Unbind(queue=queue, exchange="amq.direct", routing_key=queue, arguments={"a": 1}))
    publish(client, "amq.direct", queue)
    assert bodies(client, queue) == []


@rule(
    "AMQP 0-9-1 section 1.7.2.3", "Binding a queue or to an exchange that is not there is 404; unbinding is no error."
)
@pytest.mark.parametrize("missing", ["queue", "exchange"])
def test_bind_missing(client: Wire, unique: Names, broker: Broker, missing: str) -> None:
    names = {"queue": new_queue(client), "exchange": "amq.direct", missing: unique("missing"), "routing_key": "k"}
    ask(client, Queue.Unbind(**names))
    text = f"NOT_FOUND - no {missing} '{unique('missing')}' in vhost '{broker.vhost}'"
    refused(client, Queue.Bind(**names), 404, text)


@rule("AMQP 0-9-1 section 1.7.2.3", "A queue cannot be bound to the default exchange: 403.")
@pytest.mark.parametrize("method", [Queue.Bind, Queue.Unbind], ids=["bind", "unbind"])
def test_bind_to_the_default_exchange(client: Wire, method: type) -> None:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    refused(client, method(queue=new_queue(client), exchange="", routing_key="k"), 403, text)


@rule("AMQP 0-9-1 section 1.7.2.7", "purge takes what is ready and says how many; what is unacknowledged stays.")
def test_purge(client: Wire, broker: Broker, unique: Names) -> None:
    queue = new_queue(client)
    for _ in range(3):
        publish(client, "", queue)
    assert get(client, queue, no_ack=False) is not None
    assert ask(client, Queue.Purge(queue=queue)).message_count == 2
    client.send(Basic.Nack(1, False, True), channel=1)
    assert bodies(client, queue) == [b"x"]
    text = f"NOT_FOUND - no queue '{unique('missing')}' in vhost '{broker.vhost}'"
    refused(client, Queue.Purge(queue=unique("missing")), 404, text)


@rule("AMQP 0-9-1 section 1.7.2.9", "delete says how many were ready; what is not there is no error.")
def test_delete(client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    for _ in range(3):
        publish(client, "", queue)
    assert [ask(client, Queue.Delete(queue=queue)).message_count for _ in range(2)] == [3, 0]
    refused(client, Queue.Declare(queue=queue, passive=True), 404)


@rule("AMQP 0-9-1 section 1.7.2.9", "if-unused and if-empty keep a queue that has consumers or messages: 406.")
def test_delete_if(client: Wire, unique: Names, broker: Broker) -> None:
    queue = unique("queue")
    resource = f"PRECONDITION_FAILED - queue '{queue}' in vhost '{broker.vhost}'"
    ask(client, Queue.Declare(queue=queue))
    publish(client, "", queue)
    refused(client, Queue.Delete(queue=queue, if_empty=True), 406, f"{resource} not empty")
    consume(client, queue, no_ack=True)
    client.read_message()
    refused(client, Queue.Delete(queue=queue, if_unused=True), 406, f"{resource} in use")
    ask(client, Queue.Delete(queue=queue, if_empty=True, if_unused=True))


@rule(
    "AMQP 0-9-1 section 1.7.2.9", "What was delivered of a queue that is deleted can still be settled, for nothing."
)
def test_settle_after_delete(client: Wire) -> None:
    queue = new_queue(client)
    for _ in range(3):
        publish(client, "", queue)
        assert get(client, queue, no_ack=False) is not None
    ask(client, Queue.Delete(queue=queue))
    client.send(Basic.Ack(1), Basic.Nack(2, False, True), Basic.Reject(3, True), channel=1)
    assert alive(client)


@rule("AMQP 0-9-1 section 1.7.2.1", "With nowait nothing is answered, and it takes effect in order.")
def test_nowait(client: Wire, unique: Names) -> None:
    queue = unique("queue")
    client.send(
        Queue.Declare(queue=queue, nowait=True),
        Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue, nowait=True),
        channel=1,
    )
    confirmed(client, "amq.direct", queue)
    assert depth(client, queue) == 1
    client.send(Queue.Purge(queue=queue, nowait=True), channel=1)
    assert depth(client, queue) == 0
    client.send(Queue.Delete(queue=queue, nowait=True), channel=1)
    refused(client, Queue.Declare(queue=queue, passive=True), 404)


@rule("AMQP 0-9-1 section 3.1.3.1", "Every queue is bound to the default exchange by its name.")
def test_the_default_binding(connect: Connect, unique: Names) -> None:
    channel = connect().channel()
    channel.queue_declare(unique("snö und ü"))
    channel.basic_publish("", unique("snö und ü"), b"x")
    assert channel.basic_get(unique("snö und ü"), auto_ack=True)[2] == b"x"


@rule("AMQP 0-9-1 section 1.7.2.1", "Names have up to 255 octets.")
def test_the_longest_name(connection: pika.BlockingConnection, unique: Names) -> None:
    channel, name = connection.channel(), unique("q" * (255 - len(str(unique)) - 1))
    assert len(name) == 255
    assert channel.queue_declare(name, exclusive=True).method.queue == name
