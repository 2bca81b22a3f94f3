"""Samples of queues' figures: of those to which something happens, and of no others; of the node, and of what
somebody asks for.

Not verified: what a sample is (`tests/queues/test_facts.py`), how a series keeps them (`test_samples.py`).
"""

from __future__ import annotations

import pytest
import trio
from pamqp import commands

from amqpd.management.figures import sampling
from amqpd.management.figures.queue_facts import queue_facts
from amqpd.management.figures.samples import SampleRange, range_back
from amqpd.management.figures.sampling import OF_MESSAGES, WATCHED_MS, Sampler
from amqpd.node.totals import NOTHING
from amqpd.queues.facts import SAMPLE_MS
from tests.harness.harness import Client, Harness, Message

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


def sampler_of(client: Client) -> Sampler:
    node = client.harness.node
    return Sampler(node, lambda: node.now_ms, lambda: (7_000_000, 9_000_000))


async def running(sampler: Sampler, nursery: trio.Nursery) -> None:
    """The test goes on half a second beside its looks: which of two that wake at one time comes first is chance."""
    nursery.start_soon(sampler.run)
    await trio.sleep(0.5)


def rate(client: Client, name: str = "q") -> float:
    node = client.harness.node
    found: float = queue_facts(node.queues["/", name], node.now_ms)["message_stats"]["publish_details"]["rate"]
    return found


