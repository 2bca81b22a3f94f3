"""What may leave memory is looked for in turns, and not again while nothing has changed."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.queues.messages import Messages
from amqpd.queues.paging import VISITS_A_WORK, VISITS_MAX
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, publish_bytes

LIMITS = Limits(queue_memory_bytes=64_000, backlog_memory_bytes=64_000, small_queue_bytes=0)
MESSAGES = 3 * VISITS_MAX
KINDS = pytest.mark.parametrize("delivery_mode", [1, 2], ids=["transient", "persistent"])


def crowded(harness: Harness, delivery_mode: int, queues: int = 1, messages: int = MESSAGES) -> Client:
    """Queues of messages that are a segment each; the journal has written none of them."""
    client = harness.client()
    for number in range(queues):
        client.declare(f"q{number}", durable=True)
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    harness.automatic = False
    for number in range(messages):
        client.connection.receive(publish_bytes(b"%06d" % number, "k", "amq.fanout", delivery_mode=delivery_mode))
        # What is transient gets its place with the end of a tick.
        harness.node.work_left = -1 if number + 1 < messages and delivery_mode == 2 else 10**9
        harness.node.tick(fresh=False)
    settle(harness)
    return client


def settle(harness: Harness) -> int:
    """The number of ticks until nothing is left to do."""
    ticks = 0
    while harness.node.behind:
        harness.node.turns.begin(0)
        harness.node.turns.next()
        harness.reads += harness.node.tick()
        ticks += 1
        assert ticks < 1_000, "it never rests"
    return ticks


def visited(harness: Harness) -> int:
    return sum(queue.messages.paging.visited for queue in harness.node.queues.values())


@KINDS
def test_a_measurement_without_change_looks_at_no_segments(
    monkeypatch: pytest.MonkeyPatch, delivery_mode: int
) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1)
    harness = Harness(LIMITS)
    crowded(harness, delivery_mode, queues=5, messages=VISITS_MAX)
    assert len(harness.node.congestion.queues) == 5
    before = visited(harness)
    for _ in range(10):
        harness.node.measure()
        assert settle(harness) == 1
    assert visited(harness) == before


@KINDS
def test_after_the_commit_they_leave_and_become_one(monkeypatch: pytest.MonkeyPatch, delivery_mode: int) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1)
    harness = Harness(LIMITS)
    crowded(harness, delivery_mode)
    # Transient ones go with several transactions: they are many rows.
    commits = 0
    while harness.node.journal.gathered:
        harness.commit()
        commits += 1
        harness.node.measure()
        settle(harness)
    backlog = harness.node.queues["/", "q0"].backlog
    assert backlog.store.memory_bytes <= LIMITS.queue_memory_bytes
    # What stays, and what is on disk, which is one; or one for what left with each commit.
    assert 0 < len([segment for segment in backlog.store.segments if segment.runs is None]) <= commits
    assert [here.last + 1 for here in backlog.store.segments[:-1]] == [
        behind.first for behind in backlog.store.segments[1:]
    ]
    assert backlog.ready == sum(segment.left for segment in backlog.store.segments) == MESSAGES


def test_one_call_looks_at_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 1)
    # Of no dispatch.
    harness = Harness()
    client = crowded(harness, 2)
    messages = harness.node.queues["/", "q0"].messages
    assert isinstance(messages, Messages)
    paging, store = messages.paging, messages.store
    assert paging.visited == 0
    work, calls = 0, 0
    while not calls or paging.shrinking:
        before = paging.visited
        work += paging.shrink(0)
        calls += 1
        assert paging.visited - before <= VISITS_MAX
    assert (calls, paging.visited) == (3, MESSAGES)
    assert work == MESSAGES // VISITS_A_WORK
    # Nothing has changed; then there is one more; then the journal has them.
    assert (paging.shrink(0), paging.visited) == (0, MESSAGES)
    client.connection.receive(publish_bytes(b"", "q0", delivery_mode=2))
    paging.shrink(0)
    assert paging.visited <= MESSAGES + 2
    harness.commit()
    paging.shrink(0)
    while paging.shrinking:
        paging.shrink(0)
        assert paging.visited <= 3 * MESSAGES
    # The one at the cursor stays.
    assert len(store.segments) == 2
    assert [segment.runs is None for segment in store.segments] == [False, True]
    assert store.segments[1].left == MESSAGES


def test_with_very_many_queues_their_share_is_not_worked_out_in_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.flow.congestion.QUEUES_EACH_TICK_MAX", 4)
    harness = Harness(LIMITS)
    shares = harness.node.shares
    client = crowded(harness, 2, queues=4, messages=100)
    harness.automatic = True
    shares.share = -1
    harness.node.tick()
    assert shares.share != -1
    client.declare("q4", durable=True)
    shares.share = 1
    harness.node.tick()
    assert shares.share == 1
    harness.node.measure()
    assert shares.share is None
