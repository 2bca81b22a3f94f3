"""Looking into a queue without taking anything: positions, ids, states, in memory and on disk; and taking out."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from amqpd.journal.records import Row
from amqpd.management.messages.operations import NOBODY, holders_of
from amqpd.management.messages.repair import Mover, delete
from amqpd.queues.backlog import Backlog
from amqpd.queues.browsing import Ids, Stretch, body_segment, id_of, ready, runs_in, still, unacked
from amqpd.queues.messages import Messages
from amqpd.queues.queue import Queue
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node

SMALL = Limits(queue_memory_bytes=3000, backlog_memory_bytes=3000, small_queue_bytes=500)
QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": -1}


def queue_of(client: Client, name: str = "q") -> Queue:
    return client.harness.node.queues["/", name]


def ids(client: Client, start: int = 1, wanted: Ids = ((0, 1 << 62),), state: str = "ready") -> list[int]:
    queue = queue_of(client)
    found = ready(queue, start, wanted) if state == "ready" else unacked(queue, wanted)
    return [id_of(queue.record.id, each.level, seq) for each in found for seq in range(each.first, each.last + 1)]


def positions(client: Client, start: int = 1, wanted: Ids = ((0, 1 << 62),)) -> list[int]:
    found = []
    for each in ready(queue_of(client), start, wanted):
        assert each.position is not None
        found += range(each.position, each.position + each.last - each.first + 1)
    return found


def filled(count: int, limits: Limits | None = None, **arguments: object) -> Client:
    client = Harness(limits).client()
    client.declare("q", durable=True, arguments=arguments)
    for number in range(count):
        client.publish(b"%04d" % number, "q", delivery_mode=2, priority=number % 3)
    return client


def bodies_at(client: Client, level: Messages, seq: int):
    segment = level.store.segments[level.store.index_of(seq)]
    if segment.runs is not None:
        return segment
    row: Row = next(
        row for row in client.harness.rows[level.queue_id].values() if row.first_seq <= seq <= row.last_seq
    )
    return body_segment(row)


def bodies(client: Client, stretches: list[Stretch]) -> list[int]:
    found = []
    for stretch in stretches:
        seq = stretch.first
        while seq <= stretch.last:
            at = bodies_at(client, stretch.level, seq)
            last = min(at.last, stretch.last)
            for run, low, high, _ in runs_in(at, seq, last):
                found += [int(run.body(i)) for i in range(low, high)]
            seq = last + 1
    return found


def test_positions_are_those_of_the_ready_ones_and_returned_ones_come_first() -> None:
    client = filled(6)
    client.call(commands.Basic.Qos(prefetch_count=3), commands.Basic.QosOk)
    client.consume("q")
    assert ids(client) == [3, 4, 5]
    assert ids(client, state="unacked") == [0, 1, 2]
    client.send(commands.Basic.Cancel("t"))
    client.send(commands.Basic.Nack(2, False, True))
    assert (ids(client), positions(client)) == ([1, 3, 4, 5], [1, 2, 3, 4])
    assert ids(client, state="unacked") == [0, 2]
    assert ids(client, start=2) == [3, 4, 5]
    assert ids(client, wanted=((1, 1), (4, 9))) == [1, 4, 5]
    assert positions(client, wanted=((1, 1), (4, 9))) == [1, 3, 4]
    assert ids(client, start=3, wanted=((0, 3), (5, 5))) == [5]
    assert ids(client, state="unacked", wanted=((1, 5),)) == [2]


def test_a_quorum_queues_returned_ones_stand_in_the_order_in_which_they_came_back() -> None:
    client = filled(5, **QUORUM)
    client.call(commands.Basic.Qos(prefetch_count=3), commands.Basic.QosOk)
    client.consume("q")
    client.send(commands.Basic.Cancel("t"))
    for tag in (3, 1):
        client.send(commands.Basic.Nack(tag, False, True))
    assert ids(client) == [2, 0, 3, 4]
    assert ids(client, state="unacked") == [1]


def test_with_priorities_the_highest_stands_first_and_the_id_says_the_level() -> None:
    client = filled(7, **{"x-max-priority": 2})
    levels = [(each >> 55, each & (1 << 55) - 1) for each in ids(client)]
    assert levels == [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]
    assert ids(client, wanted=((1 << 55, (1 << 55) + 9),)) == [1 << 55, (1 << 55) + 1]
    assert positions(client, wanted=((1 << 55, (1 << 55) + 9),)) == [3, 4]
    assert positions(client, start=4) == [4, 5, 6, 7]


def test_what_is_on_disk_only_is_found_and_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", 100)
    client = filled(100, SMALL)
    backlog = queue_of(client).backlog
    assert isinstance(backlog, Backlog)
    queue_of(client).messages.shrink(0)
    before = [(segment.first, segment.last, segment.runs is None) for segment in backlog.store.segments]
    assert any(on_disk and last > first for first, last, on_disk in before), "many rows in one segment"
    assert bodies(client, list(ready(queue_of(client)))) == list(range(100))
    assert ids(client, start=98) == [97, 98, 99]
    assert [(segment.first, segment.last, segment.runs is None) for segment in backlog.store.segments] == before


def test_what_has_gone_meanwhile_is_left_out() -> None:
    client = filled(0)
    client.raw(publish_bytes(b"0000", "q") * 6)
    client.inbox.clear()
    looking = ready(queue_of(client))
    stretch = next(looking)
    client.send(commands.Basic.Get(queue="q", no_ack=True))
    assert still(stretch, 0, 3) == [(1, 3)]
    client.send(commands.Basic.Get(queue="q"))
    assert still(stretch, 0, 3) == [(2, 3)]
    [taken] = unacked(queue_of(client))
    assert (taken.first, taken.last, still(taken, 0, 5)) == (1, 1, [(1, 1)])
    client.send(commands.Queue.Purge(queue="q"))
    assert still(stretch, 0, 5) == []
    assert list(looking) == []


def take_out(client: Client, wanted: Ids) -> int:
    """As the shell does it: rows are known before anything of them is settled."""
    queue, count = queue_of(client), 0
    for stretch in list(ready(queue, 1, wanted)):
        seq = stretch.first
        while seq <= stretch.last:
            at = bodies_at(client, stretch.level, seq)
            last = min(at.last, stretch.last)
            stretch.level.store.cut_at(at.first, at.last)
            count += delete(client.harness.node, queue, stretch.level, seq, last)
            seq = last + 1
    client.harness.step()
    return count


def test_what_is_deleted_is_gone_and_nothing_else_is_and_a_restart_knows() -> None:
    client = filled(10)
    client.call(commands.Basic.Qos(prefetch_count=2), commands.Basic.QosOk)
    client.consume("q")
    client.send(commands.Basic.Cancel("t"))
    client.send(commands.Basic.Nack(1, False, True))
    assert take_out(client, ((0, 3), (7, 7))) == 4, "1 is unacked"
    assert ids(client) == [4, 5, 6, 8, 9]
    assert ids(client, state="unacked") == [1]
    facts = queue_of(client).facts
    assert (facts.withdrawn, facts.accepted) == (4, 4 + queue_of(client).backlog.ready + 1)
    check_node(client.harness.node)
    client.harness.restart()
    again = client.harness.client()
    assert ids(again) == [1, 4, 5, 6, 8, 9]


def test_moving_keeps_order_and_content_and_takes_one_transaction() -> None:
    client = filled(8)
    client.declare("other", durable=True)
    client.publish(b"9999", "other", delivery_mode=2)
    client.harness.automatic = False
    queue, other = queue_of(client), queue_of(client, "other")
    mover = Mover(client.harness.node, queue.withdrawn, other)
    for stretch in list(ready(queue, 1, ((2, 4), (6, 6)))):
        at = bodies_at(client, stretch.level, stretch.first)
        assert mover.move(stretch.level, at, stretch.first, stretch.last) == stretch.last - stretch.first + 1
    assert not mover.full
    before = client.harness.transactions[-1].index
    client.harness.step()
    client.harness.commit()
    transaction = client.harness.transactions[-1]
    assert transaction.index == before + 1
    assert [(row.queue_id, row.last_seq - row.first_seq + 1) for row in transaction.rows] == [(other.record.id, 4)]
    assert {each.queue_id for each in transaction.settled} == {queue.record.id}
    client.harness.automatic = True
    client.harness.restart()
    again = client.harness.client()
    assert ids(again) == [0, 1, 5, 7]
    again.consume("other", no_ack=True)
    assert [(int(m.body), m.method.routing_key) for m in again.messages()] == [
        (9999, "other"),
        (2, "q"),
        (3, "q"),
        (4, "q"),
        (6, "q"),
    ]


@pytest.mark.parametrize(("overflow", "moved", "left"), [("reject-publish", 3, 5), ("drop-head", 8, 0)])
def test_the_other_queues_limit_holds(overflow: str, moved: int, left: int) -> None:
    client = filled(8)
    client.declare("other", arguments={"x-max-length": 3, "x-overflow": overflow})
    queue, other = queue_of(client), queue_of(client, "other")
    mover = Mover(client.harness.node, queue.withdrawn, other)
    count = 0
    for stretch in list(ready(queue)):
        count += mover.move(
            stretch.level, bodies_at(client, stretch.level, stretch.first), stretch.first, stretch.last
        )
    client.harness.step()
    assert (count, mover.full) == (moved, overflow == "reject-publish")
    assert (queue.backlog.ready, other.backlog.ready) == (left, 3)
    check_node(client.harness.node)


def test_a_get_that_waits_for_a_deleted_message_is_answered() -> None:
    client = filled(1)
    backlog = queue_of(client).backlog
    assert isinstance(backlog, Backlog)
    client.harness.automatic = False
    backlog.store.segments[0].evict()
    backlog.store.memory_bytes = 0
    client.send(commands.Basic.Get(queue="q"))
    assert not client.inbox
    assert take_out(client, ((0, 0),)) == 1
    client.expect(commands.Basic.GetEmpty)


def test_what_is_over_and_waits_to_be_dead_lettered_is_not_ready_and_is_left_alone() -> None:
    client = Harness().client()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare("q", durable=True, arguments=arguments)
    client.declare("dead", durable=True)
    for number in range(6):
        expires = {"expiration": "10"} if number in (2, 4) else {}
        client.publish(b"%04d" % number, "q", delivery_mode=2, **expires)
    harness, backlog = client.harness, queue_of(client).backlog
    assert isinstance(backlog, Backlog)
    for segment in backlog.store.segments:
        backlog.store.memory_bytes -= segment.memory_bytes
        segment.evict()
    harness.automatic = False
    harness.node.now_ms += 100
    harness.step()
    assert (ids(client), positions(client)) == ([0, 1, 3, 5], [1, 2, 3, 4])
    assert ids(client, start=3) == [3, 5]
    assert positions(client, wanted=((5, 5),)) == [4]
    assert ids(client, state="unacked") == [2, 4]
    assert take_out(client, ((1, 4),)) == 2
    harness.automatic = True
    harness.step()
    assert (ids(client), ids(client, state="unacked")) == ([0, 5], [])
    assert queue_of(client, "dead").backlog.ready == 2


def test_who_has_an_unacked_message_is_found_by_its_id() -> None:
    client = filled(9, **{"x-max-priority": 2})
    client.call(commands.Basic.Qos(prefetch_count=4), commands.Basic.QosOk)
    client.consume("q", "mine")
    client.inbox.clear()
    client.send(commands.Basic.Get(queue="q"))
    holders = trio.run(holders_of, client.harness.node, queue_of(client))
    tags = [holders.of(each)["consumer_tag"] for each in ids(client, state="unacked")]
    assert (tags, ids(client)) == (["mine"] * 4 + [None], [(1 << 55) + 2, 0, 1, 2])
    assert holders.of(ids(client, state="unacked")[-1])["channel"] == 1
    assert all(holders.of(each) == NOBODY for each in ids(client))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 20)),
        st.tuples(st.just("get"), st.integers(1, 6)),
        st.tuples(st.just("nack"), st.integers(0, 30)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("shrink"), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 60)),
        st.tuples(st.just("move"), st.integers(0, 60)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS, st.sampled_from(["classic", "quorum"]))
def test_whatever_happened_a_look_says_what_consumers_will_get(steps: list[tuple[str, int]], kind: str) -> None:
    """Random acts; then what the look says is held against what is delivered."""
    harness = Harness(SMALL)
    client = harness.client()
    for name in ("q", "other"):
        client.declare(name, durable=True, arguments=QUORUM if kind == "quorum" else {})
    number, tags = 0, dict[int, int]()
    gone, moved = set[int](), list[int]()
    for what, value in steps:
        queue = queue_of(client)
        if what == "publish":
            for _ in range(value):
                client.publish(b"%04d" % number, "q", delivery_mode=2)
                number += 1
        elif what == "get":
            for _ in range(value):
                client.send(commands.Basic.Get(queue="q"))
            for message in client.messages():
                tags[message.tag] = int(message.body)
            client.take(commands.Basic.GetEmpty)
        elif what in ("nack", "ack") and tags:
            tag = sorted(tags)[value % len(tags)]
            body = tags.pop(tag)
            if what == "ack":
                gone.add(body)
                client.send(commands.Basic.Ack(tag))
            else:
                client.send(commands.Basic.Nack(tag, False, True))
        elif what == "shrink":
            for level in queue.messages.levels():
                level.shrink(0)
        elif what == "delete":
            here = bodies(client, list(ready(queue, 1, ((value, value + 5),))))
            assert take_out(client, ((value, value + 5),)) == len(here)
            gone.update(here)
        elif what == "move":
            mover = Mover(harness.node, queue.withdrawn, queue_of(client, "other"))
            for stretch in list(ready(queue, 1, ((value, value + 5),))):
                moved += bodies(client, [stretch])
                seq = stretch.first
                while seq <= stretch.last:
                    at = bodies_at(client, stretch.level, seq)
                    stretch.level.store.cut_at(at.first, at.last)
                    last = min(at.last, stretch.last)
                    mover.move(stretch.level, at, seq, last)
                    seq = last + 1
            harness.step()
        elif what == "restart":
            harness.restart()
            client = harness.client()
            tags = {}
    check_node(harness.node) if kind == "classic" else None
    queue = queue_of(client)
    expected = bodies(client, list(ready(queue)))
    assert sorted(bodies(client, list(unacked(queue)))) == sorted(tags.values())
    client.consume("q", no_ack=True)
    assert [int(message.body) for message in client.messages()] == expected
    assert sorted([*expected, *tags.values(), *gone, *moved]) == list(range(number))
    client.consume("other", "o", no_ack=True)
    assert [int(message.body) for message in client.messages()] == moved
    assert not harness.bugs
