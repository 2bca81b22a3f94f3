"""What becomes of a message that no queue takes: amqpd's policy key `unroutable`, beside mandatory.

What comes in and goes out: publishes without a queue, policies; nacks, returns, messages in another exchange.
Rules: RabbitMQ has no such key: there the policy itself is refused, and only the first tests count.
Not here: mandatory in itself, alternate exchanges (`test_ext_policies.py`).
"""

from __future__ import annotations

import pika.exceptions
import pytest

from conformance.extensions import depth, take, wait_until
from conformance.rules import differs, rule

OURS = differs(on="rabbitmq", why="the policy key `unroutable` is amqpd's own")


@pytest.fixture
def channel(channel):
    channel.confirm_delivery()
    return channel


@pytest.fixture
def exchange(channel, unique):
    channel.exchange_declare(unique("ex"), "direct")
    return unique("ex")


@pytest.fixture
def policy(admin, broker, unique):
    def set_policy(value: str) -> None:
        pattern = f"^{unique('ex')}$".replace(".", "\\.")
        admin.set_policy(broker.vhost, unique("p"), pattern, {"unroutable": value}, apply_to="exchanges")

    return set_policy


def nacked(channel, exchange: str) -> bool:
    try:
        channel.basic_publish(exchange, "nobody", b"x")
    except pika.exceptions.NackError:
        return True
    return False


@rule("RabbitMQ: publishers#unroutable", "Without a policy an unroutable message is confirmed and dropped.")
def test_an_unroutable_message_is_dropped(channel, exchange):
    assert not nacked(channel, exchange)


@rule("RabbitMQ: publishers#unroutable", "unroutable nack: the publisher is told with basic.nack.")
@OURS
def test_unroutable_nack(channel, exchange, policy, unique):
    policy("nack")
    wait_until(lambda: nacked(channel, exchange))
    channel.queue_declare(unique("q"), exclusive=True)
    channel.queue_bind(unique("q"), exchange, "k")
    channel.basic_publish(exchange, "k", b"routable")
    assert take(channel, unique("q")).body == b"routable"


@rule("RabbitMQ: publishers#unroutable", "unroutable with an exchange's name: that exchange takes the message.")
@OURS
def test_unroutable_to_an_exchange(channel, exchange, policy, unique):
    channel.exchange_declare(unique("other"), "fanout")
    channel.queue_declare(unique("q"), exclusive=True)
    channel.queue_bind(unique("q"), unique("other"))
    policy(unique("other"))

    def arrived() -> bool:
        channel.basic_publish(exchange, "nobody", b"x")
        return depth(channel, unique("q")) > 0

    wait_until(arrived)
    assert take(channel, unique("q")).method.routing_key == "nobody"


@rule(
    "RabbitMQ: publishers#unroutable",
    "unroutable drop is what happens without a policy too; a change takes effect at once.",
)
@OURS
def test_unroutable_drop(channel, exchange, policy):
    policy("nack")
    wait_until(lambda: nacked(channel, exchange))
    policy("drop")
    wait_until(lambda: not nacked(channel, exchange))


@rule("RabbitMQ: publishers#unroutable", "A mandatory message is returned before the nack.")
@OURS
def test_mandatory_and_nack(channel, exchange, policy):
    policy("nack")
    wait_until(lambda: nacked(channel, exchange))
    with pytest.raises(pika.exceptions.NackError) as caught:
        channel.basic_publish(exchange, "nobody", b"x", mandatory=True)
    assert [message.method.reply_code for message in caught.value.messages] == [312]
