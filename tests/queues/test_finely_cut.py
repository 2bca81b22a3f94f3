"""Queues that are cut as finely as a client can cut them: nothing that all messages have in common is one step."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from amqpd.node.dispatching import QUEUES_WORK_MAX
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.expiry import STRETCH_WORK
from amqpd.queues.messages import PURGED_AT_ONCE_MAX
from amqpd.session.settling import AT_ONCE_MAX, portions
from amqpd.session.unacked import Delivered
from amqpd.wire.fieldtable import UnreadTable
from tests.harness.harness import Client, Harness, publish_bytes

MESSAGES = 1_000


@pytest.fixture
def client() -> Client:
    return Harness().client()


def one_by_one(client: Client, count: int = MESSAGES) -> None:
    """A durable queue "q" whose messages are transient and persistent in turn: a segment for each."""
    client.declare("q", durable=True)
    client.raw(b"".join(publish_bytes(b"%d" % number, delivery_mode=1 + number % 2) for number in range(count)))


def test_a_purge_goes_in_steps_that_say_what_they_took(client: Client) -> None:
    one_by_one(client)
    queue = client.harness.node.queues["/", "q"]
    told: list[object] = []
    steps = []
    for work in queue.purging(told.append):
        assert not told, "the answer comes when all is gone"
        steps.append((queue.facts.purged, work))
    assert told == [MESSAGES]
    assert len(steps) >= MESSAGES // (PURGED_AT_ONCE_MAX + 1)
    assert all(work >= after - before for (before, _), (after, work) in pairwise([(0, 0), *steps]))
    assert (queue.backlog.ready, queue.backlog.ready_bytes, queue.facts.purged) == (0, 0, MESSAGES)


def test_a_purge_that_ends_early_says_how_many_are_gone(client: Client) -> None:
    one_by_one(client)
    queue = client.harness.node.queues["/", "q"]
    told: list[object] = []
    steps = queue.purging(told.append)
    next(steps)
    steps.close()
    assert told == [queue.facts.purged]
    assert queue.backlog.ready == MESSAGES - queue.facts.purged > 0


def test_what_comes_while_a_purge_is_under_way_stays(client: Client) -> None:
    one_by_one(client)
    queue = client.harness.node.queues["/", "q"]
    told: list[object] = []
    steps = queue.purging(told.append)
    next(steps)
    gone = queue.facts.purged
    client.publish(b"new")
    consumer = client.harness.client()
    consumer.send(commands.Basic.Get(queue="q", no_ack=True))
    taken = consumer.messages()
    assert taken[0].body == b"%d" % gone
    list(steps)
    assert told == [MESSAGES - 1]
    consumer.send(commands.Basic.Get(queue="q", no_ack=True))
    assert [message.body for message in consumer.messages()] == [b"new"]


def test_acknowledging_segments_of_one_message_says_what_it_took(client: Client) -> None:
    one_by_one(client)
    client.consume("q")
    assert len(client.messages()) == MESSAGES
    queue = client.harness.node.queues["/", "q"]
    assert queue.settle(0, 9) == 0, "a few are nothing beside the entry"
    assert queue.settle(10, MESSAGES - 1) == MESSAGES - 10
    assert not queue.backlog.store.segments


@given(st.lists(st.integers(1, 3 * AT_ONCE_MAX), min_size=1, max_size=5))
def test_portions_are_what_they_were_cut_from(sizes: list[int]) -> None:
    client = Harness().client()
    client.declare("q")
    entries, tag = [], 1
    for size in sizes:
        entries.append(Delivered(tag, size, 7 * tag, client.harness.node.queues["/", "q"], None))
        tag += size + 2
    found = list(portions(entries))
    assert all(sum(entry.size for entry in portion) <= AT_ONCE_MAX for portion in found)
    flat = [(entry.tag + n, entry.seq + n) for portion in found for entry in portion for n in range(entry.size)]
    assert flat == [(entry.tag + n, entry.seq + n) for entry in entries for n in range(entry.size)]


def test_what_is_over_is_not_delivered_though_a_tick_has_no_time_for_all_of_it(client: Client) -> None:
    harness, many = client.harness, 2 * (2 * QUEUES_WORK_MAX // STRETCH_WORK)
    client.declare("q")
    data = b"".join(
        publish_bytes(b"over" if number % 2 else b"stays", expiration="50" if number % 2 else "100000")
        for number in range(many)
    )
    client.raw(data)
    harness.automatic = False
    harness.node.now_ms += 51
    harness.node.tick()
    assert harness.node.queues["/", "q"].removal.expiring
    assert 0 < harness.node.queues["/", "q"].facts.expired < many // 2
    harness.automatic = True
    client.consume("q")
    assert client.bodies() == [b"stays"] * (many // 2)


stretches = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=20)
PLACES_MAX = 20 * (4 + 3)
ranges = st.lists(
    st.tuples(st.integers(0, PLACES_MAX), st.integers(0, 40)).map(lambda each: (each[0], sum(each))), max_size=40
)


@given(stretches, ranges)
def test_of_what_is_overdue_that_which_comes_back_is_told_once_more(
    made: list[tuple[int, int]], looks: list[tuple[int, int]]
) -> None:
    """Stretches: their messages, and a gap behind. One range after the other comes back, then all that is left."""
    deadlines, at, waiting = Deadlines(), 0, set[int]()
    for size, gap in made:
        deadlines.keep(at, at + size - 1)
        waiting |= set(range(at, at + size))
        at += size + gap
    for first, last in [*looks, (0, at)]:
        wanted = {seq for seq in waiting if first <= seq <= last}
        assert deadlines.come_back(first, last) == bool(wanted)
        assert {seq for low, high in deadlines.due(0) for seq in range(low, high + 1)} == wanted
        waiting -= wanted
    assert not deadlines.overdue


def test_large_headers_are_not_read_again_when_their_message_dies(client: Client) -> None:
    for number in range(5):
        follows = {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"d{number + 1}"}
        client.declare(f"d{number}", arguments=follows)
    client.declare("d5")
    headers = {"t": [{"a": number} for number in range(200)], "CC": ["d5"]}
    client.publish(b"x", "d0", headers=headers)
    client.send(commands.Basic.Get(queue="d5", no_ack=True))
    client.send(commands.Basic.Get(queue="d5", no_ack=True))
    copied, died = client.messages()
    last = client.harness.node.properties._large
    assert last is not None
    assert isinstance(last[1].headers, UnreadTable)
    assert died.properties.headers["t"] == copied.properties.headers["t"] == headers["t"]
    assert len(died.properties.headers["x-death"]) == 5
