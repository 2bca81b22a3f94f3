"""What ended the node, or held it for ever, and was no fault of more than one client: each is a story of its own.

How far a fault reaches is in `test_containment.py`; here nothing is injected.
"""

from __future__ import annotations

from typing import Any

from pamqp import commands
from pamqp.exceptions import AMQPResourceError

from amqpd.topology import plans
from amqpd.topology.order import ChangeOrder
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, Delete, ExchangeRecord, Put, QueueRecord
from tests.harness.harness import Client, Harness


def test_a_chain_of_full_queues_with_consumers_does_not_recurse() -> None:
    """Each queue holds one message at most, refuses more, and its dead letters go to the next one. Who asks a queue
    for space must not dispatch it, and so the next one, and so all."""
    harness = Harness()
    client = harness.client()
    length = 300
    for number in range(length):
        arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish", "x-message-ttl": 1000}
        if number + 1 < length:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"chain.{number + 1}"}
        client.declare(f"chain.{number}", arguments=arguments)
    # A consumer without credit on each: then a full queue is dispatched to see whether it can make space.
    client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    for number in range(length):
        client.consume(f"chain.{number}", f"c{number}")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for number in range(length):
        client.publish(b"taken", f"chain.{number}")
        client.publish(b"waits", f"chain.{number}")
    assert len(client.bodies()) == length
    harness.node.now_ms += 1500
    client.publish(b"behind", "chain.0")
    assert not harness.bugs
    assert not client.closed
    assert conserved(harness, length)


def conserved(harness: Harness, length: int) -> bool:
    return sum(queue.backlog.unacked for queue in harness.node.queues.values()) == length


def test_a_vhost_goes_while_a_message_with_a_dead_letter_exchange_expires() -> None:
    """The queue's record and the virtual host's are deleted by different changes; in between it expires."""
    harness = Harness()
    harness._apply(plans.create_vhost("short"))
    client = Client(harness)
    client.open("short")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"})
    client.declare("other")
    client.publish(b"x", "q", expiration="1000")
    queue = harness.node.queues["short", "q"]
    harness.topology.vhosts.pop("short")
    harness.node.now_ms += 2000
    harness.node.tick()
    assert not harness.bugs
    assert queue.backlog.ready == 0


class FullStore:
    """Takes the first submissions; then too many wait, and only deletions are taken."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.submitted: list[Any] = []

    def submit(self, changes: Any, resume: Any, *_: Any) -> None:
        if self.space <= 0 and not all(type(change).__name__ == "Delete" for change in changes):
            raise AMQPResourceError("too many changes are waiting")
        self.space -= 1
        self.submitted.append((changes, resume))


def binding(number: int) -> BindingRecord:
    return BindingRecord("/", "x", "q", "queue", f"k{number}", durable=True)


def test_bindings_that_cannot_be_submitted_are_refused_once_and_not_for_ever() -> None:
    """They wait behind a removal; when their turn comes, the store has no space. Whoever asked asks again at once."""
    topology = Topology()
    store = FullStore(space=1)
    bugs: list[Exception] = []
    order = ChangeOrder(topology, store.submit, bugs.append)
    topology.apply(plans.create_vhost("/"))
    q = QueueRecord("/", "q", 1, durable=True)
    topology.apply([Put(ExchangeRecord("/", "x", "direct", durable=True)), Put(q)])
    order.bind(binding(9), lambda _: None)
    order.remove(q, lambda _: None)
    errors: list[str] = []

    def ask_again(number: int) -> Any:
        def resume(made: bool) -> None:
            assert not made
            try:
                order.bind(binding(number), ask_again(number))
            except AMQPResourceError as error:
                errors.append(str(error))

        return resume

    for number in range(3):
        order.bind(binding(number), ask_again(number))
    store.submitted.pop(0)[1](True)
    assert [type(changes[0]) for changes, _ in store.submitted] == [Delete]
    store.submitted[0][1](True)
    assert len(errors) == 3
    assert not bugs


def fanout(count: int) -> tuple[Harness, Client]:
    """This many durable queues behind amq.fanout; the disk has 100 MB for the journal."""
    harness = Harness()
    client = harness.client()
    for number in range(count):
        client.declare(f"q{number}", durable=True)
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    harness.node.disk_space.told(100_000_000)
    return harness, client


def test_a_message_whose_copies_do_not_fit_on_the_disk_is_refused_before_any_queue_has_it() -> None:
    harness, client = fanout(20)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(bytes(5_000_000), "", "amq.fanout", delivery_mode=2)
    assert [nack.delivery_tag for nack in client.take(commands.Basic.Nack)] == [1]
    assert not any(queue.backlog.ready for queue in harness.node.queues.values())
    # What fits, and what nobody has to store, is taken; so is another's message.
    client.publish(bytes(1_000_000), "", "amq.fanout", delivery_mode=2)
    client.publish(bytes(5_000_000), "", "amq.fanout")
    client.publish(bytes(5_000_000), "q1", delivery_mode=2)
    assert len(client.take(commands.Basic.Ack)) == 3
    assert not harness.bugs


def test_what_was_taken_counts_until_a_reading_has_seen_it() -> None:
    harness, client = fanout(20)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for _ in range(2):
        client.publish(bytes(2_000_000), "", "amq.fanout", delivery_mode=2)
    assert [type(each).__name__ for each in client.take((commands.Basic.Ack, commands.Basic.Nack))] == ["Ack", "Nack"]
    harness.node.disk_space.told(100_000_000)
    client.publish(bytes(2_000_000), "", "amq.fanout", delivery_mode=2)
    assert client.take(commands.Basic.Ack)


def test_copies_that_consumers_settled_before_they_were_written_count_no_longer_than_others() -> None:
    harness, client = fanout(20)
    takers = [harness.client() for _ in range(20)]
    for number, taker in enumerate(takers):
        taker.consume(f"q{number}", no_ack=True)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    answers: list[str] = []
    for _ in range(6):
        harness.node.disk_space.told(100_000_000)
        client.publish(bytes(1_000_000), "", "amq.fanout", delivery_mode=2)
        for taker in takers:
            taker.bodies()
        answers += [type(each).__name__ for each in client.take((commands.Basic.Ack, commands.Basic.Nack))]
    assert answers == ["Ack"] * 6


def test_who_waits_for_no_confirm_learns_by_406_that_the_copies_do_not_fit() -> None:
    _, client = fanout(20)
    client.publish(bytes(5_000_000), "", "amq.fanout", delivery_mode=2)
    close = client.expect(commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(bytes(5_000_000), "", "amq.fanout", delivery_mode=2)
    client.send(commands.Tx.Commit())
    assert client.expect(commands.Channel.Close).reply_text == "PRECONDITION_FAILED - partial tx completion"


def test_a_dead_letter_whose_copies_do_not_fit_is_lost_and_its_queue_goes_on() -> None:
    harness, client = fanout(20)
    client.declare("source", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.publish(bytes(5_000_000), "source", delivery_mode=2, expiration="1000")
    client.publish(b"stays", "source", delivery_mode=2)
    harness.node.now_ms += 2000
    harness.step()
    assert not any(harness.node.queues["/", f"q{number}"].backlog.ready for number in range(20))
    client.consume("source")
    assert client.bodies() == [b"stays"]
    assert not harness.bugs
