"""Changes of the topology that cross each other, and connections that go while one is under way."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.topology import plans
from amqpd.vocabulary.records import Delete, Put, QueueRecord
from tests.harness.harness import Client, Harness, Message, publish_bytes

Basic, Channel, Exchange, Queue, Confirm, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Exchange,
    commands.Queue,
    commands.Confirm,
    commands.Tx,
)


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def test_a_binding_made_while_its_queue_is_deleted_does_not_come_back(harness: Harness, client: Client) -> None:
    other = harness.client()
    client.declare("q")
    harness.automatic = False
    client.send(Queue.Bind(queue="q", exchange="amq.fanout"))
    other.send(Queue.Delete(queue="q"))
    harness.automatic = True
    harness.step()
    assert not list(harness.topology.vhosts["/"].bindings())
    other.collect()
    other.take(Queue.DeleteOk)
    other.declare("q")
    other.publish(exchange="amq.fanout", key="")
    assert other.declare("q", passive=True).message_count == 0


def test_a_binding_made_while_its_connection_goes_leaves_nothing(harness: Harness, client: Client) -> None:
    client.declare("mine", exclusive=True)
    harness.automatic = False
    client.send(Queue.Bind(queue="mine", exchange="amq.fanout"))
    client.connection.lost()
    harness.automatic = True
    harness.step()
    assert not list(harness.topology.vhosts["/"].bindings())
    assert not harness.node.queues


def test_queues_that_go_together_take_their_auto_delete_exchange_along(harness: Harness, client: Client) -> None:
    client.call(Exchange.Declare(exchange="x", auto_delete=True), Exchange.DeclareOk)
    for name in ("one", "two"):
        client.declare(name, exclusive=True)
        client.call(Queue.Bind(queue=name, exchange="x", routing_key="k"), Queue.BindOk)
    client.lose()
    assert "x" not in harness.topology.vhosts["/"].exchanges


def test_two_unbind_at_once_and_the_auto_delete_exchange_goes(harness: Harness, client: Client) -> None:
    client.call(Exchange.Declare(exchange="x", auto_delete=True), Exchange.DeclareOk)
    client.declare("q")
    client.channel(2)
    for key in ("a", "b"):
        client.call(Queue.Bind(queue="q", exchange="x", routing_key=key), Queue.BindOk)
    harness.automatic = False
    client.send(Queue.Unbind(queue="q", exchange="x", routing_key="a"), 1)
    client.send(Queue.Unbind(queue="q", exchange="x", routing_key="b"), 2)
    harness.automatic = True
    harness.step()
    assert "x" not in harness.topology.vhosts["/"].exchanges
    assert len(client.take(Queue.UnbindOk)) == 2


def test_an_exchange_deleted_while_it_is_bound_leaves_no_binding(harness: Harness, client: Client) -> None:
    client.channel(2)
    client.declare("q")
    client.call(Exchange.Declare(exchange="x", exchange_type="fanout"), Exchange.DeclareOk)
    harness.automatic = False
    client.send(Queue.Bind(queue="q", exchange="x"), 1)
    client.send(Exchange.Delete(exchange="x"), 2)
    harness.automatic = True
    harness.step()
    assert not list(harness.topology.vhosts["/"].bindings())


def test_binding_to_a_queue_that_was_deleted_and_made_again(harness: Harness, client: Client) -> None:
    """bind-ok means that the binding is there, whatever happened between."""
    other = harness.client()
    client.declare("q")
    harness.automatic = False
    other.send(Queue.Delete(queue="q"))
    client.send(Queue.Bind(queue="q", exchange="amq.fanout"))
    # Another node, or a later commit of ours, has made it again before the answer comes.
    (deleted, resumed, _), (bound, resume_bind, _) = harness._submitted
    harness._submitted.clear()
    harness._apply(deleted)
    resumed(True)
    harness._apply([Put(QueueRecord("/", "q", 77))])
    resume_bind(False)
    del bound
    harness.automatic = True
    harness.step()
    client.expect(Queue.BindOk)
    assert len(list(harness.topology.vhosts["/"].bindings())) == 1


def test_a_durable_queue_that_another_process_made_is_another_queue_than_the_transient_one(
    harness: Harness, client: Client
) -> None:
    """An import of definitions writes to the store, and cannot see what lives in the broker's memory only."""
    client.declare("q", durable=False)
    client.consume("q", tag="c")
    harness._apply([Put(QueueRecord("/", "q", 77))])
    harness.step()
    client.expect(Basic.Cancel)
    queue = harness.node.queues["/", "q"]
    assert (queue.record.id, queue.record.durable, len(queue.consumers)) == (77, True, 0)
    client.publish(b"kept", delivery_mode=2)
    harness.step()
    assert queue.backlog.ready == 1
    assert queue.backlog.store.journalled


