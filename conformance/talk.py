"""What tests say to a raw-frame client again and again, on its channel 1.

What comes in: a `Wire` whose channel 1 is open (the fixture `client`). What goes out: answers, messages, closes.
Not here: the client itself (`tests/clients/wire.py`).
"""

from __future__ import annotations

from typing import Any

from pamqp import base, commands

from tests.clients.wire import METHOD, Message, Wire, decode_method, described, frame_bytes, publish_bytes

Basic, Queue = commands.Basic, commands.Queue


def ask(client: Wire, method: base.Frame) -> Any:
    """The answer to a method, which must be of its own kind (`declare` is answered by `declare-ok`)."""
    answer = client.call(method, channel=1)
    assert type(answer).__name__ == f"{type(method).__name__}Ok", described(answer)
    return answer


def refused(client: Wire, method: base.Frame, code: int, text: str | None = None, scope: str = "channel") -> Any:
    """The method is answered by a close of that scope, with this code and text, which says what it is about."""
    client.send(method, channel=1)
    close = client.closed(scope)
    check_close(close, code, text)
    assert (close.class_id, close.method_id) == (method.index >> 16, method.index & 0xFFFF)
    return close


def check_close(close: Any, code: int, text: str | None = None) -> None:
    assert close.reply_code == code, described(close)
    assert text in (None, close.reply_text), close.reply_text


def alive(client: Wire) -> bool:
    """Everything that was sent before has been handled, and the channel is open."""
    ask(client, Basic.Qos(prefetch_count=0))
    return True


def publish(
    client: Wire,
    exchange: str,
    routing_key: str,
    body: bytes = b"x",
    properties: commands.Basic.Properties | None = None,
    *,
    mandatory: bool = False,
) -> None:
    client.send_bytes(publish_bytes(1, exchange, routing_key, body, properties, mandatory=mandatory))


def confirmed(client: Wire, exchange: str, routing_key: str, body: bytes = b"x", **options: Any) -> None:
    """Publish, and wait until the queues have it; the channel is in confirm mode from now on."""
    ask(client, commands.Confirm.Select())
    publish(client, exchange, routing_key, body, **options)
    client.expect(Basic.Ack)


def get(client: Wire, queue: str, *, no_ack: bool = True) -> Message | None:
    """The next message of the queue, None when it is empty."""
    client.send(Basic.Get(queue=queue, no_ack=no_ack), channel=1)
    kind, _, payload = client.read_frame()
    assert kind == METHOD
    if isinstance(method := decode_method(payload), Basic.GetEmpty):
        return None
    assert isinstance(method, Basic.GetOk), described(method)
    client.buffer[:0] = frame_bytes(METHOD, payload)
    return client.read_message()[1]


def bodies(client: Wire, queue: str) -> list[bytes]:
    """All that is in the queue, taken out of it."""
    found = []
    while (message := get(client, queue)) is not None:
        found.append(message.body)
    return found


def depth(client: Wire, queue: str) -> int:
    """How many are ready. RabbitMQ answers this before publishes that are on their way: wait for their confirms."""
    return int(ask(client, Queue.Declare(queue=queue, passive=True)).message_count)


def consume(client: Wire, queue: str, tag: str = "c", **options: Any) -> str:
    """The consumer's tag, when consume-ok is the next thing that comes."""
    client.send(Basic.Consume(queue=queue, consumer_tag=tag, **options), channel=1)
    return str(client.expect(Basic.ConsumeOk).consumer_tag)


def new_queue(client: Wire, **options: Any) -> str:
    """An exclusive queue with a name from the broker, gone with the connection."""
    return str(ask(client, Queue.Declare(queue="", exclusive=True, **options)).queue)


def filled(client: Wire, count: int) -> str:
    """A new exclusive queue with messages 0, 1, 2..."""
    queue = new_queue(client)
    for number in range(count):
        publish(client, "", queue, b"%d" % number)
    return queue


def read(client: Wire, count: int) -> list[tuple[bytes, bool]]:
    """Body and redelivered of the next deliveries."""
    messages = [client.read_message()[1] for _ in range(count)]
    return [(message.body, message.method.redelivered) for message in messages]


def nothing_more(client: Wire) -> bool:
    """No delivery is on its way: the answer to the next method is the next thing that comes. (Not qos: that would
    change what is tested.)"""
    ask(client, Basic.Cancel(consumer_tag="nobody"))
    return True
