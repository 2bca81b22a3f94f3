"""The ways of dead letters: several deaths, circles, exchanges that are missing, keys that fan out.

What comes in and goes out: queues that are each other's dead letter targets; x-death after several deaths.
Rules: that a message does not come is shown by a later one that took the same way and came.
Not here: the header of one death (`test_ext_dead_letter.py`).
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import Reader, bodies, depth, take
from conformance.rules import differs, rule

TTL = {"x-message-ttl": 20}


def to(exchange: str, key: str | None = None) -> dict[str, str]:
    routes = {"x-dead-letter-exchange": exchange}
    return routes if key is None else {**routes, "x-dead-letter-routing-key": key}


def reject(channel, queue: str):
    got = take(channel, queue, auto_ack=False)
    channel.basic_reject(got.method.delivery_tag, requeue=False)
    return got


def told(deaths: list[dict]) -> list[tuple]:
    return [(entry["queue"], entry["reason"], entry["count"]) for entry in deaths]


@rule("RabbitMQ: dlx", "Several deaths: the newest entry stands first, x-first-death-* stays that of the first.")
def test_two_hops(channel, unique):
    first, second, last = unique("1"), unique("2"), unique("3")
    channel.queue_declare(first, exclusive=True, arguments=to("", second))
    channel.queue_declare(second, exclusive=True, arguments={**TTL, **to("", last)})
    channel.queue_declare(last, exclusive=True)
    channel.basic_publish("", first, b"x", pika.BasicProperties(expiration="600000"))
    reject(channel, first)
    got = take(channel, last)
    assert told(got.deaths) == [(second, "expired", 1), (first, "rejected", 1)]
    assert [entry["routing-keys"] for entry in got.deaths] == [[second], [first]]
    assert [entry.get("original-expiration") for entry in got.deaths] == [None, "600000"]
    assert (got.headers["x-first-death-queue"], got.headers["x-first-death-reason"]) == (first, "rejected")


@rule("RabbitMQ: dlx", "x-last-death-* follows the last death.")
@differs(on="rabbitmq<4", why="x-last-death-* came with RabbitMQ 4")
def test_the_last_death_follows(channel, unique):
    first, second, last = unique("1"), unique("2"), unique("3")
    channel.exchange_declare(unique("ex"), "fanout", auto_delete=True)
    channel.queue_declare(first, exclusive=True, arguments=to(unique("ex")))
    channel.queue_declare(second, exclusive=True, arguments={**TTL, **to("", last)})
    channel.queue_bind(second, unique("ex"))
    channel.queue_declare(last, exclusive=True)
    channel.basic_publish("", first, b"x")
    reject(channel, first)
    headers = take(channel, last).headers
    assert [headers[f"x-last-death-{what}"] for what in ("queue", "reason", "exchange")] == [
        second,
        "expired",
        unique("ex"),
    ]
    assert [headers[f"x-first-death-{what}"] for what in ("queue", "reason", "exchange")] == [first, "rejected", ""]


@rule("RabbitMQ: dlx", "Two reasons in one queue are two entries, in the order of the deaths.")
@differs(on="rabbitmq<4", why="RabbitMQ 3 turns the older entries around at each death")
def test_two_reasons_in_one_queue(channel, unique):
    work, wait = unique("work"), unique("wait")
    channel.queue_declare(work, exclusive=True, arguments={"x-message-ttl": 200, **to("", wait)})
    channel.queue_declare(wait, exclusive=True, arguments=to("", work))
    channel.basic_publish("", work, b"x")
    reject(channel, work)
    reject(channel, wait)
    got = take(channel, wait)  # it expired in the work queue this time
    assert told(got.deaths) == [(work, "expired", 1), (wait, "rejected", 1), (work, "rejected", 1)]


@rule("RabbitMQ: dlx", "The retry pattern: each turn adds one to the counts of the same two entries.")
def test_counts_grow_in_a_retry_loop(channel, unique):
    work, wait = unique("work"), unique("wait")
    channel.queue_declare(work, exclusive=True, arguments=to("", wait))
    channel.queue_declare(wait, exclusive=True, arguments={**TTL, **to("", work)})
    channel.basic_publish("", work, b"x")
    assert reject(channel, work).deaths == []
    for turn in range(1, 4):
        got = reject(channel, work)
        assert told(got.deaths) == [(wait, "expired", turn), (work, "rejected", turn)]


@rule(
    "RabbitMQ: dlx",
    "A circle in which nobody rejects ends: the message is dropped where it would die a second time.",
)
def test_a_circle_without_rejection_ends(channel, unique):
    first, second, seen = unique("1"), unique("2"), unique("seen")
    channel.exchange_declare(unique("ex"), "fanout", auto_delete=True)
    channel.queue_declare(first, exclusive=True, arguments={**TTL, **to("", second)})
    channel.queue_declare(second, exclusive=True, arguments={**TTL, **to(unique("ex"))})
    channel.queue_declare(seen, exclusive=True)
    for queue in (first, seen):
        channel.queue_bind(queue, unique("ex"))
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", first, body)
        got = take(channel, seen)
        # One that went round again would be seen before the next one, which sets out later.
        assert (got.body, told(got.deaths)) == (body, [(second, "expired", 1), (first, "expired", 1)])


@rule("RabbitMQ: dlx", "A queue that is its own dead letter target drops what expires in it.")
def test_a_circle_of_one_queue(channel, unique):
    queue, seen = unique("q"), unique("seen")
    channel.exchange_declare(unique("ex"), "fanout", auto_delete=True)
    channel.queue_declare(queue, exclusive=True, arguments={**TTL, **to(unique("ex"))})
    channel.queue_declare(seen, exclusive=True)
    for name in (queue, seen):
        channel.queue_bind(name, unique("ex"))
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", queue, body)
        got = take(channel, seen)
        assert (got.body, told(got.deaths)) == (body, [(queue, "expired", 1)])


@rule("RabbitMQ: dlx", "A consumer that rejects keeps the circle going, in one queue too.")
def test_rejection_keeps_a_circle_of_one_queue_going(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments=to("", unique("q")))
    channel.basic_publish("", unique("q"), b"x")
    counts = [[entry["count"] for entry in reject(channel, unique("q")).deaths] for _ in range(4)]
    assert counts == [[], [1], [2], [3]]


@rule(
    "RabbitMQ: dlx",
    "While the dead letter exchange does not exist, dead letters are dropped; declared later, it gets them.",
)
def test_the_exchange_may_come_later(channel, unique):
    source, dead, dlx = unique("source"), unique("dead"), unique("dlx")
    channel.queue_declare(source, exclusive=True, arguments=to(dlx))
    channel.queue_declare(dead, exclusive=True)
    channel.basic_publish("", source, b"lost")
    reject(channel, source)
    assert depth(channel, source) == 0
    channel.exchange_declare(dlx, "fanout")
    channel.queue_bind(dead, dlx)
    channel.basic_publish("", source, b"kept")
    reject(channel, source)
    assert take(channel, dead).body == b"kept"
    channel.exchange_delete(dlx)
    channel.basic_publish("", source, b"lost again")
    reject(channel, source)
    channel.exchange_declare(dlx, "fanout")
    channel.queue_bind(dead, dlx)
    channel.basic_publish("", source, b"kept again")
    reject(channel, source)
    assert take(channel, dead).body == b"kept again"


@rule("RabbitMQ: dlx#routing", "Dead letters take all their keys along: the routing key, CC and BCC.")
@pytest.mark.parametrize(
    "header",
    [
        "CC",
        pytest.param(
            "BCC",
            marks=differs(
                on="amqpd",
                why="what BCC says is taken off at the publish and kept nowhere: nobody can come to see it, and no "
                "dead letter goes by it",
            ),
        ),
    ],
)
def test_dead_letters_take_all_their_keys(channel, unique, header):
    source, dlx = unique("source"), unique("dlx")
    channel.exchange_declare(dlx, "direct", auto_delete=True)
    channel.queue_declare(source, exclusive=True, arguments=to(dlx))
    targets = {source: unique("by.key"), "copy": unique("by.copy")}
    for key, name in targets.items():
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, dlx, key)
    channel.basic_publish("", source, b"x", pika.BasicProperties(headers={header: ["copy"]}))
    reject(channel, source)
    assert take(channel, targets[source]).body == b"x"
    # It went there, if at all, when the first one did.
    assert take(channel, targets["copy"], within_s=5).body == b"x"


@rule("RabbitMQ: dlx", "With a dead letter routing key that key alone routes.")
def test_a_dead_letter_routing_key_routes_alone(channel, unique):
    source, dlx = unique("source"), unique("dlx")
    channel.exchange_declare(dlx, "direct", auto_delete=True)
    channel.queue_declare(source, exclusive=True, arguments=to(dlx, "new"))
    for key in ("cc", "new"):
        channel.queue_declare(unique(f"by.{key}"), exclusive=True)
        channel.queue_bind(unique(f"by.{key}"), dlx, key)
    channel.basic_publish("", source, b"x", pika.BasicProperties(headers={"CC": ["cc"]}))
    reject(channel, source)
    assert take(channel, unique("by.new")).body == b"x"
    assert depth(channel, unique("by.cc")) == 0


@rule("RabbitMQ: ae", "What the dead letter exchange cannot route goes to its alternate exchange.")
def test_a_dead_letter_exchange_has_an_alternate(channel, unique):
    source, dlx, other, dead = (unique(word) for word in ("source", "dlx", "other", "dead"))
    channel.exchange_declare(other, "fanout", auto_delete=True)
    channel.exchange_declare(dlx, "direct", arguments={"alternate-exchange": other})
    channel.queue_declare(source, exclusive=True, arguments=to(dlx))
    channel.queue_declare(dead, exclusive=True)
    channel.queue_bind(dead, other)
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    assert take(channel, dead).method.exchange == dlx
    channel.exchange_delete(dlx)


@rule("RabbitMQ: dlx", "An internal exchange, which nobody can publish to, can be a dead letter exchange.")
def test_an_internal_exchange_takes_dead_letters(channel, unique):
    source, dlx, dead = (unique(word) for word in ("source", "dlx", "dead"))
    channel.exchange_declare(dlx, "fanout", internal=True)
    channel.queue_declare(source, exclusive=True, arguments=to(dlx))
    channel.queue_declare(dead, exclusive=True)
    channel.queue_bind(dead, dlx)
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    assert take(channel, dead).body == b"x"
    channel.exchange_delete(dlx)


@rule("RabbitMQ: dlx", "One death can have several targets; each copy tells the same.")
def test_a_death_fans_out(channel, unique):
    source, dlx = unique("source"), unique("dlx")
    channel.exchange_declare(dlx, "fanout", auto_delete=True)
    channel.queue_declare(source, exclusive=True, arguments=to(dlx))
    targets = [unique(f"dead.{number}") for number in range(3)]
    for target in targets:
        channel.queue_declare(target, exclusive=True)
        channel.queue_bind(target, dlx)
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    seen = [take(channel, target).headers for target in targets]
    assert seen[0] == seen[1] == seen[2]
    assert told(seen[0]["x-death"]) == [(source, "rejected", 1)]


@rule("RabbitMQ: dlx", "Dead letters keep the order in which they died.")
def test_dead_letters_keep_their_order(channel, unique):
    channel.queue_declare(unique("dead"), exclusive=True)
    arguments = {"x-max-length": 5, **to("", unique("dead"))}
    channel.queue_declare(unique("q"), exclusive=True, arguments=arguments)
    for number in range(25):
        channel.basic_publish("", unique("q"), str(number).encode())
    assert bodies(channel, unique("dead"), 20) == [str(number).encode() for number in range(20)]
    assert bodies(channel, unique("q"), 5) == [str(number).encode() for number in range(20, 25)]


@rule("RabbitMQ: dlx", "A death that a client writes into its headers is not believed.")
@differs(on="rabbitmq<4", why="RabbitMQ 3 reads the x-death of a publish, RabbitMQ 4 does not (release notes 4.0.1)")
def test_a_republished_x_death_is_ignored(channel, unique):
    source, dead = unique("source"), unique("dead")
    channel.queue_declare(source, exclusive=True, arguments=to("", dead))
    channel.queue_declare(dead, exclusive=True)
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    got = take(channel, dead)
    channel.basic_publish("", source, got.body, got.properties)
    reject(channel, source)
    again = take(channel, dead)
    assert told(again.deaths) == [(source, "rejected", 1)]


@rule(
    "RabbitMQ: dlx",
    "A message that was published with somebody's x-death is delivered with it as long as it lives.",
)
def test_a_published_x_death_is_delivered(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True)
    mine = [{"count": 5, "reason": "rejected", "queue": "elsewhere"}]
    channel.basic_publish("", unique("q"), b"x", pika.BasicProperties(headers={"x-death": mine}))
    assert take(channel, unique("q")).deaths == mine


@rule("RabbitMQ: dlx", "A publish that is dead-lettered at once is confirmed all the same.")
@pytest.mark.parametrize("arguments", [{"x-message-ttl": 0}, {"x-max-length": 0}], ids=["ttl", "length"])
def test_a_publish_that_dies_is_confirmed(channel, unique, arguments):
    channel.queue_declare(unique("dead"), exclusive=True)
    channel.queue_declare(unique("q"), exclusive=True, arguments={**arguments, **to("", unique("dead"))})
    channel.confirm_delivery()
    channel.basic_publish("", unique("q"), b"x", mandatory=True)
    assert take(channel, unique("dead")).body == b"x"


@rule("RabbitMQ: dlx", "A waiting consumer of the target gets a dead letter at once.")
def test_a_consumer_gets_dead_letters(channel, unique):
    channel.queue_declare(unique("dead"), exclusive=True)
    channel.queue_declare(unique("q"), exclusive=True, arguments=to("", unique("dead")))
    reader = Reader(channel, unique("dead"), auto_ack=True)
    channel.basic_publish("", unique("q"), b"x")
    reject(channel, unique("q"))
    assert told(reader.wait(1)[0].deaths) == [(unique("q"), "rejected", 1)]


@rule("RabbitMQ: quorum-queues", "At-least-once dead lettering delivers, with the same headers.")
def test_at_least_once(channel, unique):
    source, dead = unique("source"), unique("dead")
    channel.queue_declare(dead, durable=True)
    strategy = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-queue-type": "quorum"}
    channel.queue_declare(source, durable=True, arguments={**strategy, **to("", dead)})
    sent = [str(number).encode() for number in range(10)]
    for body in sent:
        channel.basic_publish("", source, body, pika.BasicProperties(delivery_mode=2))
    for _ in sent:
        reject(channel, source)
    got = [take(channel, dead) for _ in sent]
    assert [dead_letter.body for dead_letter in got] == sent
    assert told(got[0].deaths) == [(source, "rejected", 1)]


@pytest.fixture
def at_least_once(broker, channel, unique):
    """A source queue that dead-letters at least once, to the default exchange with this key."""
    if broker.name == "rabbitmq" and broker.process is None:
        pytest.skip("RabbitMQ tries again after three minutes, unless it is configured otherwise")

    def declare(exchange: str, key: str) -> str:
        strategy = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        arguments = {"x-queue-type": "quorum", **strategy, **to(exchange, key)}
        channel.queue_declare(unique("source"), durable=True, arguments=arguments)
        return unique("source")

    return declare


@rule("RabbitMQ: quorum-queues#dead-lettering", "At-least-once: what cannot be routed waits until it can.")
def test_at_least_once_waits_for_a_route(channel, unique, at_least_once):
    source = at_least_once("", unique("dead"))
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    channel.queue_declare(unique("dead"), durable=True)
    got = take(channel, unique("dead"))
    assert (got.body, told(got.deaths)) == (b"x", [(source, "rejected", 1)])


@rule("RabbitMQ: quorum-queues#dead-lettering", "At-least-once: a missing dead letter exchange is waited for.")
def test_at_least_once_waits_for_its_exchange(channel, unique, at_least_once):
    source = at_least_once(unique("dlx"), "k")
    channel.basic_publish("", source, b"x")
    reject(channel, source)
    channel.queue_declare(unique("dead"), durable=True)
    channel.exchange_declare(unique("dlx"), "direct")
    channel.queue_bind(unique("dead"), unique("dlx"), "k")
    assert take(channel, unique("dead")).body == b"x"


@rule(
    "RabbitMQ: quorum-queues#dead-lettering",
    "At-least-once: a target that refuses is tried until it takes the message.",
)
def test_at_least_once_waits_for_room(channel, unique, at_least_once):
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(unique("dead"), durable=True, arguments=full)
    channel.basic_publish("", unique("dead"), b"in the way")
    source = at_least_once("", unique("dead"))
    for body in (b"1", b"2"):
        channel.basic_publish("", source, body)
        reject(channel, source)
    assert take(channel, unique("dead")).body == b"in the way"
    assert set(bodies(channel, unique("dead"), 2)) == {b"1", b"2"}  # what is tried again may be overtaken


@rule(
    "RabbitMQ: dlx", "Whatever its fate, each message is accounted for: acknowledged, or dead with the right reason."
)
def test_every_message_has_one_fate(channel, unique):
    source, dead, count = unique("source"), unique("dead"), 300
    channel.queue_declare(dead, exclusive=True)
    channel.queue_declare(source, exclusive=True, arguments={"x-message-ttl": 4000, **to("", dead)})
    for number in range(count):
        channel.basic_publish("", source, str(number).encode())
    fates: dict[str, set[bytes]] = {"acked": set(), "rejected": set(), "expired": set()}
    for number in range(2 * count // 3):
        got = take(channel, source, auto_ack=False)
        if number % 2:
            channel.basic_ack(got.method.delivery_tag)
            fates["acked"].add(got.body)
        else:
            channel.basic_reject(got.method.delivery_tag, requeue=False)
    for _ in range(count - len(fates["acked"])):
        got = take(channel, dead)
        assert [entry["count"] for entry in got.deaths] == [1]
        fates[got.deaths[0]["reason"]].add(got.body)
    assert {fate: len(found) for fate, found in fates.items()} == {"acked": 100, "rejected": 100, "expired": 100}
    assert set().union(*fates.values()) == {str(number).encode() for number in range(count)}
