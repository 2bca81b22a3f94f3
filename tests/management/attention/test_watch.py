"""The watch over a node's queues and exchanges: what it finds, for how long, for whom; and that idle queues cost
nothing.

Not verified here: sentences (`test_needs.py`), other nodes (`tests/admin/test_attention.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.management.attention.facts import (
    BLOCKED,
    BROKEN,
    DAMAGED,
    DEAD_LETTERS,
    EACH_MAX,
    JOURNAL,
    MORE,
    NO_CONSUMERS,
    PREFETCH,
    REFUSING,
    UNROUTABLE,
    Fact,
)
from amqpd.management.attention.watch import FORGET_MS, PATIENCE_MS, AttentionWatch
from amqpd.management.figures.queue_facts import queue_facts
from amqpd.management.figures.totals import queue_of
from amqpd.queues.damage import QueueDamage
from amqpd.queues.facts import SAMPLE_MS
from tests.harness.harness import Client, Harness

pytestmark = pytest.mark.trio

NOBODY = 1 << 40


class Watched:
    """A node, and the watch that looks at it as the sampler does."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.node = self.harness.node
        self.node.now_ms = 1_000_000
        self.watch = AttentionWatch(self.node, lambda: self.node.now_ms)
        self.client: Client = self.harness.client()

    async def rest(self, ms: int = PATIENCE_MS + 5_000) -> None:
        """The clock goes on, and the sampler looks each five seconds."""
        for _ in range(0, ms, 5_000):
            self.node.now_ms += 5_000
            for dispatched in list(self.node.active):
                queue = queue_of(self.node, dispatched)
                assert queue is not None
                queue.facts.sample(self.node.now_ms)
                self.watch.look(queue)
                if not queue.is_served or queue.facts.settled:
                    del self.node.active[queue]
            await self.watch.look_around()

    async def facts(self, user: str | None = None) -> list[Fact]:
        return await self.watch.facts(user, lambda vhost: True)

    async def found(self) -> dict[str, dict[str, float]]:
        """By kind and name."""
        return {f"{fact.kind} {fact.name}": fact.numbers for fact in await self.facts()}

    def conditions(self, name: str) -> list[str]:
        found: list[str] = queue_facts(self.node.queues["/", name], self.node.now_ms)["attention"]
        return found


def full(name: str, **more: Any) -> dict[str, Any]:
    return {"queue": name, "arguments": {"x-max-length": 2, "x-overflow": "reject-publish", **more}}


