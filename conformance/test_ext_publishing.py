"""What publishers may add: CC and BCC, a user id; and how large a message may be.

What comes in and goes out: publishes with headers that route, properties that are checked.
Rules: a refused publish closes its channel and leaves nothing behind.
Not here: direct reply-to (`test_ext_reply_to.py`), delays (`test_ext_delay.py`).
"""

from __future__ import annotations

import pika
import pika.exceptions
import pytest

from conformance.extensions import depth, refused, take, wait_until
from conformance.rules import rule

MIB = 1024 * 1024


def copies(**headers: object) -> pika.BasicProperties:
    return pika.BasicProperties(headers=headers)


@pytest.fixture
def queues(channel, unique):
    channel.confirm_delivery()
    names = [unique(word) for word in ("a", "b", "c")]
    for name in names:
        channel.queue_declare(name, exclusive=True)
    return names


@rule("RabbitMQ: sender-selected", "CC and BCC add routing keys to the one of the publish.")
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_go_to_further_keys(channel, queues, header):
    first, second, third = queues
    channel.basic_publish("", first, b"x", copies(**{header: [second, third]}))
    assert [take(channel, name).body for name in queues] == [b"x"] * 3


@rule("RabbitMQ: sender-selected", "Every copy is delivered under the key of the publish.")
def test_copies_keep_the_routing_key(channel, queues):
    first, second, _ = queues
    channel.basic_publish("", first, b"x", copies(CC=[second]))
    assert take(channel, second).method.routing_key == first


@rule("RabbitMQ: sender-selected", "The BCC header is taken off, CC and everything else stays.")
def test_bcc_is_removed(channel, queues):
    first, second, third = queues
    channel.basic_publish("", first, b"x", copies(CC=[second], BCC=[third], mine=1))
    for name in queues:
        assert take(channel, name).headers == {"CC": [second], "mine": 1}


@rule("RabbitMQ: sender-selected", "A queue that several keys lead to gets one copy.")
def test_one_copy_for_each_queue(channel, queues):
    first, second, _ = queues
    channel.basic_publish("", first, b"x", copies(CC=[first, second, second], BCC=[second, first]))
    assert (depth(channel, first), depth(channel, second)) == (1, 1)


@rule("RabbitMQ: sender-selected", "The copies of a message go through the exchange that it was published to.")
@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_copies_go_through_the_exchange(channel, queues, unique, kind):
    channel.exchange_declare(unique("ex"), kind)
    for name in queues:
        channel.queue_bind(name, unique("ex"), f"key.{name}")
    channel.basic_publish(unique("ex"), f"key.{queues[0]}", b"x", copies(CC=[f"key.{queues[1]}"], BCC=[queues[2]]))
    assert [depth(channel, name) for name in queues] == [1, 1, 0]


@rule("RabbitMQ: sender-selected", "A message that only its copies find a queue for is not unroutable.")
def test_copies_make_a_message_routable(channel, queues):
    channel.basic_publish("", "nobody.has.this.name", b"x", copies(BCC=[queues[0]]), mandatory=True)
    assert take(channel, queues[0]).body == b"x"
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nobody.has.this.name", b"x", copies(BCC=["nor.this"]), mandatory=True)


@rule("RabbitMQ: sender-selected", "CC and BCC are arrays.")
@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize(("value", "kind"), [("key", "longstr"), (5, "signedint"), ({"a": "b"}, "table")])
def test_copies_have_to_be_arrays(connection, channel, queues, name, value, kind):
    publishing = connection.channel()
    told = f'{{unacceptable_type_in_header,"{name}",{kind}}}'
    with refused(f"PRECONDITION_FAILED - invalid message: {told}"):
        publishing.basic_publish("", queues[0], b"x", copies(**{name: value}))
        publishing.queue_declare(queues[0], passive=True)
    assert depth(channel, queues[0]) == 0


@rule("RabbitMQ: sender-selected", "What is no string in such an array routes nowhere and harms nothing.")
def test_other_values_among_the_copies(channel, queues):
    channel.basic_publish("", queues[0], b"x", copies(CC=[queues[1], 5, True]))
    assert [depth(channel, name) for name in queues] == [1, 1, 0]


