"""A source with very many queues begins at a node: nobody waits for all of them.

What is verified: how many queues are made in one tick, what a client meets that asks for one of the others, what
becomes of them when the source ends or they are deleted meanwhile. Not verified here: what a queue recovers
(`tests/queues`), how the leader moves (`test_source_moves.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pamqp import commands, frame

from amqpd import KERNEL
from amqpd.flow.turns import TURN_WORK_MAX
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow
from amqpd.management.across_nodes.led_queues import ROWS_AT_ONCE
from amqpd.management.figures.overview import overview, vhosts
from amqpd.management.messages.leader_queues import leader_queue
from amqpd.node.dispatching import QUEUES_SHARE_MIN, QUEUES_WORK_MAX
from amqpd.node.queue_registry import BEGIN_WORK, ROW_WORK
from amqpd.publishing.acceptance import COPIES_AT_ONCE
from amqpd.publishing.routing import MAKING_WORK
from amqpd.queues.queue import Queue
from amqpd.remote.queue import RemoteQueue
from amqpd.scrub import FENCED, DamagedRow, damage_found
from amqpd.vocabulary.records import BindingRecord, Delete, Put, QueueRecord
from tests.harness.harness import Client, publish_bytes
from tests.management.rig import listed, rows_of
from tests.node.test_source_moves import QUORUM, SOURCE, Scene

QUEUES = 1_000
IN_A_TICK_MAX = 1 + (QUEUES_WORK_MAX - QUEUES_SHARE_MIN) // BEGIN_WORK
LAST = f"q{QUEUES - 1}"

Basic, Queues, Tx = commands.Basic, commands.Queue, commands.Tx


def record(number: int) -> QueueRecord:
    return QueueRecord("/", f"q{number}", (number + 1) << 20, arguments=QUORUM, source=SOURCE)


class Many(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.client: Client = self.harness.client()
        changes = [Put(record(number)) for number in range(QUEUES)]
        self.node.topology.apply(changes)
        self.node.applied(changes)
        self.harness.automatic = False

    def begin_with(self, rows: dict[int, int] | None = None) -> None:
        """`rows`: messages by the number of the queue."""
        found = {
            record(number).id: RecoveredQueue([RecoveredRow(0, count - 1, 20 * count, epoch=1)], count, 0)
            for number, count in (rows or {}).items()
        }
        self.begin(Recovered(0, found))

    def begin_with_rows(self, rows: int, queues: int = 100) -> None:
        """In each of the first queues, each of one message."""
        found = [RecoveredRow(seq, seq, 20, epoch=1) for seq in range(rows)]
        self.begin(Recovered(0, {record(number).id: RecoveredQueue(found, rows, 0) for number in range(queues)}))

    @property
    def made(self) -> int:
        return len(self.node.queues)

    def go_on(self) -> None:
        """To the end."""
        while self.node.behind:
            self.harness.tick()

    def apply(self, *changes: Put | Delete) -> None:
        self.node.topology.apply(changes)
        self.node.applied(changes)


@pytest.fixture
def many() -> Many:
    return Many()


def test_a_tick_makes_some_of_the_queues_until_all_are_there(many: Many) -> None:
    """All at once, a third of a hundred thousand kept the loop for longer than a lease: other nodes took the source
    over, and met the same."""
    many.begin_with()
    before = many.made
    assert before <= IN_A_TICK_MAX
    ticks = 0
    while many.node.behind:
        many.harness.tick()
        ticks += 1
        assert 0 < many.made - before <= IN_A_TICK_MAX or many.made == QUEUES
        before = many.made
    assert many.made == QUEUES
    assert not many.node.remote
    assert ticks >= QUEUES // IN_A_TICK_MAX - 1


def test_a_queue_that_somebody_asks_for_is_there_at_once(many: Many) -> None:
    many.begin_with({QUEUES - 1: 3})
    assert many.made < QUEUES
    many.harness.automatic = True
    declare_ok = many.client.call(Queues.Declare(queue=LAST, passive=True), Queues.DeclareOk)
    assert declare_ok.message_count == 3


def test_a_queue_takes_as_much_of_a_tick_as_it_has_rows(many: Many) -> None:
    """Or one tick built all rows of all queues, and nobody was served meanwhile."""
    rows = 100
    many.begin_with_rows(rows)
    for _ in range(5):
        before = many.made
        many.harness.tick()
        assert 0 < many.made - before <= 1 + QUEUES_WORK_MAX // (BEGIN_WORK + rows * ROW_WORK)


def test_queues_with_very_many_rows_leave_the_others_their_share_of_a_tick(many: Many) -> None:
    many.harness.automatic = True
    client = many.harness.client()
    client.declare("other")
    client.consume("other", no_ack=True)
    many.harness.automatic = False
    many.begin_with_rows(QUEUES_WORK_MAX // ROW_WORK, 30)
    many.harness.tick()
    client.publish(b"one", "other")
    many.harness.tick()
    many.harness.answer()
    client.collect()
    assert client.bodies() == [b"one"]
    assert many.made < 30


def test_what_a_source_has_is_counted_once_however_often_it_is_asked_for() -> None:
    """By the thread that reads the disk: there may be very many rows."""
    rows = [RecoveredRow(0, 9, 20, [(2, 4)], epoch=3), RecoveredRow(10, 10, 20, epoch=3)]
    rows.append(RecoveredRow(11, 11, 2, epoch=5))
    recovered = Recovered(0, {256: RecoveredQueue(rows, 12, 0), 512: RecoveredQueue([], 5, 0)})
    standing = recovered.standing()
    assert standing == ({256: 9}, 9, {256: [(3, 0), (5, 11)]})
    assert recovered.standing() is standing


@pytest.mark.skipif(KERNEL != "python", reason="replaces a method of a compiled class")
def test_a_queue_that_cannot_be_made_keeps_its_name(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the node ends, which an error of its own leads to."""
    many.begin_with()
    with monkeypatch.context() as patched:
        patched.setattr(many.node.registry, "_made", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            many.node.ports.get(("/", LAST))
    assert ("/", LAST) in many.node.ports
    assert isinstance(many.node.ports.get(("/", LAST)), Queue)


def test_asking_makes_no_other_queue(many: Many) -> None:
    many.begin_with()
    before = many.made
    assert isinstance(many.node.ports.get(("/", LAST)), Queue)
    assert many.made == before + 1
    many.go_on()
    assert many.made == QUEUES


def test_a_message_is_taken_by_a_queue_that_was_not_made_yet(many: Many) -> None:
    many.begin_with()
    many.client.publish(b"one", LAST, delivery_mode=2)
    assert many.node.queues["/", LAST].ready_count == 1
    many.go_on()
    assert many.node.queues["/", LAST].ready_count == 1


def test_an_operator_who_asks_meets_it_too(many: Many) -> None:
    many.begin_with({QUEUES - 1: 3})
    assert leader_queue(many.node, "/", LAST).ready_count == 3


def test_messages_of_all_queues_are_theirs_in_the_end(many: Many) -> None:
    many.begin_with(dict.fromkeys(range(0, QUEUES, 7), 2))
    many.go_on()
    assert [many.node.queues["/", f"q{number}"].ready_count for number in range(QUEUES)] == [
        0 if number % 7 else 2 for number in range(QUEUES)
    ]
    assert "messages_without_queue" not in dict(many.harness.logged)


def test_what_is_there_may_have_been_delivered_by_another_leader(many: Many) -> None:
    """Whatever the log says of that: a leader delivers before it is committed."""
    many.begin_with({0: 5})
    many.go_on()
    queue = many.node.queues["/", "q0"]
    many.harness.automatic = True
    many.client.publish(b"new", "q0")
    assert queue.redelivered() == [(0, 4)]
    assert [next(iter(queue.levels())).is_redelivered(seq) for seq in range(6)] == [True] * 5 + [False]


def test_a_source_that_ends_before_it_has_begun_leaves_no_queue(many: Many) -> None:
    many.begin_with()
    many.end()
    assert many.made == 0
    assert isinstance(many.node.ports.get(("/", LAST)), RemoteQueue)
    many.go_on()
    assert many.made == 0
    many.begin_with({QUEUES - 1: 1})
    many.go_on()
    assert many.made == QUEUES
    assert many.node.queues["/", LAST].ready_count == 1


def test_a_queue_that_is_deleted_before_it_was_made_leaves_the_disk(many: Many) -> None:
    many.begin_with({QUEUES - 1: 3})
    many.apply(Delete(record(QUEUES - 1).key))
    many.go_on()
    assert many.made == QUEUES - 1
    [entry] = [each for each in many.node.journal.take().entries if each.dropped]
    assert entry.dropped == [record(QUEUES - 1).id]
    assert "messages_without_queue" not in dict(many.harness.logged)


def test_a_queue_that_appears_meanwhile_has_what_is_there_of_it(many: Many) -> None:
    many.begin_with({QUEUES: 4})
    many.apply(Put(record(QUEUES)))
    many.go_on()
    assert many.node.queues["/", f"q{QUEUES}"].ready_count == 4
    assert "messages_without_queue" not in dict(many.harness.logged)


def test_messages_of_a_queue_that_is_unknown_are_told_when_all_others_are_made(many: Many) -> None:
    many.begin_with({QUEUES: 4})
    assert "messages_without_queue" not in dict(many.harness.logged)
    many.go_on()
    assert dict(many.harness.logged)["messages_without_queue"]["queues"] == 1
    many.apply(Put(record(QUEUES)))
    assert many.node.queues["/", f"q{QUEUES}"].ready_count == 4


STEP_MAX = 1 + TURN_WORK_MAX // BEGIN_WORK + MAKING_WORK // BEGIN_WORK


def bind_all(many: Many) -> None:
    many.apply(*[Put(BindingRecord("/", "amq.fanout", f"q{number}", "queue", "")) for number in range(QUEUES)])


def begin_without_time(many: Many, rows: dict[int, int] | None = None) -> None:
    """No tick has any for the queues: they are made for those that ask only."""
    many.node.work_left = 0
    many.begin_with(rows)
    assert many.made == 0


def made_in_turns(many: Many) -> list[int]:
    """How many of them each turn of the client makes."""
    found = [many.made]
    while many.node.turns.waiting:
        before = many.made
        many.node.turns.begin(0)
        many.node.turns.next()
        found.append(many.made - before)
    return found


def test_a_publish_to_very_many_queues_makes_them_in_turns(many: Many) -> None:
    """At once, a fanout with 33,000 bindings kept everybody for seconds."""
    bind_all(many)
    begin_without_time(many)
    many.client.connection.receive(publish_bytes(b"one", "", "amq.fanout", 1, False, delivery_mode=2))
    assert max(made_in_turns(many)) <= STEP_MAX
    many.go_on()
    assert all(queue.ready_count == 1 for queue in many.node.queues.values())
    assert many.made == QUEUES


def test_a_commit_to_very_many_queues_makes_them_in_turns(many: Many) -> None:
    bind_all(many)
    many.harness.automatic = True
    many.client.call(Tx.Select(), Tx.SelectOk)
    many.client.publish(b"one", "", "amq.fanout", delivery_mode=2)
    many.harness.automatic = False
    begin_without_time(many)
    many.client.connection.receive(frame.marshal(Tx.Commit(), 1))
    assert max(made_in_turns(many)) <= STEP_MAX
    many.go_on()
    assert all(queue.ready_count == 1 for queue in many.node.queues.values())
    assert many.made == QUEUES


def test_a_client_that_names_very_many_queues_makes_them_in_turns(many: Many) -> None:
    begin_without_time(many)
    names = [f"q{number}" for number in range(QUEUES)]
    frames = [frame.marshal(Queues.Declare(queue=name, passive=True, nowait=True), 1) for name in names]
    many.client.connection.receive(b"".join(frames))
    assert max(made_in_turns(many)) <= STEP_MAX
    assert many.made == QUEUES


def test_a_queue_that_is_deleted_between_two_turns_of_a_publish_gets_nothing(many: Many) -> None:
    some = 3 * STEP_MAX  # more, and each would be looked at once more when it is given its copy
    assert some <= COPIES_AT_ONCE
    many.apply(*[Put(BindingRecord("/", "amq.fanout", f"q{number}", "queue", "")) for number in range(some)])
    begin_without_time(many)
    many.client.connection.receive(publish_bytes(b"one", "", "amq.fanout", 1, False, delivery_mode=2))
    while not many.made:
        many.node.turns.begin(0)
        many.node.turns.next()
    gone = next(iter(many.node.queues.values()))
    assert many.node.turns.waiting
    many.apply(Delete(gone.record.key))
    made_in_turns(many)
    assert many.made == some - 1
    assert all(queue.ready_count == 1 for queue in many.node.queues.values())
    assert gone.facts.accepted == 0


def test_what_holds_the_journal_gets_on_while_a_source_begins(many: Many) -> None:
    some = 2 * STEP_MAX
    many.apply(*[Put(BindingRecord("/", "amq.fanout", f"q{number}", "queue", "")) for number in range(some)])
    many.harness.automatic = True
    many.client.call(
        commands.Exchange.Declare(exchange="kept", exchange_type="x-recent-history"), commands.Exchange.DeclareOk
    )
    many.client.publish(b"one", "", "kept")
    many.harness.automatic = False
    begin_without_time(many)
    many.apply(Put(BindingRecord("/", "kept", "amq.fanout", "exchange", "")))
    assert many.node.dispatching.holds
    while many.node.dispatching.holds:
        many.node.tick()
    assert many.made < QUEUES


def test_a_history_that_goes_to_very_many_queues_makes_them_in_ticks(many: Many) -> None:
    bind_all(many)
    many.harness.automatic = True
    many.client.call(
        commands.Exchange.Declare(exchange="kept", exchange_type="x-recent-history"), commands.Exchange.DeclareOk
    )
    many.client.publish(b"one", "", "kept")
    many.harness.automatic = False
    begin_without_time(many)
    many.apply(Put(BindingRecord("/", "kept", "amq.fanout", "exchange", "")))
    before = many.made
    while many.node.behind:
        many.node.tick()
        assert many.made - before <= 2 * STEP_MAX
        before = many.made
    assert all(queue.ready_count == 1 for queue in many.node.queues.values())
    assert many.made == QUEUES


def test_a_listing_says_what_is_in_a_queue_that_was_not_made_yet(many: Many) -> None:
    async def pages() -> AsyncGenerator[list[dict[str, Any]], None]:
        rows = listed(many.node)
        yield await anext(rows)
        begin_without_time(many, {QUEUES - 1: 3})
        async for page in rows:
            yield page

    found = {row["name"]: row for row in rows_of(pages())}
    assert [row["state"] for row in found.values()] == ["down"] * ROWS_AT_ONCE + ["running"] * (QUEUES - ROWS_AT_ONCE)
    assert found[LAST]["messages"] == 3
    assert found["q0"]["messages"] is None, "it was not made when its row was: nobody knew"


def test_sums_have_what_is_in_queues_that_are_not_made_yet(many: Many) -> None:
    """Or all messages of a source seemed to be lost, and to come back one by one."""
    begin_without_time(many, {1: 4, QUEUES - 1: 3})
    for asked in (0, 1, 2):
        [vhost] = vhosts(many.node, {})
        assert (overview(many.node)["messages_ready"], vhost["messages_ready"]) == (7, 7)
        if asked == 0:
            many.node.ports.get(("/", LAST))
        else:
            many.go_on()


def test_damage_of_a_queue_that_is_not_made_yet_fences_it(many: Many) -> None:
    begin_without_time(many, {QUEUES - 1: 3})
    damaged = DamagedRow(record(QUEUES - 1).id, 0, 2, "its checksum does not fit")
    [outcome] = damage_found(many.node, [damaged])
    assert outcome == (FENCED, many.node.queues["/", LAST])
    assert many.made == 1
