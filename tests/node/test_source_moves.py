"""What clients are told, and what is settled, when the leader of a queue moves while they wait.

What is verified: the node's half, with a lane that reports when a test says so. Not verified here: who becomes the
leader (`tests/cluster`), dead letters to another source (`tests/journal/test_withheld.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.journal.lane import Lane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import Recovered, RecoveredQueue
from amqpd.node.cluster import LOCAL
from tests.harness.harness import Client, Harness

Basic, Confirm, Connection, Queue, Tx = (
    commands.Basic,
    commands.Confirm,
    commands.Connection,
    commands.Queue,
    commands.Tx,
)
QUORUM = {"x-queue-type": "quorum"}
SOURCE = 5


class ReplicaLane(Lane):
    def force(self) -> None:
        pass


class Scene:
    arguments: dict[str, Any] = QUORUM
    """of its queue"""

    def __init__(self) -> None:
        self.harness = Harness()
        self.node = self.harness.node
        cluster, sources = self.harness.cluster, self.node.sources
        cluster.replicated, cluster.choose = True, lambda wanted: next(iter(sources.serving), LOCAL)
        self.lane = ReplicaLane(1, 0)

    def begin(self, recovered: Recovered | None = None) -> None:
        self.node.journal.lead(SOURCE, 1, Numbers(0, NUMBERS_STEP), self.lane)
        self.node.source_begins(SOURCE, recovered or Recovered(0, {}))

    def end(self) -> None:
        self.node.journal.leave(SOURCE)
        self.node.source_ends(SOURCE, self.lane)
        self.harness.step()

    def report(self) -> None:
        """Everything, of the sources that the lane has by now."""
        self.lane.reported = self.lane.gathering
        self.lane.gathering += 1
        self.node.reported(self.lane)
        self.harness.step()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def declared(scene: Scene) -> Client:
    scene.begin()
    client = scene.harness.client()
    client.declare("q", durable=True, arguments=scene.arguments)
    return client


def test_a_commit_is_not_confirmed_by_what_the_lane_reports_of_other_sources(scene: Scene) -> None:
    client = declared(scene)
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(b"one", "q", delivery_mode=2)
    client.send(Tx.Commit())
    scene.end()
    scene.report()
    client.collect()
    assert client.take(Tx.CommitOk) == []
    assert client.expect(Connection.Close).reply_code == 320


@pytest.mark.parametrize("between", [True, False])
def test_a_commit_publishes_to_a_remote_queue_and_is_led_here_by_now(scene: Scene, between: bool) -> None:
    """`between`: its source had no leader when the message came; else it has been away since."""
    client = declared(scene)
    client.call(Tx.Select(), Tx.SelectOk)
    if between:
        scene.end()
    client.publish(b"one", "q", delivery_mode=2)
    if not between:
        scene.end()
    scene.lane = ReplicaLane(1, 0)
    scene.begin()
    client.send(Tx.Commit())
    scene.report()
    client.collect()
    client.expect(Tx.CommitOk)
    assert scene.node.queues["/", "q"].ready_count == 1


def test_a_commit_that_waits_for_two_lanes_is_dropped_from_both(scene: Scene) -> None:
    client = declared(scene)
    other = ReplicaLane(1, 0)
    told: list[str] = []
    durability = scene.node.durability
    durability.when_durable(lambda decision: told.append(decision.value), (scene.lane, other))
    durability.when_durable(lambda decision: told.append(f"other {decision.value}"), (other,))
    scene.end()
    other.reported = other.gathering
    scene.node.reported(other)
    assert told == ["lost", "other safe"]
    assert not client.closed


def test_messages_of_a_queue_that_is_not_known_yet_are_its_own_when_it_is(scene: Scene) -> None:
    """The source is taken over faster than the queue's record comes from the metadata store."""
    first = declared(scene)
    first.publish(b"one", "q", delivery_mode=2)
    record = scene.node.queues["/", "q"].record
    scene.end()
    scene.node.registry.remove(record.key)
    found = RecoveredQueue([], 7, 0)
    scene.begin(Recovered(0, {record.id: found}))
    scene.node.registry.put(record)
    assert scene.node.queues["/", "q"].backlog.store.next_seq == 7


