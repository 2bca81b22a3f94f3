"""Methods and their errors on the pure machines: codes, scopes and RabbitMQ's texts, one test a rule."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, Message, publish_bytes

Basic, Channel, Connection, Exchange, Queue, Confirm, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
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


SOFT = [
    (Queue.Declare(queue="none", passive=True), 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (Exchange.Declare(exchange="none", passive=True), 404, "NOT_FOUND - no exchange 'none' in vhost '/'"),
    (Basic.Consume(queue="none"), 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (Basic.Get(queue="none"), 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (Queue.Purge(queue="none"), 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (Queue.Bind(queue="none", exchange="amq.direct"), 404, "NOT_FOUND - no queue 'none' in vhost '/'"),
    (Queue.Bind(queue="", exchange="amq.direct"), 404, "NOT_FOUND - no previously declared queue"),
    (Queue.Declare(queue="amq.x"), 403, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"),
    (
        Exchange.Declare(exchange="amq.x"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.x' contains reserved prefix 'amq.*'",
    ),
    (Exchange.Declare(exchange=""), 403, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    (
        Exchange.Delete(exchange="amq.direct"),
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (Exchange.Declare(exchange="x", exchange_type="odd"), 406, "PRECONDITION_FAILED - unknown exchange type 'odd'"),
    (Basic.Ack(7), 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    (Basic.Ack(7, True), 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    (Basic.Nack(7), 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    (Basic.Reject(7), 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    (Tx.Commit(), 406, "PRECONDITION_FAILED - channel is not transactional"),
    (Tx.Rollback(), 406, "PRECONDITION_FAILED - channel is not transactional"),
]


@pytest.mark.parametrize(("method", "code", "text"), SOFT, ids=lambda value: getattr(value, "name", None))
def test_a_soft_error_closes_its_channel_only(harness: Harness, client: Client, method, code: int, text: str) -> None:
    client.channel(2)
    client.send(method)
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.reply_text) == (code, text)
    assert (close.class_id << 16 | close.method_id) == method.index
    client.send(Queue.Declare(queue="ignored"))  # thrown away until close-ok
    client.send(Channel.CloseOk())
    client.channel(1)
    client.declare("q", channel=2)
    assert not client.inbox
    assert not harness.bugs


HARD = [
    (Basic.Qos(prefetch_size=9), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (9)"),
    (Basic.Recover(False), 540, "NOT_IMPLEMENTED - requeue=false"),
    (Channel.Open(), 504, "CHANNEL_ERROR - second 'channel.open' seen"),
    (Queue.DeclareOk("q", 0, 0), 503, "COMMAND_INVALID - unimplemented method"),
]


@pytest.mark.parametrize(("method", "code", "text"), HARD, ids=lambda value: getattr(value, "name", None))
def test_a_hard_error_closes_the_connection(client: Client, method, code: int, text: str) -> None:
    client.send(method)
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (code, text)
    assert (close.class_id << 16 | close.method_id) == method.index
    client.send(commands.Connection.CloseOk(), 0)
    assert client.closed


def test_a_consumer_tag_twice_is_530(client: Client) -> None:
    client.declare("q")
    client.consume("q", "same")
    client.send(Basic.Consume(queue="q", consumer_tag="same"))
    assert client.expect(commands.Connection.Close).reply_text == (
        "NOT_ALLOWED - attempt to reuse consumer tag 'same'"
    )


def test_immediate_is_540_with_the_method_that_asked(client: Client) -> None:
    plain = frame.marshal(Basic.Publish(routing_key="q"), 1)
    client.raw(frame.marshal(Basic.Publish(routing_key="q", immediate=True), 1) + publish_bytes()[len(plain) :])
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 60, 40)
    assert close.reply_text == "NOT_IMPLEMENTED - immediate=true"


def test_publishing_to_a_missing_exchange_is_404_on_its_channel(client: Client) -> None:
    client.publish(exchange="none")
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)


def test_publishing_to_an_internal_exchange_is_403(client: Client) -> None:
    client.call(Exchange.Declare(exchange="inner", internal=True), Exchange.DeclareOk)
    client.publish(exchange="inner")
    assert client.expect(Channel.Close).reply_code == 403


def test_a_message_that_is_too_large_is_406_and_the_connection_goes_on() -> None:
    client = Harness(Limits(message_bytes_max=100)).client()
    client.channel(2)
    client.publish(bytes(101))
    close = client.expect(Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - message size 101 is larger than configured max size 100"
    client.declare("q", channel=2)


def test_a_wrong_user_id_is_406(client: Client) -> None:
    client.declare("q")
    client.publish(user_id="guest")
    client.publish(user_id="mallory")
    assert client.expect(Channel.Close).reply_text == (
        "PRECONDITION_FAILED - user_id property set to 'mallory' but authenticated user was 'guest'"
    )


def test_mandatory_and_unroutable_returns_before_the_confirm(client: Client) -> None:
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"lost", "nowhere", mandatory=True, message_id="7")
    returned = client.expect(Message)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.routing_key, returned.body, returned.properties.message_id) == ("nowhere", b"lost", "7")
    assert client.expect(Basic.Ack).delivery_tag == 1


def test_exclusive_queue_of_another_connection_is_405(harness: Harness, client: Client) -> None:
    client.declare("mine", exclusive=True)
    other = harness.client()
    for method in (
        Queue.Declare(queue="mine", passive=True),
        Basic.Consume(queue="mine"),
        Queue.Delete(queue="mine"),
    ):
        other.send(method)
        close = other.expect(Channel.Close)
        assert close.reply_code == 405
        assert close.reply_text.startswith("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine'")
        other.send(Channel.CloseOk())
        other.channel(1)
    client.lose()
    other.send(Queue.Declare(queue="mine", passive=True))
    assert other.expect(Channel.Close).reply_code == 404


def test_redeclaring_otherwise_is_406(client: Client) -> None:
    client.declare("q", durable=True)
    client.send(Queue.Declare(queue="q", durable=False))
    assert client.expect(Channel.Close).reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but "
        "current is 'true'"
    )


def test_exclusive_consumer_clash_is_403(client: Client) -> None:
    client.declare("q")
    client.consume("q", "one", exclusive=True)
    client.send(Basic.Consume(queue="q", consumer_tag="two"))
    assert client.expect(Channel.Close).reply_text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_confirm_and_tx_exclude_each_other(client: Client) -> None:
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.send(Tx.Select())
    assert client.expect(Channel.Close).reply_text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    client.send(Channel.CloseOk())
    client.channel(1)
    client.call(Tx.Select(), Tx.SelectOk)
    client.send(Confirm.Select())
    assert client.expect(Channel.Close).reply_text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


def test_a_persistent_message_is_confirmed_when_it_is_on_disk_and_not_before() -> None:
    harness = Harness()
    client = harness.client()
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.declare("q", durable=True)
    harness.automatic = False
    client.raw(b"".join(publish_bytes(b"%d" % i, delivery_mode=2) for i in range(3)))
    assert not client.inbox
    harness.commit()
    assert [(ack.delivery_tag, ack.multiple) for ack in client.take(Basic.Ack)] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    client.publish(b"transient")
    assert client.expect(Basic.Ack).delivery_tag == 4
    client.publish(b"next", delivery_mode=2)
    client.publish(b"transient again: confirms keep their order")
    assert not client.take(Basic.Ack)
    harness.commit()
    assert [ack.delivery_tag for ack in client.take(Basic.Ack)] == [5, 6]


def test_what_is_settled_before_it_is_written_is_never_written() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=True)
    client.consume("q", no_ack=True)
    harness.automatic = False
    client.publish(delivery_mode=2)
    harness.commit()
    assert not harness.transactions[-1].rows


def test_transaction_takes_effect_at_commit_only(harness: Harness, client: Client) -> None:
    client.channel(2)
    client.declare("q", durable=True)
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(b"1", delivery_mode=2)
    client.publish(b"2", "nowhere", mandatory=True)
    assert client.declare("q", 2, passive=True).message_count == 0
    harness.automatic = False
    client.send(Tx.Commit())
    assert client.expect(Message).method.reply_code == 312
    assert not client.inbox, "commit-ok before the messages are on disk"
    harness.commit()
    client.expect(Tx.CommitOk)
    harness.automatic = True
    message = client.call(Basic.Get(queue="q"), Message)
    client.send(Basic.Ack(message.tag))
    client.call(Tx.Rollback(), Tx.RollbackOk)
    assert client.declare("q", 2, passive=True).message_count == 0, "a rollback does not requeue"
    client.send(Basic.Ack(message.tag))
    client.call(Tx.Commit(), Tx.CommitOk)
    client.send(Basic.Ack(message.tag))
    assert client.expect(Channel.Close).reply_code == 406


def test_prefetch_per_consumer_and_shared(client: Client) -> None:
    client.declare("q")
    for i in range(9):
        client.publish(b"%d" % i)
    client.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
    client.consume("q", "one")
    assert client.bodies() == [b"0", b"1"]
    client.consume("q", "two")
    assert client.bodies() == [b"2", b"3"]
    client.send(Basic.Ack(1))
    assert client.bodies() == [b"4"]
    client.call(Basic.Qos(prefetch_count=3, global_=True), Basic.QosOk)
    client.send(Basic.Ack(2))
    assert client.bodies() == [], "3 are unacked, as many as the channel may have"
    client.send(Basic.Ack(3))
    assert client.bodies() == [b"5"]


def test_consumers_take_turns(client: Client) -> None:
    client.declare("q")
    for number in (1, 2, 3):
        client.channel(number + 10)
        client.consume("q", f"c{number}", number + 10)
    for i in range(6):
        client.publish(b"%d" % i)
    tags = [message.method.consumer_tag for message in client.messages()]
    assert tags == ["c1", "c2", "c3"] * 2


def test_closing_a_channel_requeues_in_place_and_redelivered(client: Client) -> None:
    client.declare("q")
    client.channel(2)
    for i in range(4):
        client.publish(b"%d" % i)
    client.consume("q", channel=2)
    messages = client.messages()
    client.send(Basic.Ack(messages[1].tag), 2)
    client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, 2)
    found = [client.call(Basic.Get(queue="q"), Message) for _ in range(3)]
    assert [message.body for message in found] == [b"0", b"2", b"3"]
    assert all(message.redelivered for message in found)


def test_deleting_a_queue_tells_its_consumers(harness: Harness, client: Client) -> None:
    client.declare("q")
    client.consume("q", "watching")
    other = harness.client()
    assert other.call(Queue.Delete(queue="q"), Queue.DeleteOk).message_count == 0
    cancel = client.expect(Basic.Cancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("watching", True)


def test_an_auto_delete_queue_goes_with_its_last_consumer(harness: Harness, client: Client) -> None:
    client.declare("q", auto_delete=True)
    client.consume("q", "a")
    client.consume("q", "b")
    client.call(Basic.Cancel("a"), Basic.CancelOk)
    client.declare("q", passive=True)
    client.call(Basic.Cancel("b"), Basic.CancelOk)
    assert ("/", "q") not in harness.node.queues


def test_a_channel_waits_for_its_declaration_and_others_do_not(harness: Harness, client: Client) -> None:
    client.channel(2)
    client.declare("there", channel=2)
    harness.automatic = False
    client.send(Queue.Declare(queue="new"))
    client.publish(b"behind it", "new")
    client.publish(b"not behind it", "there", channel=2)
    assert harness.node.queues["/", "there"].backlog.ready == 1
    assert not client.inbox
    harness.answer()
    client.expect(Queue.DeclareOk)
    assert harness.node.queues["/", "new"].backlog.ready == 1


def test_two_declare_the_same_at_once(harness: Harness, client: Client) -> None:
    other = harness.client()
    harness.automatic = False
    client.send(Queue.Declare(queue="q", durable=True))
    other.send(Queue.Declare(queue="q", durable=False))
    harness.answer()
    client.expect(Queue.DeclareOk)
    assert other.expect(Channel.Close).reply_code == 406


def test_permission_is_asked_for_every_operation(harness: Harness, client: Client) -> None:
    client.declare("q")
    harness.access.forbidden = {("configure", "new"), ("read", "q"), ("write", "amq.topic"), ("write", "q")}
    refused = [
        Queue.Declare(queue="new"),
        Basic.Consume(queue="q"),
        Basic.Get(queue="q"),
        Queue.Purge(queue="q"),
        Queue.Bind(queue="q", exchange="amq.direct"),
        Exchange.Declare(exchange="new"),
    ]
    for method in refused:
        client.send(method)
        assert client.expect(Channel.Close).reply_code == 403, method.name
        client.send(Channel.CloseOk())
        client.channel(1)
    client.publish(exchange="amq.topic")
    assert client.expect(Channel.Close).reply_code == 403


def test_an_alarm_blocks_who_publishes_and_nobody_else(harness: Harness, client: Client) -> None:
    consumer = harness.client()
    client.declare("q")
    consumer.consume("q")
    harness.node.alarms.put("memory", "watch", True, 0)
    assert not client.inbox
    client.publish()
    assert client.expect(commands.Connection.Blocked).reason == "low on memory"
    assert client.connection.reading_paused
    assert not consumer.connection.reading_paused
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.expect(commands.Connection.Unblocked)
    assert consumer.expect(Message).body == b"x"
    assert not client.connection.reading_paused


def test_a_client_cannot_stop_its_deliveries_by_channel_flow(client: Client) -> None:
    assert client.call(Channel.Flow(True), Channel.FlowOk).active
    client.send(Channel.Flow(False))
    close = client.expect(Connection.Close)
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - active=false")


def test_the_cancel_of_a_clients_own_consumer_comes_behind_delete_ok(client: Client) -> None:
    client.declare("q")
    client.consume("q")
    client.send(Queue.Delete(queue="q"))
    client.expect(Queue.DeleteOk)
    assert client.expect(Basic.Cancel).consumer_tag == "t"


def test_the_cancel_of_other_channels_does_not_wait_for_delete_ok(client: Client) -> None:
    client.channel(2)
    client.declare("q")
    client.consume("q", "one", channel=1)
    client.consume("q", "two", channel=2)
    client.send(Queue.Delete(queue="q"), 1)
    told = [(channel, type(method).__name__) for channel, method in client.inbox]
    assert told == [(2, "Cancel"), (1, "DeleteOk"), (1, "Cancel")]


def test_what_acks_made_room_for_is_delivered_before_the_cancel_behind_them(client: Client) -> None:
    client.declare("q")
    for body in (b"1", b"2", b"3"):
        client.publish(body)
    client.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    client.consume("q")
    assert client.expect(Message).body == b"1"
    client.raw(frame.marshal(Basic.Ack(1), 1) + frame.marshal(Basic.Cancel(consumer_tag="t"), 1))
    assert client.expect(Message).body == b"2"
    client.expect(Basic.CancelOk)
    assert not client.inbox


def test_recover_brings_back_what_is_unacked(client: Client) -> None:
    client.declare("q")
    client.publish(b"again")
    client.consume("q")
    assert not client.expect(Message).redelivered
    client.send(Basic.Recover(True))
    client.expect(Basic.RecoverOk)
    assert client.expect(Message).redelivered


def test_a_body_in_many_frames_between_other_channels_frames(client: Client) -> None:
    client.declare("q")
    client.channel(2)
    whole = publish_bytes(bytes(300_000))
    frames = []
    while whole:
        size = int.from_bytes(whole[3:7], "big") + 8
        frames.append(whole[:size])
        whole = whole[size:]
    for piece in frames:
        client.raw(piece)
        client.declare("q", channel=2)
    assert client.call(Basic.Get(queue="q"), Message).body == bytes(300_000)


def test_every_cut_of_the_stream_gives_the_same() -> None:
    stream = publish_bytes(b"hello", message_id="1") * 3 + frame.marshal(Basic.Get(queue="q", no_ack=True), 1) * 3
    for cut in range(len(stream)):
        client = Harness().client()
        client.declare("q")
        client.raw(stream[:cut])
        client.raw(stream[cut:])
        assert client.bodies() == [b"hello"] * 3, cut


def test_a_new_secret_is_followed_by_a_new_look_at_the_permissions(harness: Harness, client: Client) -> None:
    UpdateSecret = commands.Connection.UpdateSecret
    client.declare("kept")
    client.declare("lost")
    client.consume("kept", "a")
    client.consume("lost", "b")
    client.send(UpdateSecret("whatever", "rotation"), 0)
    client.expect(commands.Connection.UpdateSecretOk)
    harness.access.forbidden = {("read", "lost")}
    client.send(UpdateSecret("guest", "rotation"), 0)
    assert client.expect(Basic.Cancel).consumer_tag == "b"
    client.expect(commands.Connection.UpdateSecretOk)
    client.publish(b"still consumed", "kept")
    assert client.bodies() == [b"still consumed"]
    harness.access.forbidden = {("enter", "/")}
    client.send(UpdateSecret("guest", "rotation"), 0)
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest'")


def test_what_is_published_before_a_get_is_for_the_consumers_first(client: Client) -> None:
    """RabbitMQ's Java suite publishes and gets in one breath, with a consumer there."""
    client.declare("q")
    client.consume("q")
    client.raw(publish_bytes(b"x", "q") + frame.marshal(Basic.Get(queue="q"), 1))
    assert isinstance(client.expect(Message).method, Basic.Deliver)
    client.expect(Basic.GetEmpty)


def test_a_shared_prefetch_stops_consumers_without_acks_too(client: Client) -> None:
    for queue in ("q", "other"):
        client.declare(queue)
    client.call(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
    client.consume("q", "acks")
    client.consume("other", "no_ack", no_ack=True)
    client.publish(b"1", "q")
    client.publish(b"2", "other")
    assert client.bodies() == [b"1"]
    client.send(Basic.Ack(1))
    assert client.bodies() == [b"2"]


def test_queues_take_turns_at_a_shared_prefetch(client: Client) -> None:
    client.call(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
    for queue in ("a", "b", "c"):
        client.declare(queue)
        for _ in range(4):
            client.publish(queue.encode(), queue)
    got = []
    for queue in ("a", "b", "c"):
        client.consume(queue, f"of {queue}")
        got += client.bodies()
    for tag in range(1, 6):
        client.send(Basic.Ack(tag))
        got += client.bodies()
    assert got == [b"a", b"a", b"b", b"c", b"a", b"b"], "a was alone at first"
