"""Dead letters: why a message dies, and what its headers say afterwards, to the dead letter.

What comes in and goes out: one death each; the message as it arrives behind the dead letter exchange.
Rules: entries are compared whole; `time` apart, everything in them is exact.
Not here: several deaths (`test_ext_dead_letter_paths.py`); when a message expires (`test_ext_ttl.py`).
"""

from __future__ import annotations

import datetime
import time
from typing import Any, NamedTuple

import pika
import pika.compat
import pytest

from conformance.extensions import Got, depth, take, wait_until
from conformance.rules import differs, rule

NOT_IN_3 = "x-last-death-* came with RabbitMQ 4"


class DeadLetters(NamedTuple):
    channel: Any
    exchange: str
    source: str
    dlx: str
    dead: str

    def publish(self, key: str, body: bytes = b"x", **properties: Any) -> None:
        self.channel.basic_publish(self.exchange, key, body, pika.BasicProperties(**properties))

    def reject(self) -> None:
        self.channel.basic_reject(take(self.channel, self.source, auto_ack=False).method.delivery_tag, requeue=False)

    def take(self) -> Got:
        return take(self.channel, self.dead)

    def entry(self, reason: str, *keys: str, **more: str) -> dict[str, Any]:
        """What x-death says of one death in the source queue."""
        said = {"count": 1, "reason": reason, "queue": self.source, "exchange": self.exchange}
        return {**said, "routing-keys": list(keys), **more}


@pytest.fixture
def dead_letters(channel, unique):
    """Makes a source queue behind a topic exchange, and a dead queue behind a fanout dead letter exchange."""

    def make(*, quorum: bool = False, **arguments: object) -> DeadLetters:
        made = DeadLetters(channel, unique("ex"), unique("source"), unique("dlx"), unique("dead"))
        channel.exchange_declare(made.exchange, "topic", auto_delete=True)
        channel.exchange_declare(made.dlx, "fanout", auto_delete=True)
        kind = {"durable": True} if quorum else {"exclusive": True}
        given = {"x-dead-letter-exchange": made.dlx, **arguments, **({"x-queue-type": "quorum"} if quorum else {})}
        channel.queue_declare(made.source, arguments=given, **kind)
        channel.queue_bind(made.source, made.exchange, "#")
        channel.queue_declare(made.dead, exclusive=True)
        channel.queue_bind(made.dead, made.dlx)
        return made

    return make


def timeless(deaths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in deaths]


def first_death(dead_letters: DeadLetters, reason: str) -> dict[str, str]:
    where = {"x-first-death-queue": dead_letters.source, "x-first-death-exchange": dead_letters.exchange}
    return {**where, "x-first-death-reason": reason}


def first_of(got: Got) -> dict[str, Any]:
    return {key: value for key, value in got.headers.items() if key.startswith("x-first-death")}


@rule("RabbitMQ: dlx", "A message that is rejected without requeue is dead-lettered with reason rejected.")
@pytest.mark.parametrize("how", ["reject", "nack"])
def test_a_rejected_message(dead_letters, how):
    box = dead_letters()
    box.publish("k.1")
    tag = take(box.channel, box.source, auto_ack=False).method.delivery_tag
    getattr(box.channel, f"basic_{how}")(tag, requeue=False)
    got = box.take()
    assert timeless(got.deaths) == [box.entry("rejected", "k.1")]
    assert first_of(got) == first_death(box, "rejected")