async def test_a_queue_is_sampled_until_two_samples_say_the_same(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    node = client.harness.node
    await running(sampler_of(client), nursery)
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
    await running(sampler_of(client), nursery)
    client.publish(b"one", "q")
    node.registry.remove(node.queues["/", "q"].record.key)
    await rest(client, 2)
    assert node.active == {}


async def test_a_consumer_that_takes_nothing_is_time_that_counts(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    """What waits for credit goes on to be sampled: its consumers' utilisation falls."""
    node = client.harness.node
    await running(sampler_of(client), nursery)
    client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    client.consume("q")
    client.publish(b"one", "q")
    client.publish(b"two", "q")
    await rest(client, 30)
    assert list(node.active) == [node.queues["/", "q"]]
    assert queue_facts(node.queues["/", "q"], node.now_ms)["consumer_utilisation"] < 0.2


# The node's sums, and what somebody asks for


def now(sampler: Sampler) -> dict[str, int]:
    """The newest sample of the node."""
    [newest] = sampler.of_node.within(SampleRange(sampler.now_ms, sampler.now_ms, 60_000))
    return dict(zip(sampler.of_node.names, newest.values, strict=True))


def lengths(found: dict[str, int]) -> tuple[int, ...]:
    return tuple(found[name] for name in OF_MESSAGES)


async def test_the_node_s_sums_are_those_of_all_queues_whatever_becomes_of_them(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    sampler = sampler_of(client)
    await running(sampler, nursery)
    for body in (b"1", b"2", b"3"):
        client.publish(body, "q")
    client.publish(b"4", "idle-0")
    tag = client.call(commands.Basic.Get(queue="q"), Message).tag
    await rest(client, 6)
    #                               all, publish, deliver_get, redeliver, ack, ready, unacked
    assert lengths(now(sampler)) == (4, 4, 1, 0, 0, 3, 1)
    await rest(client, 3600)
    assert client.harness.node.active == {}
    assert lengths(now(sampler)) == (4, 4, 1, 0, 0, 3, 1)
    client.send(commands.Basic.Ack(delivery_tag=tag))
    await rest(client, 6)
    assert lengths(now(sampler)) == (3, 4, 1, 0, 1, 3, 0), "an acknowledgement after an hour, and no consumer"
    client.call(commands.Queue.Purge(queue="idle-0"), commands.Queue.PurgeOk)
    await rest(client, 6)
    assert lengths(now(sampler)) == (2, 4, 1, 0, 1, 2, 0)
    await rest(client, 60)
    client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    await rest(client, 6)
    assert lengths(now(sampler)) == (0, 4, 1, 0, 1, 0, 0), "counters stay, lengths go"
    assert now(sampler)["queue_deleted"] == 1
    assert now(sampler)["mem_used"] == 7_000_000


async def test_what_was_there_at_the_start_is_in_the_sums(nursery: trio.Nursery, autojump_clock: object) -> None:
    harness = Harness()
    harness.node.now_ms = 1_000_000
    client = harness.client()
    client.declare("q")
    queue = harness.node.queues["/", "q"]
    client.publish(b"1", "q")
    queue.facts.begin(1)
    sampler = sampler_of(client)
    await running(sampler, nursery)
    await rest(client, 6)
    assert lengths(now(sampler)) == (1, 1, 0, 0, 0, 1, 0), "published by a client, and once"


async def test_a_node_s_sample_does_not_look_at_idle_queues(
    client: Client, nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = sampler_of(client)
    await running(sampler, nursery)
    await rest(client, 60)
    looked: list[str] = []
    monkeypatch.setattr(client.harness.node.totals, "update_queue", lambda vhost, *_: looked.append(vhost))
    await rest(client, 60)
    assert looked == []
    client.publish(b"1", "q")
    await rest(client, 60)
    assert 0 < len(looked) <= 5


async def test_a_queue_has_samples_from_the_first_ask_on_until_nobody_asks(
    client: Client, nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "LARGEST", 0)
    node, sampler = client.harness.node, sampler_of(client)
    await running(sampler, nursery)
    client.publish(b"1", "q")
    await rest(client, 60)
    queue = node.queues["/", "q"]
    series = sampler.of_queue(queue, alone=True)
    assert series is not None
    last = range_back(sampler.now_ms, 600, 5)
    assert last is not None
    assert [sample.values[0] for sample in series.within(last)] == [1]
    client.publish(b"2", "q")
    await rest(client, 30)
    last = range_back(sampler.now_ms, 600, 5)
    assert last is not None
    assert [sample.values[0] for sample in series.within(last)] == [2] * 6 + [1]
    assert sampler.of_queue(queue, alone=False) is series
    await rest(client, WATCHED_MS // 1000 - 10)
    assert sampler.of_queue(queue, alone=False) is series, "each ask prolongs it"
    await rest(client, WATCHED_MS // 1000 + 10)
    assert sampler.of_queue(queue, alone=False) is not series
    client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    assert sampler.of_queue(queue, alone=True) is not None, "until the next look"
    await rest(client, 6)
    assert sampler.of_queue(queue, alone=True) is None, "it is gone"


async def test_who_asks_for_one_takes_a_place_and_a_list_takes_what_is_free(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "WATCHED_MAX", 3)
    sampler = sampler_of(client)
    queues = [client.harness.node.queues["/", f"idle-{number}"] for number in range(5)]
    found = [sampler.of_queue(queue, alone=False) for queue in queues]
    assert [each is None for each in found] == [False, False, False, True, True]
    assert sampler.of_queue(queues[0], alone=False) is found[0]
    assert sampler.of_queue(queues[4], alone=True) is not None
    assert sampler.of_queue(queues[0], alone=False) is found[0], "the second was asked for longest ago"
    assert sampler.of_queue(queues[1], alone=False) is None


async def test_the_largest_queues_have_a_past_before_anybody_asks(
    client: Client, nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "LARGEST", 2)
    sampler, node = sampler_of(client), client.harness.node
    for name, count in (("idle-1", 1), ("idle-2", 3), ("idle-3", 2)):
        for _ in range(count):
            client.publish(b"1", name)
    await running(sampler, nursery)
    await rest(client, 30)
    whole = SampleRange(sampler.now_ms - 60_000, sampler.now_ms, 5_000)

    def past(name: str) -> int:
        series = sampler.of_queue(node.queues["/", name], alone=True)
        assert series is not None
        return len(series.within(whole))

    assert [past(name) > 3 for name in ("idle-1", "idle-2", "idle-3", "idle-4")] == [False, True, True, False]
    # One that came into this without anything that happened to it lately is found within a minute.
    node.active.clear()
    sampler._largest.clear()
    await rest(client, 61)
    assert {queue.record.name for queue in sampler._largest} == {"idle-2", "idle-3"}


async def test_a_connection_s_rates_are_those_between_two_looks(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    traffic, connection = client.harness.node.totals.traffic, client.connection
    channel = connection.channels[1]
    await running(sampler_of(client), nursery)
    await rest(client, 6)
    assert (traffic.of(connection).octets_in, traffic.of_channel(channel)) == (0, (0, 0, 0))
    connection.bytes_in += 5_000
    connection.bytes_out += 500
    for _ in range(10):
        client.publish(b"1", "q")
    for _ in range(5):
        client.call(commands.Basic.Get(queue="q"), Message)
    await rest(client, 5)
    rates = traffic.of(connection)
    assert (rates.octets_in, rates.octets_out, rates.published) == (1_000, 100, 2)
    assert traffic.of_channel(channel) == (1, 0, 2)
    await rest(client, 5)
    assert traffic.of(connection).octets_in == 0, "the last seconds were silent"
    connection.abort()
    assert traffic._seen == {}


async def test_a_virtual_host_has_the_sums_of_its_queues_and_a_connection_its_bytes(
    client: Client, nursery: trio.Nursery, autojump_clock: object
) -> None:
    sampler = sampler_of(client)
    client.publish(b"1", "q")
    await running(sampler, nursery)
    vhost, connection = sampler.of_vhost("/", alone=True), sampler.of_connection(client.connection, alone=True)
    assert sampler.of_vhost("none", alone=True) is None
    assert vhost is not None
    assert connection is not None
    client.connection.bytes_in += 5000
    await rest(client, 6)
    at = SampleRange(sampler.now_ms, sampler.now_ms, 60_000)
    assert list(vhost.within(at)[0].values[:2]) == [1, 1]
    assert connection.rate("recv_oct") == 1000
    client.harness.node.totals.sums_by_vhost["gone"] = list(NOTHING)
    await rest(client, 6)
    assert list(client.harness.node.totals.sums_by_vhost) == ["/"]