async def test_queues_that_stop_are_told_though_nothing_happens_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrub finds damage in idle queues."""
    at = Watched()
    for name in ("hurt", "odd", "well"):
        at.client.declare(name)
    await at.rest()
    damage = QueueDamage(10, 12, "they do not fit their checksum", 3, 1, False)
    hurt = at.node.queues["/", "hurt"]
    monkeypatch.setattr(type(hurt), "damage_summary", property(lambda queue: damage if queue is hurt else None))
    at.node.queues["/", "odd"].quarantine("KeyError: 1")
    assert await at.found() == {f"{DAMAGED} hurt": {"first": 10, "last": 12, "messages": 3}, f"{BROKEN} odd": {}}


async def test_a_backlog_of_which_nobody_takes_anything() -> None:
    at = Watched()
    at.client.declare("q")
    at.client.publish(b"x", "q")
    await at.rest(5_000)
    assert await at.found() == {}, "a consumer may come"
    await at.rest()
    assert await at.found() == {f"{NO_CONSUMERS} q": {"ready": 1, "oldest_s": 20}}
    assert at.conditions("q") == ["no consumers"]
    await at.rest(3_600_000)
    assert at.node.active == {}
    assert (await at.found())[f"{NO_CONSUMERS} q"]["oldest_s"] == 3_620
    at.client.consume("q")
    assert (await at.found(), at.conditions("q")) == ({}, [])


async def test_who_takes_messages_one_by_one_is_a_consumer() -> None:
    at = Watched()
    at.client.declare("q")
    for _ in range(3):
        at.client.publish(b"x", "q")
    await at.rest(5_000)
    for _ in range(2):
        at.client.send(commands.Basic.Get(queue="q", no_ack=True))
        await at.rest(5_000)
        assert (await at.found(), at.conditions("q")) == ({}, [])
    await at.rest()
    assert [fact.kind for fact in await at.facts()] == [NO_CONSUMERS]


async def test_consumers_that_acknowledge_nothing() -> None:
    at = Watched()
    at.client.declare("q")
    at.client.call(commands.Basic.Qos(0, 2, False), commands.Basic.QosOk)
    at.client.consume("q")
    for _ in range(10):
        at.client.publish(b"x", "q")
    await at.rest()
    assert await at.found() == {f"{PREFETCH} q": {"ready": 8, "consumers": 1, "unacked": 2, "idle_s": 10}}
    assert at.conditions("q") == ["at prefetch"]
    at.client.send(commands.Basic.Ack(1))
    await at.rest(5_000)
    assert (await at.found(), at.conditions("q")) == ({}, []), "it works, though it has all that it may have"
    at.client.send(commands.Basic.Ack(0, multiple=True))
    await at.rest()
    assert [fact.kind for fact in await at.facts()] == [PREFETCH]
    other = at.harness.client()
    other.consume("q")
    assert (await at.found(), at.conditions("q")) == ({}, []), "another one takes the rest"


async def test_all_is_well_where_consumers_wait() -> None:
    at = Watched()
    at.client.declare("q")
    at.client.call(commands.Basic.Qos(0, 1, False), commands.Basic.QosOk)
    at.client.consume("q")
    at.client.publish(b"x", "q")
    await at.rest()
    assert (await at.found(), at.conditions("q")) == ({}, [])


async def test_a_full_queue_that_refuses() -> None:
    at = Watched()
    at.client.declare(**full("q"))
    for _ in range(5):
        at.client.publish(b"x", "q")
    await at.rest(5_000)
    assert await at.found() == {f"{REFUSING} q": {"refused": 3, "last_s": 0, "consumers": 0, "max_length": 2}}
    assert at.conditions("q") == ["no consumers", "refusing"]
    await at.rest(3 * SAMPLE_MS)
    assert "refusing" not in at.conditions("q"), "it did, and does not now"
    found = await at.found()
    assert (found[f"{REFUSING} q"]["last_s"], len(found)) == (15, 1), "that nobody consumes is said with it"
    await at.rest(600_000)
    assert f"{REFUSING} q" not in await at.found()


async def test_dead_letters_that_come() -> None:
    at = Watched()
    at.client.declare("parked")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "parked"}
    at.client.declare(**full("q", **dead, **{"x-overflow": "drop-head"}))
    for _ in range(5):
        at.client.publish(b"x", "q")
    await at.rest(5_000)
    found = await at.found()
    assert found[f"{DEAD_LETTERS} parked"] == {"came": 3, "last_s": 0, "ready": 3, "consumers": 0}
    await at.rest()
    assert f"{NO_CONSUMERS} parked" not in await at.found(), "it is said once"
    at.client.publish(b"plain", "parked")
    await at.rest(5_000)
    assert (await at.found())[f"{DEAD_LETTERS} parked"]["came"] == 3
    await at.rest(600_000)
    assert {fact.kind for fact in await at.facts()} == {NO_CONSUMERS}


async def test_what_reaches_no_queue() -> None:
    at = Watched()
    at.client.publish(b"x", "nowhere", "amq.direct")
    at.client.publish(b"x", "nowhere", "amq.direct", mandatory=True)
    at.client.publish(b"x", "nowhere")
    await at.rest(5_000)
    found = await at.found()
    assert found[f"{UNROUTABLE} amq.direct"] == {"dropped": 1, "returned": 1, "nacked": 0, "last_s": 0}
    assert found[f"{UNROUTABLE} "]["dropped"] == 1
    await at.rest(600_000)
    assert await at.found() == {}
    at.client.publish(b"x", "nowhere")
    await at.rest(5_000)
    assert (await at.found())[f"{UNROUTABLE} "]["dropped"] == 1


async def test_connections_that_are_blocked_of_all_or_of_one_user() -> None:
    at = Watched()
    for _ in range(3):
        at.harness.client().connection.intake.blocked = True
    at.client.connection.user = "clerk"
    at.client.connection.intake.blocked = True
    assert await at.facts() == [Fact(BLOCKED, "", "", {"connections": 4})]
    assert await at.facts("clerk") == [Fact(BLOCKED, "", "", {"connections": 1})]
    assert await at.facts("boss") == []


async def test_a_journal_that_stays_full_is_told_with_its_reason() -> None:
    at, journal = Watched(), None
    journal = at.node.journal
    journal.overfull = True
    await at.rest(5_000)
    assert await at.facts() == [], "full for a moment"
    await at.rest(10_000)
    assert await at.facts() == [Fact(JOURNAL, "", "majorities", {"seconds": 10})]
    assert await at.facts("clerk") == []
    journal.overfull = False
    await at.rest(5_000)
    journal.overfull = True
    await at.rest(5_000)
    assert await at.facts() == [], "it was not full at one look"


async def test_who_enters_one_virtual_host_is_told_of_that() -> None:
    at = Watched()
    at.client.declare("q")
    at.client.publish(b"x", "q")
    await at.rest()
    assert await at.watch.facts("clerk", lambda vhost: vhost != "/") == []
    assert [fact.name for fact in await at.watch.facts("clerk", lambda vhost: vhost == "/")] == ["q"]


async def test_of_many_those_that_matter_most_are_told_and_the_others_are_counted() -> None:
    at = Watched()
    for number in range(50):
        at.client.declare(f"q{number}")
        for _ in range(1 + number % 40):
            at.client.publish(b"x", f"q{number}")
    await at.rest()
    *told, more = await at.facts()
    assert [fact.numbers["ready"] for fact in told] == [40, 39, 38, 37, 36]
    assert more == Fact(MORE, "", NO_CONSUMERS, {"count": 50 - EACH_MAX})


async def test_nothing_is_kept_of_queues_without_messages_and_of_those_that_are_gone() -> None:
    at = Watched()
    for number in range(20):
        at.client.declare(f"q{number}")
    await at.rest()
    assert len(at.watch._queues) == 0
    for number in range(20):
        at.client.publish(b"x", f"q{number}")
    await at.rest(5_000)
    assert len(at.watch._queues) == 20
    for number in range(20):
        act = commands.Queue.Purge if number % 2 else commands.Queue.Delete
        at.client.send(act(queue=f"q{number}"))
    await at.rest(FORGET_MS + 5_000)
    assert (len(at.watch._queues), await at.facts()) == (0, [])