@rule("RabbitMQ: sender-selected", "The names of the headers are in capitals; others are just headers.")
def test_lower_case_is_no_copy(channel, queues):
    channel.basic_publish("", queues[0], b"x", copies(cc=[queues[1]], Bcc=[queues[2]]))
    assert take(channel, queues[0]).headers == {"cc": [queues[1]], "Bcc": [queues[2]]}
    assert [depth(channel, name) for name in queues] == [0, 0, 0]


@rule("RabbitMQ: validated-user-id", "user_id must be the name of the connection's user.")
def test_another_user_id_is_refused(broker, connection, queues):
    publishing = connection.channel()
    told = f"user_id property set to 'somebody' but authenticated user was '{broker.user}'"
    with refused(f"PRECONDITION_FAILED - {told}"):
        publishing.basic_publish("", queues[0], b"x", pika.BasicProperties(user_id="somebody"))
        publishing.queue_declare(queues[0], passive=True)


@rule("RabbitMQ: validated-user-id", "The own name as user_id is accepted and delivered; none is added.")
def test_the_own_user_id_is_delivered(broker, channel, queues):
    channel.basic_publish("", queues[0], b"x", pika.BasicProperties(user_id=broker.user))
    channel.basic_publish("", queues[0], b"y", pika.BasicProperties())
    assert take(channel, queues[0]).properties.user_id == broker.user
    assert take(channel, queues[0]).properties.user_id is None


@rule("RabbitMQ: validated-user-id", "A user with the tag impersonator may give any user_id.")
def test_an_impersonator_may_give_any_name(broker, admin, connect, channel, queues, unique):
    admin.add_user(unique("user"), "secret", tags=["impersonator"])
    admin.set_permissions(broker.vhost, unique("user"), ".*", ".*", ".*")
    other = connect(credentials=pika.PlainCredentials(unique("user"), "secret")).channel()
    other.confirm_delivery()
    channel.queue_declare(unique("shared"), durable=True)
    other.basic_publish("", unique("shared"), b"x", pika.BasicProperties(user_id="somebody"))
    assert take(channel, unique("shared")).properties.user_id == "somebody"


@rule("RabbitMQ: validated-user-id", "A user_id that is refused in a transaction is refused at the publish.")
def test_user_id_in_a_transaction(broker, connection, queues):
    publishing = connection.channel()
    publishing.tx_select()
    told = f"user_id property set to 'somebody' but authenticated user was '{broker.user}'"
    with refused(f"PRECONDITION_FAILED - {told}"):
        publishing.basic_publish("", queues[0], b"x", pika.BasicProperties(user_id="somebody"))
        publishing.queue_declare(queues[0], passive=True)


@rule("RabbitMQ: limits", "A message of one megabyte is no problem, empty ones neither.")
@pytest.mark.parametrize("size", [0, 1, MIB])
def test_message_sizes(channel, queues, size):
    body = b"A" * size
    channel.basic_publish("", queues[0], body)
    assert take(channel, queues[0]).body == body


@rule("RabbitMQ: limits", "A message beyond the maximum size closes its channel with 406; the text has both sizes.")
def test_a_message_beyond_the_maximum(broker, connection, queues):
    largest = 16 * MIB if broker.is_("rabbitmq>=4") else 128 * MIB
    publishing = connection.channel()
    told = f"message size {largest + 1} is larger than configured max size {largest}"
    with refused(f"PRECONDITION_FAILED - {told}"):
        publishing.basic_publish("", queues[0], bytes(largest + 1))
        publishing.queue_declare(queues[0], passive=True)
    assert depth(connection.channel(), queues[0]) == 0


@rule("AMQP 0-9-1 section 4.2.6", "A publish that is refused leaves the other channels of the connection alone.")
def test_a_refusal_closes_one_channel(connection, channel, queues):
    publishing = connection.channel()
    publishing.basic_publish("", queues[0], b"x", pika.BasicProperties(expiration="never"))
    wait_until(lambda: connection.process_data_events(0.01) is None and publishing.is_closed)
    channel.basic_publish("", queues[0], b"fine")
    assert take(channel, queues[0]).body == b"fine"