def test_an_exclusive_declaration_that_arrives_between_close_and_close_ok(harness: Harness, client: Client) -> None:
    harness.automatic = False
    client.channel(2)
    client.send(Queue.Declare(queue="mine", exclusive=True))
    client.send(Basic.Qos(prefetch_size=1), 2)
    client.expect(commands.Connection.Close)
    harness.automatic = True
    harness.step()
    client.send(commands.Connection.CloseOk(), 0)
    assert client.closed
    assert not harness.node.queues


def test_arguments_nested_too_deep_close_the_channel_and_it_can_be_opened_again(
    harness: Harness, client: Client
) -> None:
    """The metadata store's answer to a declaration may also be an exception, at once."""
    from pamqp.exceptions import AMQPPreconditionFailed

    def refuse(*_: object) -> None:
        raise AMQPPreconditionFailed("table nested too deep")

    submit, harness.submit = harness.submit, refuse  # type: ignore[method-assign]
    client.send(Queue.Declare(queue="q"))
    assert client.expect(Channel.Close).reply_code == 406
    harness.submit = submit  # type: ignore[method-assign]
    client.send(Channel.CloseOk())
    client.channel(1)


def test_a_virtual_host_that_is_deleted_takes_everything_transient_along(harness: Harness) -> None:
    harness._apply(plans.create_vhost("v"))
    client = Client(harness)
    client.open("v")
    client.call(Exchange.Declare(exchange="x", exchange_type="fanout"), Exchange.DeclareOk)
    client.declare("q")
    client.call(Queue.Bind(queue="q", exchange="x"), Queue.BindOk)
    # The command line, another process, sees only what is durable.
    vhost = harness.topology.vhosts["v"]
    durable = [state.record for state in vhost.exchanges.values() if state.record.durable]
    harness._apply([*(Delete(record.key) for record in durable), Delete(("vhost", "v"))])
    harness.step()
    assert client.expect(commands.Connection.Close).reply_code == 320
    harness._apply(plans.create_vhost("v"))
    again = harness.topology.vhosts["v"]
    assert "x" not in again.exchanges
    assert "q" not in again.queues
    assert not list(again.bindings())
    assert not harness.bugs


def test_a_declaration_under_way_when_its_virtual_host_goes_leaves_nothing(harness: Harness) -> None:
    harness._apply(plans.create_vhost("v"))
    client = Client(harness)
    client.open("v")
    harness.automatic = False
    client.send(Queue.Declare(queue="q", durable=True))
    harness._apply(plans.delete_vhost(harness.topology, "v"))
    harness.automatic = True
    harness.step()
    assert not harness.node.queues
    assert not harness.bugs


def test_frames_behind_a_get_run_before_the_virtual_host_is_gone_or_not_at_all() -> None:
    harness = Harness()
    harness._apply(plans.create_vhost("v"))
    client = Client(harness)
    client.open("v")
    client.declare("q", durable=True)
    client.publish(bytes(300_000), delivery_mode=2)
    client.publish(b"far", delivery_mode=2)
    queue = harness.node.queues["v", "q"]
    queue.backlog.store.at = 99  # everything may leave memory
    queue.messages.shrink(0)
    queue.backlog.store.at = 0
    harness.automatic = False
    client.send(Basic.Get(queue="q"))
    client.send(Queue.Declare(queue="other"))
    harness._apply(plans.delete_vhost(harness.topology, "v"))
    harness.step()
    assert not harness.bugs


def test_close_behind_a_declaration_lets_everything_sent_before_happen(harness: Harness, client: Client) -> None:
    client.declare("there", durable=True)
    harness.automatic = False
    client.send(Queue.Declare(queue="new", nowait=True))
    client.publish(b"behind it", "there")
    client.send(commands.Connection.Close(200, "bye", 0, 0), 0)
    assert not client.take(commands.Connection.CloseOk)
    harness.automatic = True
    harness.step()
    client.collect()
    client.expect(commands.Connection.CloseOk)
    assert client.closed
    assert harness.node.queues["/", "there"].backlog.ready == 1


def test_a_channel_is_opened_again_behind_its_close_behind_a_declaration(harness: Harness, client: Client) -> None:
    harness.automatic = False
    client.send(Queue.Declare(queue="new"))
    client.send(Channel.Close(200, "", 0, 0))
    client.send(Channel.Open())
    client.send(Basic.Qos(prefetch_count=1))
    harness.automatic = True
    harness.step()
    client.collect()
    for expected in (Queue.DeclareOk, Channel.CloseOk, Channel.OpenOk, Basic.QosOk):
        client.expect(expected)


def test_both_sides_close_a_channel_at_once(client: Client) -> None:
    """The client's close crosses ours: it answers ours with close-ok after it has sent its own."""
    client.publish(exchange="none")
    client.send(Channel.Close(200, "", 0, 0))
    client.expect(Channel.Close)
    client.expect(Channel.CloseOk)
    client.send(Channel.CloseOk())
    assert not client.inbox
    client.channel(1)


def test_a_hard_error_behind_a_declaration_names_its_own_method(harness: Harness, client: Client) -> None:
    harness.automatic = False
    client.send(Queue.Declare(queue="new"))
    client.send(Basic.Qos(prefetch_size=1))
    harness.automatic = True
    harness.step()
    client.expect(Queue.DeclareOk)
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 60, 10)


