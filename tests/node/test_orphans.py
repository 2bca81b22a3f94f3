"""Messages whose queue is unknown at the start: which are parked and which dropped, and that nothing touches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from amqpd.journal.records import RecoveredQueue, RecoveredRow
from amqpd.management.figures.overview import overview
from amqpd.node.orphans import Orphan, done_with, grouped, parted
from amqpd.queues.settings import PRIORITY_MAX
from amqpd.topology import plans
from amqpd.vocabulary.journal_numbers import delayed_id
from amqpd.vocabulary.records import Delete, ExchangeRecord, QueueRecord, UnreadableQueue, VhostRecord
from tests.harness.harness import Client, Harness

DELAYED = {"exchange_type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}


def is_a(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, kind)


LOST = is_a(QueueRecord)


def restart(harness: Harness, loses: Callable[[Any], bool] = LOST) -> Client:
    """The node dies, and the metadata that it finds again have lost something."""
    harness.loses = loses
    harness.restart()
    harness.loses = lambda record: False
    harness.step()
    return harness.client()


def only(harness: Harness) -> Orphan:
    (orphan,) = harness.node.orphans
    return orphan


def filled(harness: Harness, count: int = 3, name: str = "q", **options: Any) -> Client:
    client = harness.client()
    client.declare(name, durable=True, **options)
    for number in range(count):
        client.publish(b"%d" % number, name, delivery_mode=2)
    return client


def test_what_a_lost_queue_had_is_parked_and_untouched() -> None:
    harness = Harness()
    harness.node.now_ms = 5_000
    filled(harness)
    queue_id = harness.node.queues["/", "q"].record.id
    rows = dict(harness.rows[queue_id])
    restart(harness)
    orphan = only(harness)
    assert (orphan.id, orphan.ids, orphan.ready_count, orphan.ready_bytes) == (queue_id, [queue_id], 3, 3)
    facts = orphan.facts_of()
    assert (facts["id"], facts["messages"], facts["bytes"]) == (str(queue_id), 3, 3)
    assert (facts["oldest_ms"], facts["newest_ms"]) == (5_000, 5_000)
    assert harness.rows[queue_id] == rows
    assert ("/", "q") not in harness.node.queues
    logged = [fields for event, fields in harness.logged if event == "orphans_parked"]
    assert [(each["orphans"], each["messages"], each["bytes"]) for each in logged] == [(1, 3, 3)]
    assert "amqpd orphans list" in logged[0]["remedy"]
    sums = overview(harness.node)
    assert (sums["orphans"], sums["messages_orphaned"], sums["messages_ready"]) == (1, 3, 0)
    # The next start finds them again, and so does one that knows the queue: that is the way back to newer metadata.
    restart(harness)
    assert only(harness).ready_count == 3


def test_metadata_that_know_the_queue_again_have_its_messages_again() -> None:
    harness = Harness()
    filled(harness)
    known = harness.topology
    restart(harness)
    assert len(harness.node.orphans) == 1
    harness.topology = known
    client = restart(harness, lambda record: False)
    assert not harness.node.orphans
    client.consume("q")
    assert client.bodies() == [b"0", b"1", b"2"]


def test_nothing_of_an_orphan_expires() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=True)
    client.publish(b"short", delivery_mode=2, expiration="1000")
    restart(harness)
    harness.node.now_ms = 3_600_000
    harness.step()
    assert only(harness).ready_count == 1
    assert not harness.reads


def test_a_recorded_deletion_drops_what_the_journal_still_has() -> None:
    harness = Harness(automatic=False)
    harness.catches_up = True
    client = Client(harness)
    harness.automatic = True
    client.open()
    client.declare("gone", durable=True)
    client.declare("levels", durable=True, arguments={"x-max-priority": 9})
    client.publish(b"x", "gone", delivery_mode=2)
    client.publish(b"x", "levels", delivery_mode=2, priority=7)
    ids = [harness.node.queues["/", name].record.id for name in ("gone", "levels")]
    harness.automatic = False
    for name in ("gone", "levels"):
        client.send(commands.Queue.Delete(queue=name))
        harness.answer()
    assert harness.node.journal.pending, "the journal has not dropped them yet, and now the node dies"
    assert ids[1] + 7 in harness.rows
    harness.automatic = True
    restart(harness, lambda record: False)
    assert not harness.node.orphans
    assert harness.rows.keys().isdisjoint((ids[0], ids[1] + 7))


def test_a_lost_queue_without_messages_is_dropped() -> None:
    harness = Harness()
    client = filled(harness, 2)
    client.consume("q", no_ack=True)
    assert client.bodies() == [b"0", b"1"]
    queue_id = harness.node.queues["/", "q"].record.id
    assert queue_id in harness.delivered
    restart(harness)
    assert not harness.node.orphans
    assert queue_id not in harness.delivered
    assert not [event for event, _ in harness.logged if event == "orphans_parked"]


def test_the_levels_of_a_priority_queue_are_one_orphan() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=True, arguments={"x-max-priority": 9})
    for priority in (3, 9, 3):
        client.publish(b"%d" % priority, delivery_mode=2, priority=priority)
    base = harness.node.queues["/", "q"].record.id
    restart(harness)
    orphan = only(harness)
    assert (orphan.id, orphan.ids) == (base + 3, [base + 3, base + 9])
    assert [level.queue_id for level in orphan.levels_in_order()] == [base + 9, base + 3]
    assert (orphan.ready_count, orphan.facts_of()["levels"]) == (3, 2)


def test_delayed_messages_of_a_lost_virtual_host_are_parked_and_wait_again() -> None:
    harness = Harness()
    harness._apply(plans.create_vhost("v"))
    client = Client(harness)
    client.open("v")
    client.call(commands.Exchange.Declare(exchange="later", durable=True, **DELAYED), commands.Exchange.DeclareOk)
    client.declare("q", durable=True)
    client.call(commands.Queue.Bind(queue="q", exchange="later", routing_key="q"), commands.Queue.BindOk)
    client.publish(b"x", exchange="later", headers={"x-delay": 1_000}, delivery_mode=2)
    restart(harness, lambda record: isinstance(record, VhostRecord) and record.name == "v")
    assert only(harness).id == delayed_id(Harness.identity.id, "v")
    # The virtual host is made again, and its exchange. While the old ones are parked, no new ones are taken.
    harness._apply(plans.create_vhost("v"))
    again = Client(harness)
    again.open("v")
    again.call(commands.Exchange.Declare(exchange="later", durable=True, **DELAYED), commands.Exchange.DeclareOk)
    again.declare("q", durable=True)
    again.call(commands.Queue.Bind(queue="q", exchange="later", routing_key="q"), commands.Queue.BindOk)
    again.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    again.publish(b"new", exchange="later", headers={"x-delay": 1_000}, delivery_mode=2)
    assert again.take(commands.Basic.Nack)
    harness.node.registry.give_back("v", only(harness))
    assert not harness.node.orphans
    again.publish(b"newer", exchange="later", headers={"x-delay": 2_000}, delivery_mode=2)
    assert again.take(commands.Basic.Ack)
    again.consume("q")
    assert again.bodies() == []
    for now_ms in (1_500, 2_500):
        harness.node.now_ms = now_ms
        harness.step()
    assert again.bodies() == [b"x", b"newer"]


@pytest.mark.parametrize(("suspect", "other"), [(True, False), (False, True)])
def test_delayed_messages_wait_when_their_exchanges_may_be_missing(suspect: bool, other: bool) -> None:
    harness = Harness()
    client = filled(harness, count=int(other))
    client.call(commands.Exchange.Declare(exchange="later", durable=True, **DELAYED), commands.Exchange.DeclareOk)
    client.publish(b"x", exchange="later", headers={"x-delay": 1_000}, delivery_mode=2)
    if suspect:
        ended = harness.node_class.recovery_ended

        class Suspicious(harness.node_class):  # type: ignore[name-defined,misc]
            def recovery_ended(self, dropped: Any = (), suspect: bool = False) -> None:
                ended(self, dropped, True)

        harness.node_class = Suspicious
        restart(harness, is_a(QueueRecord))
    else:
        restart(harness, is_a((QueueRecord, ExchangeRecord)))  # type: ignore[arg-type]
    assert delayed_id(Harness.identity.id, "/") in [orphan.id for orphan in harness.node.orphans]
    harness.node.now_ms = 2_000
    harness.step()
    assert sum(orphan.ready_count for orphan in harness.node.orphans) == 1 + other


def test_delayed_messages_of_metadata_that_have_their_exchange_go_on() -> None:
    harness = Harness()
    client = filled(harness, 1)
    client.call(commands.Exchange.Declare(exchange="later", durable=True, **DELAYED), commands.Exchange.DeclareOk)
    client.publish(b"x", exchange="later", headers={"x-delay": 1_000}, delivery_mode=2)
    restart(harness)
    assert only(harness).id != delayed_id(Harness.identity.id, "/")
    assert harness.node.delayed["/"].backlog.ready == 1


def row(last: int = 0) -> RecoveredQueue:
    return RecoveredQueue([RecoveredRow(0, last, 20)], last + 1, 0)


MARK = RecoveredQueue([], 5, 5)


@pytest.mark.parametrize(
    ("found", "dropped", "gone", "parked"),
    [
        ({1000: row()}, (), [], [1000]),
        ({1000: row()}, (1000,), [1000], []),
        ({1000: row(), 1255: row()}, (1000,), [1000, 1255], []),
        ({1000: row(), 1256: row()}, (1000,), [1000], [1256]),
        ({1000: row()}, (1001,), [], [1000]),
        ({1000: MARK, 5000: row()}, (), [1000], [5000]),
        ({1000: MARK, 1003: row()}, (), [], [1000, 1003]),
        ({1000: row(), 1300: row(), 9000: row()}, (900, 1299), [1000, 1300], [9000]),
    ],
)
def test_which_are_dropped_and_which_are_parked(
    found: dict[int, RecoveredQueue], dropped: tuple[int, ...], gone: list[int], parked: list[int]
) -> None:
    result = parted(found, found, dropped)
    assert (sorted(result[0]), sorted(result[1])) == (gone, parked)


def test_a_deletion_need_not_be_recorded_when_the_journal_has_nothing_of_it() -> None:
    assert done_with([5, 1000, 2000, 9000], [7, 1000 + PRIORITY_MAX, 2001 + PRIORITY_MAX]) == {2000, 9000}
    assert done_with([5], []) == {5}


def test_ids_that_are_near_are_levels() -> None:
    assert grouped([700, 3, 3 + PRIORITY_MAX, 4 + PRIORITY_MAX]) == [[3, 258], [259], [700]]


def test_a_queue_that_is_deleted_is_no_orphan_though_others_are() -> None:
    harness = Harness()
    filled(harness, 2, "kept")
    filled(harness, 2, "deleted")
    harness._apply([Delete(("queue", "/", "deleted"))])
    harness.step()
    restart(harness)
    assert only(harness).ready_count == 2


def test_an_orphan_that_contradicts_itself_keeps_nobody_from_starting() -> None:
    harness = Harness()
    filled(harness, 1, "good")
    filled(harness, 1, "bad")
    bad_id = harness.node.queues["/", "bad"].record.id
    harness.rows[bad_id][0].deadlines = b"no deadlines"
    restart(harness)
    assert [orphan.id for orphan in harness.node.orphans] != [bad_id]
    assert only(harness).ready_count == 1
    assert harness.rows[bad_id]
    assert len(harness.bugs) == 1


def test_a_queue_whose_record_cannot_be_read_is_out_of_service_and_keeps_what_it_has() -> None:
    harness = Harness()
    filled(harness)
    queue_id = harness.node.queues["/", "q"].record.id
    rows = dict(harness.rows[queue_id])

    def unreadable(record: Any) -> Any:
        if not isinstance(record, QueueRecord):
            return record
        return UnreadableQueue(record.vhost, record.name, record.id, reason="it cannot be read")

    harness.finds = unreadable
    harness.restart()
    assert not harness.node.orphans
    assert harness.rows[queue_id] == rows
    client = harness.client()
    assert overview(harness.node)["queues_out_of_service"] == [
        {"vhost": "/", "name": "q", "reason": "it cannot be read"}
    ]
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(b"x", "q", delivery_mode=2)
    assert client.take(commands.Basic.Nack)
    client.send(commands.Queue.Declare(queue="q", durable=True))
    assert client.take(commands.Channel.Close)[0].reply_code == 404
    # It can be read again at the next start.
    harness.finds = lambda found: found if found.key[0] != "queue" else QueueRecord("/", "q", queue_id)
    harness.restart()
    consumer = harness.client()
    consumer.consume("q", "c")
    assert [message.body for message in consumer.messages()] == [b"0", b"1", b"2"]