@pytest.mark.parametrize("alone", [True, False])
def test_an_only_consumer_gets_nothing_while_the_leader_may_have_been_followed(scene: Scene, alone: bool) -> None:
    scene.begin()
    client = scene.harness.client()
    client.declare("q", durable=True, arguments={**QUORUM, "x-single-active-consumer": alone})
    client.call(Basic.Consume(queue="q"), Basic.ConsumeOk)
    scene.harness.cluster.lease = False
    client.publish(b"one", "q", delivery_mode=2)
    assert len(client.messages()) == (0 if alone else 1)
    scene.harness.cluster.lease = True
    scene.node.now_ms += 60
    scene.harness.step()
    assert len(client.messages()) == (1 if alone else 0)


def test_only_publishers_of_a_source_whose_copies_are_behind_wait(scene: Scene) -> None:
    client, other = declared(scene), scene.harness.client()
    other.declare("here", durable=True)
    scene.node.journal.lagging = scene.lane.lagging = True
    client.publish(b"one", "q", delivery_mode=2)
    other.publish(b"one", "here", delivery_mode=2)
    assert client.connection.intake.paused
    assert not other.connection.intake.paused
    scene.node.journal.lagging = scene.lane.lagging = False
    assert not client.connection.intake.paused


def test_what_is_asked_of_a_lane_that_has_ended_is_answered(scene: Scene) -> None:
    """Who collects lanes over several turns may have one of which nothing is heard any more."""
    told: list[str] = []
    ended, lost = ReplicaLane(7, 7), ReplicaLane(7, 7)
    lost.lost = True
    scene.node.durability.when_durable(lambda decision: told.append(decision.value), (ended,))
    scene.node.durability.when_durable(lambda decision: told.append(decision.value), (ended, lost))
    assert told == ["safe", "lost"]


def test_confirms_that_come_to_wait_for_a_lane_that_has_reported_are_told(scene: Scene) -> None:
    client = declared(scene)
    client.call(Confirm.Select(), Confirm.SelectOk)
    ended = ReplicaLane(7, 7)
    channel = client.connection.channels[1]
    assert channel.confirms is not None
    channel.confirms.published += 1
    channel.confirms.accept(1, (ended,))
    scene.node.durability.wait(channel, channel.confirms)
    scene.harness.step()
    assert client.expect(Basic.Ack).delivery_tag == 1


def test_a_queue_that_is_kept_while_its_leader_moves_gives_nothing(scene: Scene) -> None:
    declared(scene)
    queue = scene.node.queues["/", "q"]
    scene.end()
    answers: list[object] = []
    queue.get(False, lambda piece: bool(answers.append(piece)))
    assert answers == [None]


@pytest.mark.parametrize("first", ["alarm", "cut off"])
def test_who_is_blocked_for_two_reasons_is_told_once_and_goes_on_when_both_have_ended(
    scene: Scene, first: str
) -> None:
    client, node, harness = declared(scene), scene.node, scene.harness
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"m", "q", delivery_mode=2)

    def alarm(on: bool) -> None:
        node.alarms.put("memory", "watch", on, 0)
        if on:
            client.publish(b"m", "q", delivery_mode=2)
        harness.step()

    def cut_off(on: bool) -> None:
        node.cut_off([scene.lane] if on else [])
        harness.step()

    one, other = (alarm, cut_off) if first == "alarm" else (cut_off, alarm)
    one(True)
    assert len(client.take(Connection.Blocked)) == 1
    other(True)
    assert not client.take(Connection.Blocked), "once, as by RabbitMQ"
    one(False)
    assert not client.take(Connection.Unblocked)
    other(False)
    assert len(client.take(Connection.Unblocked)) == 1