def test_tx_commit_passes_over_queues_that_were_deleted_meanwhile(harness: Harness, client: Client) -> None:
    client.channel(2)
    client.declare("q", durable=True)
    client.declare("kept", durable=True)
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(b"1", "q", mandatory=True, delivery_mode=2)
    client.publish(b"2", "kept", mandatory=True, delivery_mode=2)
    queues = harness.node.queues["/", "q"], harness.node.queues["/", "kept"]
    for name in ("q", "kept"):
        client.call(Queue.Delete(queue=name), Queue.DeleteOk, 2)
    client.declare("kept", 2, durable=True)
    client.send(Tx.Commit())
    returned = client.expect(Message)
    assert (returned.method.reply_code, returned.body) == (312, b"1")
    client.expect(Tx.CommitOk)
    assert client.declare("kept", 2, durable=True).message_count == 1, "names count, as in RabbitMQ"
    assert not any(queue.record.id in harness.rows for queue in queues)


def test_an_unknown_exchange_with_confirms_keeps_the_acks_of_before(client: Client) -> None:
    client.declare("q")
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.raw(publish_bytes(b"1") + publish_bytes(b"2", exchange="none"))
    assert client.expect(Basic.Ack).delivery_tag == 1
    assert client.expect(Channel.Close).reply_code == 404


def test_a_blocked_connection_that_is_closed_is_read_again(harness: Harness, client: Client) -> None:
    """Else its close-ok is never seen, and a drain waits for nothing."""
    client.declare("q")
    harness.node.alarms.put("disk", "watch", True, 0)
    client.publish()
    assert client.connection.reading_paused
    client.connection.force_close("shutdown")
    assert not client.connection.reading_paused


def test_a_connection_behind_a_full_journal_that_is_closed_is_read_again(harness: Harness, client: Client) -> None:
    client.declare("q")
    client.publish()
    harness.node.journal.gathered_bytes = 1 << 40
    assert client.connection.reading_paused
    client.connection.force_close("shutdown")
    assert not client.connection.reading_paused


UNBOUND = [
    Queue.Unbind(queue="there", exchange="missing"),
    Queue.Unbind(queue="missing", exchange="amq.direct"),
    Queue.Unbind(queue="there", exchange="amq.headers", arguments={"x-match": "odd"}),
    Exchange.Unbind(destination="missing", source="amq.direct"),
    Exchange.Unbind(destination="amq.direct", source="missing"),
]


@pytest.mark.parametrize("method", UNBOUND, ids=lambda method: f"{method.name} {dict(method)}")
def test_unbinding_what_is_not_there_succeeds(client: Client, method) -> None:
    client.declare("there")
    client.send(method)
    client.expect(Queue.UnbindOk if isinstance(method, Queue.Unbind) else Exchange.UnbindOk)


def test_an_exchange_that_is_bound_meanwhile_is_not_deleted_as_unused(harness: Harness, client: Client) -> None:
    other = harness.client()
    client.call(Exchange.Declare(exchange="x", exchange_type="fanout"), Exchange.DeclareOk)
    client.declare("q")
    harness.automatic = False
    other.send(Queue.Bind(queue="q", exchange="x"))
    client.send(Exchange.Delete(exchange="x", if_unused=True))
    harness.automatic = True
    harness.step()
    other.expect(Queue.BindOk)
    assert client.expect(Channel.Close).reply_text == "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    other.publish(exchange="x", key="")
    assert other.declare("q", passive=True).message_count == 1


def test_a_queue_that_has_ended_gets_nothing_more_while_its_record_is_being_removed(
    harness: Harness, client: Client
) -> None:
    consumer = harness.client()
    consumer.declare("q", durable=True, auto_delete=True)
    consumer.consume("q")
    client.publish(b"first", mandatory=True, delivery_mode=2)
    queue = harness.node.queues["/", "q"]
    harness.automatic = False
    consumer.send(Basic.Cancel("t"))
    client.publish(b"too late", mandatory=True, delivery_mode=2)
    assert client.expect(Message).method.reply_code == 312
    harness.automatic = True
    harness.step()
    assert queue.record.id not in harness.rows


def test_a_declaration_behind_a_removal_that_waits_for_a_binding(harness: Harness, client: Client) -> None:
    other = harness.client()
    client.declare("q", auto_delete=True)
    client.consume("q")
    harness.automatic = False
    other.send(Queue.Bind(queue="q", exchange="amq.fanout"))
    client.send(Basic.Cancel("t"))
    client.expect(Basic.CancelOk)
    client.send(Queue.Declare(queue="q", durable=True))
    harness.automatic = True
    harness.step()
    client.expect(Queue.DeclareOk)
    assert harness.node.queues["/", "q"].record.durable
    assert not list(harness.topology.vhosts["/"].bindings())
    assert other.take((Queue.BindOk, Channel.Close))
