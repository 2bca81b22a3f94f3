"""Samples of queues' figures: of those to which something happens, and of no others.

Not verified: what a sample is (`tests/queues/test_facts.py`).
"""

from __future__ import annotations

import pytest
import trio
from pamqp import commands

from amqpd.management.queue_facts import queue_facts
from amqpd.management.sampling import run_samples
from amqpd.queues.facts import SAMPLE_MS
from tests.harness.harness import Client, Harness

pytestmark = pytest.mark.trio

IDLE = 50


@pytest.fixture
def client() -> Client:
    client = Harness().client()
    client.harness.node.now_ms = 1_000_000
    for number in range(IDLE):
        client.declare(f"idle-{number}")
    client.declare("q")
    return client


async def rest(client: Client, seconds: int) -> None:
    """As in a broker: its clock goes on."""
    for _ in range(seconds):
        client.harness.node.now_ms += 1000
        await trio.sleep(1)


def rate(client: Client, name: str = "q") -> float:
    node = client.harness.node
    found: float = queue_facts(node.queues["/", name], node.now_ms)["message_stats"]["publish_details"]["rate"]
    return found


async def test_a_queue_is_sampled_until_two_samples_say_the_same(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    node = client.harness.node
    nursery.start_soon(run_samples, node)
    await rest(client, 2)
    assert node.active == {}
    for _ in range(3):
        client.publish(b"one", "q")
        await rest(client, 4)
        assert list(node.active) == [node.queues["/", "q"]]
    assert rate(client) > 0
    await rest(client, 3 * SAMPLE_MS // 1000)
    assert node.active == {}
    assert rate(client) == 0
    await rest(client, 3600)
    client.publish(b"one", "q")
    assert rate(client) == pytest.approx(1000 / (2 * SAMPLE_MS)), "not over the hour in which nobody looked"


async def test_a_queue_that_is_gone_is_sampled_no_more(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    node = client.harness.node
    nursery.start_soon(run_samples, node)
    client.publish(b"one", "q")
    node.registry.remove(node.queues["/", "q"].record.key)
    await rest(client, 2)
    assert node.active == {}


async def test_a_consumer_that_takes_nothing_is_time_that_counts(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    """What waits for credit goes on to be sampled: its consumers' utilisation falls."""
    node = client.harness.node
    nursery.start_soon(run_samples, node)
    client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    client.consume("q")
    client.publish(b"one", "q")
    client.publish(b"two", "q")
    await rest(client, 30)
    assert list(node.active) == [node.queues["/", "q"]]
    assert queue_facts(node.queues["/", "q"], node.now_ms)["consumer_utilisation"] < 0.2