@rule("RabbitMQ: dlx", "nack with multiple dead-letters all of them, in their order.")
def test_nack_multiple_dead_letters_all(dead_letters):
    box = dead_letters()
    for number in range(5):
        box.publish("k", str(number).encode())
    tags = [take(box.channel, box.source, auto_ack=False).method.delivery_tag for _ in range(5)]
    box.channel.basic_nack(tags[-1], multiple=True, requeue=False)
    assert [box.take().body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


@rule(
    "RabbitMQ: dlx",
    "A message that expires by its queue's time to live has reason expired and no original-expiration.",
)
def test_a_message_expired_by_the_queue(dead_letters):
    box = dead_letters(**{"x-message-ttl": 20})
    box.publish("k.1")
    got = box.take()
    assert timeless(got.deaths) == [box.entry("expired", "k.1")]
    assert first_of(got) == first_death(box, "expired")


@rule("RabbitMQ: dlx", "A message that expires by its own expiration loses it, and the entry keeps it.")
def test_a_message_expired_by_itself(dead_letters):
    box = dead_letters()
    box.publish("k.1", expiration="20")
    got = box.take()
    assert timeless(got.deaths) == [box.entry("expired", "k.1", **{"original-expiration": "20"})]
    assert got.properties.expiration is None


@rule(
    "RabbitMQ: dlx",
    "The expiration is taken off at any death, or the message could expire again behind the exchange.",
)
def test_a_rejected_message_loses_its_expiration(dead_letters):
    box = dead_letters()
    box.publish("k.1", expiration="600000")
    box.reject()
    got = box.take()
    assert timeless(got.deaths) == [box.entry("rejected", "k.1", **{"original-expiration": "600000"})]
    assert got.properties.expiration is None


@rule("RabbitMQ: dlx", "What a length limit drops at the head has reason maxlen.")
@pytest.mark.parametrize("arguments", [{"x-max-length": 1}, {"x-max-length-bytes": 9}], ids=["count", "bytes"])
def test_a_message_dropped_by_length(dead_letters, arguments):
    box = dead_letters(**arguments)
    box.publish("k.1", b"first")
    box.publish("k.2", b"second")
    got = box.take()
    assert (got.body, timeless(got.deaths)) == (b"first", [box.entry("maxlen", "k.1")])
    assert first_of(got) == first_death(box, "maxlen")
    assert take(box.channel, box.source).body == b"second"


@rule("RabbitMQ: maxlength", "reject-publish-dlx dead-letters the message that finds no space, with reason maxlen.")
def test_a_message_refused_by_length(dead_letters):
    box = dead_letters(**{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    box.publish("k.1", b"first")
    box.publish("k.2", b"second")
    got = box.take()
    assert (got.body, timeless(got.deaths)) == (b"second", [box.entry("maxlen", "k.2")])
    assert take(box.channel, box.source).body == b"first"


@rule("RabbitMQ: quorum-queues", "A message that was returned too often has reason delivery_limit.")
def test_a_message_beyond_the_delivery_limit(dead_letters):
    box = dead_letters(quorum=True, **{"x-delivery-limit": 2})
    box.publish("k.1", expiration="600000")
    for _ in range(3):
        box.channel.basic_reject(take(box.channel, box.source, auto_ack=False).method.delivery_tag, requeue=True)
    got = box.take()
    assert timeless(got.deaths) == [box.entry("delivery_limit", "k.1", **{"original-expiration": "600000"})]
    assert first_of(got) == first_death(box, "delivery_limit")


@rule("RabbitMQ: quorum-queues", "A quorum queue writes the same x-death as a classic one.")
def test_a_quorum_queue_dead_letters(dead_letters):
    box = dead_letters(quorum=True)
    box.publish("k.1", headers={"CC": ["c"]})
    box.reject()
    got = box.take()
    assert timeless(got.deaths) == [box.entry("rejected", "k.1", "c")]
    assert first_of(got) == first_death(box, "rejected")


@rule("RabbitMQ: dlx", "The last death is told beside the first.")
@differs(on="rabbitmq<4", why=NOT_IN_3)
def test_the_last_death_is_told(dead_letters):
    box = dead_letters()
    box.publish("k.1")
    box.reject()
    last = {key: value for key, value in box.take().headers.items() if key.startswith("x-last-death")}
    where = {"x-last-death-queue": box.source, "x-last-death-exchange": box.exchange}
    assert last == {**where, "x-last-death-reason": "rejected"}


@rule("RabbitMQ: dlx", "x-death is an array of tables; count is a long, time a timestamp, routing-keys an array.")
def test_the_types_of_an_entry(dead_letters):
    box = dead_letters()
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    box.publish("k.1", expiration="20")
    entry = box.take().deaths[0]
    assert type(entry["count"]) is pika.compat.long
    assert all(type(entry[key]) is str for key in ("reason", "queue", "exchange", "original-expiration"))
    assert [type(key) for key in entry["routing-keys"]] == [str]
    assert before <= entry["time"] <= datetime.datetime.now(datetime.UTC)


@rule("RabbitMQ: dlx", "A dead letter arrives from the dead letter exchange, under its old key, not as redelivered.")
def test_the_delivery_of_a_dead_letter(dead_letters):
    box = dead_letters()
    box.publish("k.1")
    box.reject()
    method = box.take().method
    assert (method.exchange, method.routing_key, method.redelivered) == (box.dlx, "k.1", False)


@rule("RabbitMQ: dlx", "x-dead-letter-routing-key replaces the key; the entry keeps the old one.")
@pytest.mark.parametrize("key", ["other", ""])
def test_a_dead_letter_routing_key(dead_letters, key):
    box = dead_letters(**{"x-dead-letter-routing-key": key})
    box.publish("k.1")
    box.reject()
    got = box.take()
    assert got.method.routing_key == key
    assert timeless(got.deaths) == [box.entry("rejected", "k.1")]


@rule("RabbitMQ: dlx", "Properties, own headers and the body survive a death.")
def test_everything_else_survives(dead_letters):
    box = dead_letters()
    given = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": None,
        "app_id": "a",
        "cluster_id": "z",
    }
    box.publish("k.1", b"body", headers={"mine": 1, "yours": "2"}, **given)
    box.reject()
    got = box.take()
    assert {name: getattr(got.properties, name) for name in given} == given
    assert got.body == b"body"
    assert (got.headers["mine"], got.headers["yours"]) == (1, "2")


@rule("RabbitMQ: dlx", "CC keys are in the entry, BCC keys are not; the CC header stays when the key stays.")
def test_cc_and_bcc_in_the_entry(dead_letters):
    box = dead_letters()
    box.publish("k.1", headers={"CC": ["c.1", "c.2"], "BCC": ["b.1"]})
    box.reject()
    got = box.take()
    assert timeless(got.deaths) == [box.entry("rejected", "k.1", "c.1", "c.2")]
    assert got.headers["CC"] == ["c.1", "c.2"]
    assert "BCC" not in got.headers


@rule("RabbitMQ: dlx", "A new routing key takes the CC header away.")
def test_a_new_key_removes_cc(dead_letters):
    box = dead_letters(**{"x-dead-letter-routing-key": "other"})
    box.publish("k.1", headers={"CC": ["c.1"], "mine": 1})
    box.reject()
    got = box.take()
    assert "CC" not in got.headers
    assert got.headers["mine"] == 1
    assert timeless(got.deaths) == [box.entry("rejected", "k.1", "c.1")]


@rule("RabbitMQ: dlx", "A message that came by the default exchange has the empty exchange in its entry.")
def test_the_default_exchange_in_the_entry(dead_letters):
    box = dead_letters()
    box.channel.basic_publish("", box.source, b"x")
    box.reject()
    got = box.take()
    assert timeless(got.deaths) == [{**box.entry("rejected", box.source), "exchange": ""}]
    assert got.headers["x-first-death-exchange"] == ""


@rule("RabbitMQ: dlx", "Requeueing, purging, deleting and acknowledging dead-letter nothing.")
def test_what_is_no_death(dead_letters):
    box = dead_letters()
    for body in (b"acked", b"requeued", b"purged"):
        box.publish("k", body)
    box.channel.basic_ack(take(box.channel, box.source, auto_ack=False).method.delivery_tag)
    box.channel.basic_reject(take(box.channel, box.source, auto_ack=False).method.delivery_tag, requeue=True)
    wait_until(lambda: depth(box.channel, box.source) == 2)
    box.channel.queue_purge(box.source)
    box.publish("k", b"marker")
    box.reject()
    box.publish("k", b"deleted")
    box.channel.queue_delete(box.source)
    assert box.take().body == b"marker"
    assert depth(box.channel, box.dead) == 0


@rule("RabbitMQ: dlx", "Closing a channel requeues what it held, it does not dead-letter.")
def test_closing_a_channel_is_no_death(dead_letters, connection):
    box = dead_letters()
    box.publish("k", b"held")
    other = connection.channel()
    take(other, box.source, auto_ack=False)
    other.close()
    got = take(box.channel, box.source)
    assert (got.body, got.method.redelivered) == (b"held", True)
    assert depth(box.channel, box.dead) == 0


@rule("RabbitMQ: dlx", "A message that is dead-lettered keeps its time in seconds of the first such death.")
def test_the_time_is_that_of_the_first_death(dead_letters):
    box = dead_letters()
    box.channel.queue_bind(box.source, box.dlx)  # what dies comes back, and into the dead queue as well
    box.publish("k")
    box.reject()
    first = box.take().deaths[0]["time"]
    time.sleep(1.1)  # the header has whole seconds
    box.reject()
    again = box.take().deaths[0]
    assert (again["count"], again["time"]) == (2, first)
