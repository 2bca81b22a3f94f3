"""What has expired is not delivered after a restart, in whatever order its rows are read."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import commands

from tests.harness.harness import Client, Harness, publish_bytes

MESSAGES = 300
SPAN_MS = 10_000_000
"""so long that no row is read ahead of its time before the clock jumps"""
DEAD_LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def filled(harness: Harness, lives: list[int], **arguments: Any) -> Client:
    """A client of a node that was started on `q` with a message for each of these times to live, ten in a row of the
    disk."""
    client = harness.client()
    client.declare("q", durable=True, arguments=DEAD_LETTERS | arguments)
    client.declare("dead", durable=True)
    for first in range(0, len(lives), 10):
        client.raw(b"".join(_publish(number, lives[number]) for number in range(first, first + 10)))
    now_ms = harness.node.now_ms
    harness.restart()
    harness.node.now_ms = now_ms
    return harness.client()


def _publish(number: int, life_ms: int) -> bytes:
    return publish_bytes(b"%06d" % number, "q", delivery_mode=2, expiration=str(life_ms), priority=number % 4)


@pytest.fixture(params=range(3))
def lives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1500)
    chance = random.Random(request.param)
    return [1 + chance.randrange(SPAN_MS) for _ in range(MESSAGES)]


def numbers(client: Client, queue: str) -> list[int]:
    client.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, no_ack=True))
    client.harness.step()
    return [int(body) for body in client.bodies()]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["classic", "priorities"])
def test_what_has_expired_is_not_delivered_while_other_rows_are_read(
    lives: list[int], arguments: dict[str, Any]
) -> None:
    harness = Harness()
    client = filled(harness, lives, **arguments)
    harness.node.now_ms += SPAN_MS // 2
    got = numbers(client, "q")
    alive = [number for number, life_ms in enumerate(lives) if life_ms >= SPAN_MS // 2]
    assert sorted(set(got) - set(alive)) == []
    assert got == (sorted(alive, key=lambda number: (-(number % 4), number)) if arguments else alive)
    assert sorted(numbers(client, "dead")) == [number for number in range(MESSAGES) if number not in alive]


def test_nor_what_came_back_meanwhile(lives: list[int]) -> None:
    """The second half is on disk only, when the first one comes back."""
    harness = Harness()
    client = filled(harness, lives)
    client.send(commands.Basic.Qos(0, MESSAGES // 2, False))
    client.send(commands.Basic.Consume(queue="q", consumer_tag="c"))
    harness.step()
    assert len(client.bodies()) == MESSAGES // 2
    client.send(commands.Basic.Cancel("c"))
    harness.node.now_ms += 1
    client.send(commands.Basic.Recover(True))
    client = harness.client()
    harness.node.now_ms += SPAN_MS // 2
    got = numbers(client, "q")
    assert [number for number in got if lives[number] < SPAN_MS // 2] == []
    assert got == [number for number, life_ms in enumerate(lives) if life_ms > SPAN_MS // 2]
