"""Exchange types of RabbitMQ's plugins: consistent hash, modulus hash, random, local random, recent history.

What comes in and goes out: exchanges of these types with several queues; who got which message.
Rules: 1. Hash functions are the broker's own: only shares and repetitions are compared, never a single choice.
2. Shares of many messages are bounded so widely that chance does not matter.
Not here: the four types of the specification; x-delayed-message (`test_ext_delay.py`).
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import bodies, depth, named, refused, take
from conformance.rules import differs, rule

HASH, RANDOM, HISTORY, MODULUS = "x-consistent-hash", "x-random", "x-recent-history", "x-modulus-hash"
LOCAL = "x-local-random"
NOT_IN_3 = "x-local-random came with RabbitMQ 4"
MANY = 1000


@pytest.fixture
def channel(channel):
    channel.confirm_delivery()
    return channel


@pytest.fixture
def exchange(channel, unique):
    def declare(kind: str, **arguments: object) -> str:
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        channel.exchange_declare(unique("ex"), kind, arguments=given)
        return unique("ex")

    return declare


def bound(channel, exchange: str, names: list[str], keys: list[str], **arguments: object) -> list[str]:
    for name, key in zip(names, keys, strict=True):
        channel.queue_declare(name, exclusive=True, arguments=arguments)
        channel.queue_bind(name, exchange, key)
    return names


def drained(channel, queue: str) -> list[bytes]:
    return bodies(channel, queue, depth(channel, queue))


@rule("RabbitMQ: exchanges", "An exchange of a type that the broker does not know is refused.")
def test_an_unknown_type_is_refused(broker, connection, unique):
    name = "COMMAND_INVALID" if broker.is_("rabbitmq<4") else "PRECONDITION_FAILED"  # since 4.0 only the channel ends
    with refused(f"{name} - unknown exchange type 'x-nobody-knows-this'"):
        connection.channel().exchange_declare(unique("ex"), "x-nobody-knows-this")


@rule(
    "RabbitMQ: exchanges#consistent-hash",
    "Every message goes to exactly one queue, the same key always to the same.",
)
def test_a_key_keeps_its_queue(channel, exchange, unique):
    name = exchange(HASH)
    queues = bound(channel, name, [unique(f"q{number}") for number in range(3)], ["1", "1", "1"])
    for _ in range(3):
        for key in range(30):
            channel.basic_publish(name, f"key.{key}", str(key).encode())
    found = [drained(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 90
    for got in found:
        assert all(got.count(body) == 3 for body in got)


@rule("RabbitMQ: exchanges#consistent-hash", "The binding key is a weight: shares follow it.")
def test_shares_follow_the_weights(channel, exchange, unique):
    name = exchange(HASH)
    light, heavy = bound(channel, name, [unique("light"), unique("heavy")], ["1", "4"])
    for key in range(MANY):
        channel.basic_publish(name, f"key.{key}", b"x")
    shares = [depth(channel, queue) for queue in (light, heavy)]
    assert sum(shares) == MANY
    assert MANY * 0.08 < shares[0] < MANY * 0.36


@rule(
    "RabbitMQ: exchanges#consistent-hash",
    "A new queue takes its share, and no message moves between the old ones.",
)
def test_a_new_queue_moves_only_what_it_takes(channel, exchange, unique):
    name = exchange(HASH)
    names = [unique(f"q{number}") for number in range(3)]
    bound(channel, name, names[:2], ["10", "10"])

    def placed(queues: list[str]) -> dict[bytes, str]:
        for key in range(MANY // 5):
            channel.basic_publish(name, f"key.{key}", str(key).encode())
        return {body: queue for queue in queues for body in drained(channel, queue)}

    known = placed(names[:2])
    bound(channel, name, names[2:], ["10"])
    after = placed(names)
    moved = [body for body in known if known[body] != after[body]]
    assert moved
    assert {after[body] for body in moved} == {names[2]}


@rule("RabbitMQ: exchanges#consistent-hash", "A weight is a number above 0.")
@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("0", "greater than 0"),
        ("-1", "greater than 0"),
        ("heavy", 'an integer: <<"heavy">>'),
        ("1.5", 'an integer: <<"1.5">>'),
        ("", "an integer: <<>>"),
    ],
)
def test_a_weight_has_to_be_a_number(connection, channel, exchange, unique, key, told):
    name = exchange(HASH)
    channel.queue_declare(unique("q"), exclusive=True)
    # Asked by a channel that declared no queue: an empty key would be the name of that queue.
    with refused(f"PRECONDITION_FAILED - The binding key must be {told}"):
        connection.channel().queue_bind(unique("q"), name, key)


@rule("RabbitMQ: exchanges#consistent-hash", "hash-header takes a header's value in place of the routing key.")
def test_a_header_can_be_hashed(channel, exchange, unique):
    name = exchange(HASH, hash_header="who")
    queues = bound(channel, name, [unique("a"), unique("b")], ["1", "1"])
    for key in range(20):
        for who in range(20):
            channel.basic_publish(name, f"{key}", str(who).encode(), pika.BasicProperties(headers={"who": f"w{who}"}))
    found = [drained(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 400
    assert all(got for got in found)
    assert not set(found[0]) & set(found[1])


@rule("RabbitMQ: exchanges#consistent-hash", "hash-property takes message_id, correlation_id or timestamp.")
@pytest.mark.parametrize("what", ["message_id", "correlation_id", "timestamp"])
def test_a_property_can_be_hashed(channel, exchange, unique, what):
    name = exchange(HASH, hash_property=what)
    queues = bound(channel, name, [unique("a"), unique("b")], ["1", "1"])
    for key in range(10):
        for who in range(20):
            value = 1_700_000_000 + who if what == "timestamp" else f"w{who}"
            channel.basic_publish(name, f"{key}", str(who).encode(), pika.BasicProperties(**{what: value}))
    found = [drained(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 200
    assert not set(found[0]) & set(found[1])


@rule("RabbitMQ: exchanges#consistent-hash", "Messages without the header are alike: they all go to one queue.")
def test_without_the_header_all_are_alike(channel, exchange, unique):
    name = exchange(HASH, hash_header="who")
    queues = bound(channel, name, [unique("a"), unique("b")], ["1", "1"])
    for key in range(20):
        channel.basic_publish(name, f"key.{key}", b"x")
    assert sorted(depth(channel, queue) for queue in queues) == [0, 20]


@rule(
    "RabbitMQ: exchanges#consistent-hash",
    "Other properties cannot be hashed, nor a header and a property at once.",
)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"hash-property": "content_type"}, "Unsupported property: content_type"),
        (
            {"hash-property": "message_id", "hash-header": "who"},
            "hash-header and hash-property are mutually exclusive",
        ),
    ],
    ids=["property", "both"],
)
def test_what_cannot_be_hashed(channel, unique, arguments, told):
    with refused(f"PRECONDITION_FAILED - {told}"):
        channel.exchange_declare(unique("ex"), HASH, arguments=arguments)


@rule("RabbitMQ: exchanges#consistent-hash", "Without bindings a message is unroutable.")
@pytest.mark.parametrize("kind", [HASH, MODULUS, RANDOM, HISTORY])
def test_without_bindings_a_message_is_unroutable(channel, exchange, kind):
    name = exchange(kind)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "k", b"x", mandatory=True)


@rule("RabbitMQ: exchanges#consistent-hash", "A queue that is unbound gets nothing more; the others get all.")
@pytest.mark.parametrize("kind", [HASH, MODULUS, RANDOM])
def test_an_unbound_queue_gets_nothing(channel, exchange, unique, kind):
    name = exchange(kind)
    queues = bound(channel, name, [unique("a"), unique("b")], ["1", "1"])
    channel.queue_unbind(queues[0], name, "1")
    for key in range(30):
        channel.basic_publish(name, f"key.{key}", b"x")
    assert [depth(channel, queue) for queue in queues] == [0, 30]


@rule(
    "RabbitMQ: exchanges#modulus-hash",
    "Each message goes to one queue, whatever the binding keys; each key to its own.",
)
def test_modulus_hash(channel, exchange, unique):
    name = exchange(MODULUS)
    queues = bound(channel, name, [unique(f"q{number}") for number in range(3)], ["", "any", "key"])
    for _ in range(2):
        for key in range(100):
            channel.basic_publish(name, f"key.{key}", str(key).encode())
    found = [drained(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 200
    assert all(len(got) > 20 for got in found)
    for got in found:
        assert all(got.count(body) == 2 for body in got)


@rule("RabbitMQ: exchanges#random", "Each message goes to one queue, drawn again each time; keys do not matter.")
def test_random(channel, exchange, unique):
    name = exchange(RANDOM)
    queues = bound(channel, name, [unique(f"q{number}") for number in range(2)], ["a", "b"])
    for _ in range(200):
        channel.basic_publish(name, "c", b"x")
    counts = [depth(channel, queue) for queue in queues]
    assert sum(counts) == 200
    assert min(counts) > 50


@rule(
    "RabbitMQ: local-random-exchange",
    "Each message goes to one of the node's queues, drawn again each time; its routing key does not matter.",
)
@differs(on="rabbitmq<4", why=NOT_IN_3)
def test_local_random(channel, exchange, unique):
    name = exchange(LOCAL)
    names = [unique(f"q{number}") for number in range(2)]
    queues = bound(channel, name, names, ["", ""], **{"x-queue-type": "classic"})
    for number in range(200):
        channel.basic_publish(name, f"{number}", b"x")
    counts = [depth(channel, queue) for queue in queues]
    assert sum(counts) == 200
    assert min(counts) > 50


@rule("RabbitMQ: local-random-exchange", "Classic queues are bound, with an empty key, and no exchanges.")
@differs(on="rabbitmq<4", why=NOT_IN_3)
@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        ("classic", "k", "Non empty binding 'k' key not permitted"),
        ("quorum", "", "Queue type rabbit_quorum_queue not valid for this exchange type"),
        ("exchange", "", "Destination not found"),
    ],
)
def test_what_a_local_random_exchange_takes(connection, exchange, unique, kind, key, told):
    name = exchange(LOCAL)
    asking = connection.channel()
    if kind == "exchange":
        asking.exchange_declare(unique("end"), "fanout", auto_delete=True)
        with refused(f"PRECONDITION_FAILED - {told}"):
            asking.exchange_bind(unique("end"), name, key)
    else:
        asking.queue_declare(unique("end"), durable=True, arguments={"x-queue-type": kind})
        with refused(f"PRECONDITION_FAILED - {told}"):
            asking.queue_bind(unique("end"), name, key)


@rule("RabbitMQ: local-random-exchange", "Without a queue that is bound, a message is unroutable.")
@differs(on="rabbitmq<4", why=NOT_IN_3)
def test_local_random_without_bindings(channel, exchange):
    name = exchange(LOCAL)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "k", b"x", mandatory=True)


@rule(
    "RabbitMQ: exchanges#recent-history",
    "A queue that is bound gets the last 20 messages, oldest first, then the new ones.",
)
def test_recent_history(channel, exchange, unique):
    name = exchange(HISTORY)
    for number in range(25):
        channel.basic_publish(name, f"key.{number}", str(number).encode())
    bound(channel, name, [unique("q")], [""])
    channel.basic_publish(name, "new", b"25")
    got = [take(channel, unique("q")) for _ in range(21)]
    assert [message.body for message in got] == [str(number).encode() for number in range(5, 26)]
    assert got[0].method.routing_key == "key.5"
    assert got[0].method.exchange == name
    assert depth(channel, unique("q")) == 0


@rule("RabbitMQ: exchanges#recent-history", "x-recent-history-length says how many are kept.")
def test_the_length_of_a_history(channel, unique):
    channel.exchange_declare(unique("ex"), HISTORY, arguments={"x-recent-history-length": 2})
    for number in range(5):
        channel.basic_publish(unique("ex"), "k", str(number).encode())
    bound(channel, unique("ex"), [unique("q")], [""])
    assert bodies(channel, unique("q"), 2) == [b"3", b"4"]
    assert depth(channel, unique("q")) == 0


@rule("RabbitMQ: exchanges#recent-history", "The length is a positive integer.")
@pytest.mark.parametrize(("value", "printed"), [(0, "0"), (-1, "-1"), ("5", '<<"5">>')])
def test_an_invalid_length_is_refused(channel, unique, value, printed):
    told = f"Invalid argument {printed}, 'x-recent-history-length' must be a positive integer"
    with refused(f"PRECONDITION_FAILED - {told}"):
        channel.exchange_declare(unique("ex"), HISTORY, arguments={"x-recent-history-length": value})


@rule(
    "RabbitMQ: exchanges#recent-history",
    "It routes as a fanout exchange does, and x-recent-history-no-store keeps a message out.",
)
def test_messages_that_are_not_stored(channel, exchange, unique):
    name = exchange(HISTORY)
    bound(channel, name, [unique("a"), unique("b")], ["x", "y"])
    channel.basic_publish(name, "k", b"kept")
    channel.basic_publish(name, "k", b"secret", pika.BasicProperties(headers={"x-recent-history-no-store": True}))
    bound(channel, name, [unique("late")], [""])
    assert bodies(channel, unique("a"), 2) == bodies(channel, unique("b"), 2) == [b"kept", b"secret"]
    assert drained(channel, unique("late")) == [b"kept"]


@rule("RabbitMQ: exchanges#recent-history", "An exchange that is bound gets the history too, and routes it.")
def test_an_exchange_gets_the_history(channel, exchange, unique):
    name = exchange(HISTORY)
    channel.basic_publish(name, "k", b"x")
    channel.exchange_declare(unique("next"), "fanout")
    bound(channel, unique("next"), [unique("q")], [""])
    channel.exchange_bind(unique("next"), name)
    assert take(channel, unique("q")).body == b"x"


@rule("RabbitMQ: exchanges#consistent-hash", "An exchange can be bound to these types as a queue can.")
@pytest.mark.parametrize("kind", [HASH, MODULUS, RANDOM])
def test_an_exchange_behind_the_exchange(channel, exchange, unique, kind):
    name = exchange(kind)
    channel.exchange_declare(unique("next"), "fanout")
    bound(channel, unique("next"), [unique("q")], [""])
    channel.exchange_bind(unique("next"), name, "1")
    channel.basic_publish(name, "k", b"x")
    assert take(channel, unique("q")).body == b"x"


@rule("RabbitMQ: ae", "The alternate exchange is a name, and is compared when an exchange is declared again.")
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"alternate-exchange": "a"}, {"alternate-exchange": "b"}, "received 'b' but current is 'a'"),
        ({"alternate-exchange": "a"}, {}, "received none but current is the value 'a' of type 'longstr'"),
        ({}, {"alternate-exchange": "a"}, "received the value 'a' of type 'longstr' but current is none"),
    ],
    ids=["value", "missing", "additional"],
)
def test_the_alternate_exchange_is_compared(broker, connection, unique, first, second, told):
    connection.channel().exchange_declare(unique("ex"), "direct", arguments=first)
    text = f"inequivalent arg 'alternate-exchange' for {named(broker, 'exchange', unique('ex'))}: {told}"
    with refused(f"PRECONDITION_FAILED - {text}"):
        connection.channel().exchange_declare(unique("ex"), "direct", arguments=second)


@rule("RabbitMQ: ae", "The alternate exchange is a string.")
def test_the_alternate_exchange_has_to_be_a_string(broker, channel, unique):
    where = named(broker, "exchange", unique("ex"))
    with refused(f"PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in {where}"):
        channel.exchange_declare(unique("ex"), "direct", arguments={"alternate-exchange": 5})
