from __future__ import annotations

from pamqp import commands

from tests.core.harness import Harness, Message


def test_publish_consume_ack() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=True)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(b"one", delivery_mode=2)
    assert client.expect(commands.Basic.Ack).delivery_tag == 1
    client.consume("q")
    message = client.expect(Message)
    assert message.body == b"one"
    client.send(commands.Basic.Ack(delivery_tag=message.tag))
    assert client.declare("q", durable=True).message_count == 0
    assert not harness.bugs