def test_a_node_without_links_refuses_new_quorum_queues_at_once_and_says_why(scene: Scene) -> None:
    client, cluster, waits = declared(scene), scene.harness.cluster, list[object]()
    cluster.isolated = "node c@x has no link to a majority of the cluster's nodes (a@x refuses c@x: why)"
    cluster.want = lambda wanted, answer: waits.append(answer)
    client.declare("classic", durable=True)
    assert client.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).queue == "q"
    client.send(Queue.Declare(queue="new", durable=True, arguments=dict[str, Any](QUORUM)))
    [closed] = client.take(commands.Channel.Close)
    assert closed.reply_code == 406
    assert closed.reply_text == (
        "PRECONDITION_FAILED - queue 'new' in vhost '/' cannot be declared here: node c@x has no link to a majority "
        "of the cluster's nodes (a@x refuses c@x: why)"
    )
    assert waits == []


def test_who_waits_for_a_source_at_a_node_that_loses_its_links_is_told_why(scene: Scene) -> None:
    cluster, waits = scene.harness.cluster, list[object]()
    cluster.want = lambda wanted, answer: waits.append(answer)
    client = scene.harness.client()
    balanced: Any = {**QUORUM, "x-queue-leader-locator": "balanced"}
    client.send(Queue.Declare(queue="new", durable=True, arguments=balanced))
    [answer] = waits
    cluster.isolated = "node c@x has no link to a majority of the cluster's nodes (why)"
    answer(False)  # type: ignore[operator]
    scene.harness.step()
    [closed] = client.take(commands.Channel.Close)
    assert closed.reply_text.endswith(
        "cannot be declared here: node c@x has no link to a majority of the cluster's nodes (why)"
    )
    assert len(waits) == 1, "it is not asked for again"


def test_who_waits_for_a_majority_is_told_and_who_comes_is_refused(scene: Scene) -> None:
    scene.begin()
    harness, node = scene.harness, scene.node
    capable, other = harness.client(), harness.client()
    plain = harness.client(**{"connection.blocked": False})
    capable.declare("q", durable=True, arguments=QUORUM)
    other.declare("classic", durable=True)
    for client, queue in ((capable, "q"), (plain, "q"), (other, "classic")):
        client.call(Confirm.Select(), Confirm.SelectOk)
        client.publish(b"m", queue, delivery_mode=2)
    node.cut_off([scene.lane])
    harness.step()
    [blocked] = capable.take(Connection.Blocked)
    assert "majority" in blocked.reason
    assert not plain.take(Connection.Blocked)
    assert not other.take(Connection.Blocked)
    node.cut_off([scene.lane])
    harness.step()
    assert not capable.take(Connection.Blocked), "once"
    for asked in (Queue.Declare(queue="q", passive=True), Basic.Get(queue="q"), Basic.Consume(queue="q")):
        new = harness.client()
        new.send(asked)
        [closed] = new.take(commands.Channel.Close)
        assert closed.reply_code == 404
        assert "a majority of the nodes that keep it does not answer" in closed.reply_text
    # It answers again.
    scene.report()
    node.cut_off([])
    harness.step()
    assert capable.take(Connection.Unblocked)
    assert capable.take(Basic.Ack)
    assert harness.client().call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk).queue == "q"
    # And then it does not for too long: who waits is sent away.
    capable.publish(b"m", "q", delivery_mode=2)
    node.cut_off([scene.lane])
    scene.end()
    [end] = capable.take(Connection.Close)
    assert (end.reply_code, "majority" in end.reply_text) == (320, True)
    # The last word: a client may take anything behind it for an error.
    node.cut_off([])
    harness.step()
    assert capable.take(Connection.Unblocked) == []
    assert not other.closed
    assert not plain.take(Connection.Close), "nothing of it waits"


def test_who_is_blocked_by_an_alarm_already_is_not_told_again(scene: Scene) -> None:
    scene.begin()
    harness, node = scene.harness, scene.node
    client = harness.client()
    client.declare("q", durable=True, arguments=QUORUM)
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"m", "q", delivery_mode=2)
    node.alarms.put("memory", "watch", True, 0)
    client.publish(b"m", "q", delivery_mode=2)
    assert len(client.take(Connection.Blocked)) == 1
    node.cut_off([scene.lane])
    harness.step()
    assert client.take(Connection.Blocked) == []
    node.alarms.put("memory", "watch", False, 0)
    harness.step()
    assert client.take(Connection.Unblocked) == []
    scene.report()
    node.cut_off([])
    harness.step()
    assert len(client.take(Connection.Unblocked)) == 1
