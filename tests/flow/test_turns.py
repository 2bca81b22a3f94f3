"""Turns: publishes that go to many queues each do not hold up the other connections."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.channels import Channel
from amqpd.flow.turns import COPY_WORK, FRAME_WORK, TURN_WORK_MAX
from amqpd.node.changes import CHANGE_WORK
from tests.harness.harness import Client, Harness, publish_bytes

QUEUES = 200
A_TURN = -(-TURN_WORK_MAX // (FRAME_WORK + COPY_WORK * QUEUES))
"""publishes to all of them in one turn"""


def publisher_to_all(harness: Harness, queues: int = QUEUES) -> Client:
    client = harness.client()
    for number in range(queues):
        client.declare(f"q{number}")
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def different(messages: int) -> bytes:
    """No two of them are one run, nor do they go in one batch."""
    return b"".join(publish_bytes(b"%d" % n, f"k{n}", "amq.fanout", priority=n % 2) for n in range(messages))


def in_all(harness: Harness, queues: int = QUEUES) -> set[int]:
    return {harness.node.queues["/", f"q{number}"].backlog.ready for number in range(queues)}


def test_a_turn_ends_and_the_others_are_served_before_the_next() -> None:
    harness = Harness()
    client, other = publisher_to_all(harness), harness.client()
    client.connection.receive(different(300))
    harness.reads += harness.node.tick()
    (done,) = in_all(harness)
    assert A_TURN // 2 < done <= A_TURN
    assert client.connection.reading_paused
    other.connection.receive(publish_bytes(b"other", "q0"))
    harness.node.turns.next()
    assert harness.node.queues["/", "q0"].backlog.ready == 2 * done + 1
    assert harness.node.queues["/", "q1"].backlog.ready == 2 * done


def test_nothing_is_lost_and_all_is_confirmed_in_the_end() -> None:
    harness = Harness()
    client = publisher_to_all(harness)
    client.raw(different(300) + publish_bytes(b"last", "q0"))
    assert not client.connection.reading_paused
    assert in_all(harness) == {300, 301}
    assert max(ack.delivery_tag for ack in client.take(commands.Basic.Ack)) == 301
    assert not harness.node.turns.waiting


def test_who_closes_while_it_waits_is_forgotten() -> None:
    harness = Harness()
    client = publisher_to_all(harness)
    client.connection.receive(different(300))
    client.connection.lost()
    harness.node.turns.next()
    (done,) = in_all(harness)
    assert 0 < done < 300
    assert not harness.node.turns.waiting


def test_one_queue_each_needs_no_turns() -> None:
    harness = Harness()
    client = publisher_to_all(harness, 1)
    client.connection.receive(different(200))
    assert not harness.node.turns.waiting
    assert in_all(harness, 1) == {200}


def test_those_who_were_ready_together_share_one_turn() -> None:
    harness = Harness()
    clients = [publisher_to_all(harness), harness.client(), harness.client()]
    harness.node.turns.begin(len(clients))
    for client in clients:
        client.connection.receive(different(300))
    (done,) = in_all(harness)
    assert 0 < done <= A_TURN + len(clients)


def test_who_waits_longest_is_served_first_when_a_tick_has_no_room_for_all() -> None:
    harness = Harness()
    clients = [publisher_to_all(harness), *(harness.client() for _ in range(30))]
    turns = harness.node.turns
    for client in clients:
        client.connection.receive(different(300))
    waiting = list(turns.waiting)
    assert waiting == [client.connection for client in clients]
    turns.begin(0)
    turns.next()
    served = len(waiting) - list(turns.waiting).index(waiting[-1]) - 1
    assert 0 < served < len(waiting)
    assert list(turns.waiting) == waiting[served:] + waiting[:served]


def test_what_queues_have_left_to_do_at_the_end_of_a_tick_is_done_in_the_next() -> None:
    harness = Harness()
    client = publisher_to_all(harness)
    for number in range(QUEUES):
        client.consume(f"q{number}", f"t{number}", no_ack=True)
    for number in range(20):
        client.connection.receive(publish_bytes(b"%d" % number, f"k{number}", "amq.fanout"))
        harness.node.turns.next()
    harness.node.work_left = 100
    harness.node.tick(fresh=False)
    assert harness.node.behind
    first = len(client.messages())
    assert 0 < first < 20 * QUEUES
    while harness.node.behind:
        harness.node.tick()
    assert first + len(client.messages()) == 20 * QUEUES


def test_a_batch_of_many_new_keys_looks_up_what_a_turn_has_time_for() -> None:
    harness = Harness()
    client, count = harness.client(), 2_000
    client.declare("q")
    for number in range(100):
        client.call(
            commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key=f"#.w{number}"), commands.Queue.BindOk
        )
    client.call(commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"), commands.Queue.BindOk)
    data = b"".join(publish_bytes(b"%d" % n, f"a.b.{n}", "amq.topic") for n in range(count))
    client.connection.receive(data)
    known = len(client.connection.routes.known)
    assert 0 < known < count // 2
    assert client.connection.reading_paused
    turns = 0
    while client.connection.reading_paused:
        harness.node.turns.next()
        turns += 1
        assert turns < count, "no turn goes on"
    harness.step()
    client.consume("q", no_ack=True)
    harness.step()
    assert client.bodies() == [b"%d" % n for n in range(count)]


def on_channels(client: Client, channels: int) -> None:
    for number in range(2, channels + 1):
        client.raw(frame.marshal(commands.Channel.Open(), number))


def test_declarations_are_paid_for_by_the_turn() -> None:
    """Of a frame and a method alone there were two hundred in a tick, of a quarter of a millisecond each."""
    harness = Harness()
    client = harness.client()
    harness.automatic = False
    on_channels(client, 300)
    declares = (commands.Queue.Declare(queue=f"q{number}", exclusive=True) for number in range(1, 301))
    client.connection.receive(b"".join(frame.marshal(each, number + 1) for number, each in enumerate(declares)))
    suspended = sum(channel.suspended for channel in client.connection.channels.values())
    assert 0 < suspended <= TURN_WORK_MAX // CHANGE_WORK
    assert client.connection in harness.node.turns.waiting


def test_a_turn_does_not_look_at_channels_that_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be two thousand, and each turn looked at all of them."""
    harness = Harness()
    client = harness.client()
    harness.automatic = False
    on_channels(client, 50)
    turns, looked = harness.node.turns, []
    for number in range(1, 51):
        for part in "ab":
            declare = commands.Queue.Declare(queue=f"q{number}{part}", exclusive=True)
            client.connection.receive(frame.marshal(declare, number))
            while client.connection in turns.waiting:
                turns.next()
    assert all(channel.held for channel in client.connection.channels.values())
    monkeypatch.setattr(Channel, "go_on", lambda self: looked.append(self.id))
    turns.end(client.connection)
    turns.next()
    assert looked == []


def test_channels_that_a_turn_had_no_time_for_go_on_in_the_next_in_their_order() -> None:
    harness = Harness()
    client = harness.client()
    harness.automatic = False
    on_channels(client, 50)
    for number in range(1, 51):
        for part in "ab":
            declare = commands.Queue.Declare(queue=f"q{number}{part}", exclusive=True, nowait=True)
            client.connection.receive(frame.marshal(declare, number))
    harness.node.turns.turn_work = 250
    harness.automatic = True
    harness.step()
    assert sorted(name for _, name in harness.node.queues) == sorted(
        f"q{number}{part}" for number in range(1, 51) for part in "ab"
    )
    assert not any(channel.held for channel in client.connection.channels.values())
    assert not client.connection.intake.stopped
    assert not client.connection.intake.held_bytes
