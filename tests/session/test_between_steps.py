"""Whatever takes several turns: between any two of them anything may happen, and nothing stays behind.

A table of works and of events: each event is let happen after one tick of each work, and after three. Then everybody
leaves, and nothing may be held, parked, charged or counted any more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands, frame
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd import KERNEL, channels
from amqpd.flow import turns
from amqpd.flow.client_counters import CHANNELS, CONNECTIONS
from amqpd.kernel import scan_publishes
from amqpd.node import dispatching
from amqpd.node import node as node_module
from amqpd.publishing import acceptance, batches, dead_lettering, history_replay, releasing, routes, routing
from amqpd.publishing import publish as publishing
from amqpd.publishing.routes import Route
from amqpd.queues.port import unheard
from amqpd.session import steps, unacked
from amqpd.topology import plans
from amqpd.vocabulary.records import Delete
from amqpd.vocabulary.states import ConnectionState
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node

Basic, Channel, Queue, Tx = commands.Basic, commands.Channel, commands.Queue, commands.Tx
pytestmark = pytest.mark.skipif(KERNEL != "python", reason="what is compiled has its constants built in")

# Of a connection's turn and of queues in a tick: a fraction of each work.
TURN, QUEUES, SHARE = 40, 120, 20
STEP = 10
"""copies and entries of one step"""
WIDE = 40
"""queues that one message goes to"""
MANY = 150
"""messages that are settled"""
TICKS = (1, 3)
UNTIL_MAX = 20_000


class Scene:
    """A virtual host with what the works need; `client` does the work, `beside` consumes in the same one."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness._apply(plans.create_vhost("v"))
        self.client, self.beside = Client(self.harness), Client(self.harness)
        self.client.open("v")
        self.beside.open("v")
        client = self.client
        for number in range(WIDE):
            client.declare(f"w{number}", durable=True)
            self.bind(f"w{number}", "amq.fanout")
        for queue in ("q", "e0", "e1"):
            client.declare(queue, durable=True)
        client.declare("own", exclusive=True)
        client.declare("auto", auto_delete=True)
        dead = {"x-dead-letter-exchange": "amq.fanout"}
        client.declare("dying", durable=True, arguments={**dead, "x-message-ttl": 100})
        full = {**dead, "x-max-length": 0, "x-overflow": "reject-publish-dlx"}
        client.declare("full", durable=True, arguments=full)
        self.beside.consume("w0", "beside")
        client.channel(2)

    def bind(self, queue: str, exchange: str) -> None:
        self.client.call(Queue.Bind(queue=queue, exchange=exchange, routing_key="k"), Queue.BindOk)

    def unacked(self) -> None:
        """This many deliveries, each an entry of the ledger."""
        for number in range(MANY):
            queue = f"e{number % 2}"
            self.client.publish(b"x", queue)
            self.client.send(Basic.Get(queue=queue))
        self.client.inbox.clear()

    def give(self, *frames: bytes) -> None:
        self.client.connection.receive(b"".join(frames))

    def tick(self) -> None:
        node = self.harness.node
        node.turns.begin(1)
        node.turns.next()
        self.harness.reads += node.tick()
        while node.journal.pending:
            self.harness.commit()


def method(value: object, channel: int = 1) -> bytes:
    found: bytes = frame.marshal(value, channel)  # type: ignore[arg-type]  # any of pamqp's
    return found


# Works: what is prepared, and what begins it.


def publish_to_many(scene: Scene) -> None:
    scene.client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    begin(scene)
    scene.give(b"".join(publish_bytes(b"x", "k", "amq.fanout", delivery_mode=2, message_id=str(n)) for n in range(5)))


def commit(scene: Scene) -> None:
    scene.unacked()
    scene.client.call(Tx.Select(), Tx.SelectOk)
    scene.client.raw(publish_bytes(b"x", "k", "amq.fanout", delivery_mode=2))
    scene.client.raw(b"".join(publish_bytes(b"x", "q", delivery_mode=2, message_id=str(n)) for n in range(20)))
    scene.client.raw(publish_bytes(b"x", "q", headers={"x-delay": 50}))
    scene.client.raw(b"".join(method(Basic.Ack(delivery_tag=tag)) for tag in range(2, MANY, 2)))
    begin(scene)
    scene.give(method(Tx.Commit()))


def dead_letter(scene: Scene) -> None:
    for number in range(3):
        scene.client.publish(b"x", "dying", delivery_mode=2, message_id=str(number))
    begin(scene)
    scene.harness.node.now_ms += 200


def turned_away(scene: Scene) -> None:
    begin(scene)
    scene.give(b"".join(publish_bytes(b"x", "full", message_id=str(n)) for n in range(5)))


def delayed(scene: Scene) -> None:
    for number in range(5):
        scene.client.publish(b"x", "k", "amq.fanout", headers={"x-delay": 100}, message_id=str(number))
    begin(scene)
    scene.harness.node.now_ms += 200


def acknowledge(scene: Scene) -> None:
    scene.unacked()
    begin(scene)
    scene.give(method(Basic.Ack(delivery_tag=0, multiple=True)))


def reject_each(scene: Scene) -> None:
    scene.unacked()
    begin(scene)
    scene.give(b"".join(method(Basic.Nack(delivery_tag=tag, requeue=False)) for tag in range(1, MANY + 5)))


def recover(scene: Scene) -> None:
    scene.unacked()
    begin(scene)
    scene.give(method(Basic.Recover(requeue=True)))


def roll_back(scene: Scene) -> None:
    scene.unacked()
    scene.client.call(Tx.Select(), Tx.SelectOk)
    scene.client.raw(b"".join(method(Basic.Ack(delivery_tag=tag)) for tag in range(2, MANY, 2)))
    begin(scene)
    scene.give(method(Tx.Rollback()))


def close_channel(scene: Scene) -> None:
    scene.unacked()
    scene.client.call(Tx.Select(), Tx.SelectOk)
    scene.client.raw(b"".join(method(Basic.Ack(delivery_tag=tag)) for tag in range(2, MANY, 2)))
    begin(scene)
    # The number is opened again at once.
    close = method(Channel.Close(200, "", 0, 0))
    scene.give(close, method(Channel.Open()), publish_bytes(b"again", "q"), close)


def close_connection(scene: Scene) -> None:
    scene.unacked()
    for number in range(100):
        scene.client.send(Basic.Consume(queue="q", consumer_tag=f"t{number}"), 2)
    begin(scene)
    scene.give(method(commands.Connection.Close(200, "", 0, 0), 0))


def many_gets(scene: Scene) -> None:
    scene.client.raw(publish_bytes(b"x", "q") * MANY)
    begin(scene)
    scene.give(b"".join(method(Basic.Get(queue="q")) for _ in range(100)))


def begin(scene: Scene) -> None:
    scene.client.collect()
    scene.client.inbox.clear()
    scene.harness.automatic = False


WORKS: tuple[Callable[[Scene], None], ...] = (
    publish_to_many,
    commit,
    dead_letter,
    turned_away,
    delayed,
    acknowledge,
    reject_each,
    recover,
    roll_back,
    close_channel,
    close_connection,
    many_gets,
)


# Events


def nothing(scene: Scene) -> None: ...


def lost(scene: Scene) -> None:
    scene.client.connection.lost()


def closed_by_the_operator(scene: Scene) -> None:
    scene.client.connection.force_close("enough")


def shutdown(scene: Scene) -> None:
    scene.harness.node.draining = True
    for connection in list(scene.harness.node.connections.values()):
        connection.force_close("broker forced connection closure")


def user_deleted(scene: Scene) -> None:
    scene.harness._apply([Delete(("user", "guest"))])


def vhost_deleted(scene: Scene) -> None:
    vhost = scene.harness.topology.vhosts["v"]
    queues = [Delete(("queue", "v", name)) for name in vhost.queues]
    scene.harness._apply([*queues, Delete(("vhost", "v"))])


def vhost_deleted_at_once(scene: Scene) -> None:
    scene.harness._apply([Delete(("vhost", "v"))])


def queues_deleted(scene: Scene) -> None:
    names = ("q", "e0", "w0", "w5", f"w{WIDE - 1}", "dying", "full")
    scene.harness._apply([Delete(("queue", "v", name)) for name in names])


def queues_purged(scene: Scene) -> None:
    for queue in list(scene.harness.node.queues.values()):
        for _ in queue.purging(unheard):
            pass


def queues_broken(scene: Scene) -> None:
    for name in ("q", "e1", "w0", f"w{WIDE - 1}", "dying", "full"):
        node = scene.harness.node
        if (queue := node.queues.get(("v", name))) is not None:
            node.quarantine(queue, RuntimeError("planted"))
    for store in scene.harness.node.delayed.values():
        scene.harness.node.quarantine(store, RuntimeError("planted"))


def exchange_deleted(scene: Scene) -> None:
    scene.harness._apply([Delete(("exchange", "v", "amq.fanout"))])


def permissions_lost(scene: Scene) -> None:
    scene.harness.access.forbidden |= {(kind, name) for kind in ("read", "write") for name in ("q", "amq.fanout", "")}


def alarm(scene: Scene) -> None:
    scene.harness.node.alarms.put("memory", "watch", True, 0)
    scene.tick()
    scene.harness.node.alarms.put("memory", "watch", False, 0)


def does_not_read(scene: Scene) -> None:
    connection = scene.client.connection
    connection.sent(3 * scene.harness.limits.outbox_bytes_max)
    scene.tick()
    connection.sent(0)


def channel_fails(scene: Scene) -> None:
    for channel in list(scene.client.connection.channels.values()):
        if not channel.suspended:
            channel.fail(commands_error(), b"\0\0\0\0")


def channel_closed_and_opened(scene: Scene) -> None:
    scene.give(method(Channel.Close(200, "", 0, 0)), method(Channel.Open()), publish_bytes(b"new", "q"))


def commands_error() -> AMQPPreconditionFailed:
    return AMQPPreconditionFailed("planted")


EVENTS: tuple[Callable[[Scene], None], ...] = (
    nothing,
    lost,
    closed_by_the_operator,
    shutdown,
    user_deleted,
    vhost_deleted,
    vhost_deleted_at_once,
    queues_deleted,
    queues_purged,
    queues_broken,
    exchange_deleted,
    permissions_lost,
    alarm,
    does_not_read,
    channel_fails,
    channel_closed_and_opened,
)


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_WORK_MAX", TURN)
    monkeypatch.setattr(turns, "TURN_WORK_MIN", TURN)
    monkeypatch.setattr(node_module, "QUEUES_WORK_MAX", QUEUES)
    monkeypatch.setattr(dispatching, "QUEUES_SHARE_MIN", SHARE)
    for module in (acceptance, batches, publishing, dead_lettering):
        monkeypatch.setattr(module, "COPIES_AT_ONCE", STEP)
    for module in (routing, releasing, history_replay):
        monkeypatch.setattr(module, "COPIES_A_STEP", STEP)
    monkeypatch.setattr(routes, "LIGHT_MAX", STEP)
    monkeypatch.setattr("amqpd.topology.routes.STEP_WORK", STEP)
    monkeypatch.setattr(unacked, "BLOCK_ENTRIES_MAX", STEP)
    monkeypatch.setattr("amqpd.methods.modes.SETTLED_AT_ONCE", STEP)
    for place in (steps, channels):
        monkeypatch.setattr(place, "ENTRIES_MAX", STEP)


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_nothing_stays_behind(work: Callable[[Scene], None], event: Callable[[Scene], None], ticks: int) -> None:
    scene = Scene()
    harness, node = scene.harness, scene.harness.node
    work(scene)
    for _ in range(ticks):
        scene.tick()
    assert node.turns.waiting or node.behind, "the work is done already"
    event(scene)
    until_idle(scene)
    planted = [bug for bug in harness.bugs if str(bug) != "planted"]
    assert not planted, planted
    assert not node.journal.held
    check_closes(scene)
    if event is not queues_broken:
        check_node(node)
    everybody_leaves(scene)


def until_idle(scene: Scene) -> None:
    harness, node = scene.harness, scene.harness.node
    for _ in range(UNTIL_MAX):
        scene.tick()
        harness.read()
        if harness._submitted:
            harness.answer()
        if not (node.turns.waiting or node.behind or harness.reads or node.journal.pending):
            break
    else:
        raise AssertionError("it never ends")
    harness.automatic = True
    harness.step()


def check_closes(scene: Scene) -> None:
    """No channel is closed twice."""
    client = scene.client
    client.collect()
    closes = [number for number, value in client.inbox if isinstance(value, Channel.Close)]
    assert len(closes) == len(set(closes))
    connection = client.connection
    assert connection.channels_closing == sum(channel.closing for channel in connection.channels.values())


def everybody_leaves(scene: Scene) -> None:
    harness, node = scene.harness, scene.harness.node
    connections = [scene.client.connection, scene.beside.connection]
    for connection in connections:
        connection.lost()
    harness.step()
    client_counters = node.client_counters
    counts = [client_counters.count(what) for what in (CONNECTIONS, CHANNELS)]
    assert (counts, client_counters.unfinished.nbytes) == ([0, 0], 0)
    assert not client_counters.unfinished._connections
    assert not node.connections
    assert node.turns.holder is None
    assert not node.holds.waiting
    assert node.outboxes.nbytes == 0
    assert not node.replies._consumers
    assert set(node.delayed) <= set(harness.topology.vhosts), "a store of a virtual host that is gone"
    for connection in connections:
        assert connection.state is ConnectionState.CLOSED
        assert not connection.channels
        assert not connection.intake.unfinished
        assert not connection.intake.parked
        assert (connection.unfinished_bytes, connection.transaction_bytes, connection.intake.held_bytes) == (0, 0, 0)
        assert connection.channels_closing == 0
    for queue in node.queues.values():
        assert not queue.consumers
        assert not queue.dead_letters_under_way
        if queue.crash_reason is None:
            assert queue.backlog.unacked == 0 or queue.removal.pending


def test_a_channel_that_fails_again_on_its_way_out_is_closed_once() -> None:
    """It was closed twice, and counted twice among those that wait for close-ok: a channel more for each."""
    scene = Scene()
    client = scene.client
    scene.unacked()
    begin(scene)
    scene.give(b"".join(method(Basic.Ack(delivery_tag=tag)) for tag in range(1, MANY + 2)))  # the last is unknown
    channel = client.connection.channels[1]
    assert client.connection.intake.unfinished
    channel.fail(commands_error(), b"\0\0\0\0")
    until_idle(scene)
    assert len(client.take(Channel.Close)) == 1
    assert client.connection.channels_closing == 1
    client.send(Channel.CloseOk())
    assert client.connection.channels_closing == 0
    everybody_leaves(scene)


def test_an_exchange_that_is_deleted_while_a_message_passes_it_keeps_no_history() -> None:
    scene = Scene()
    client, node = scene.client, scene.harness.node
    declare = commands.Exchange.Declare(
        exchange="recent", exchange_type="x-recent-history", arguments={"x-recent-history-length": 5}
    )
    client.call(declare, commands.Exchange.DeclareOk)
    bind = commands.Exchange.Bind(source="recent", destination="amq.fanout", routing_key="")
    client.call(bind, commands.Exchange.BindOk)
    data = publish_bytes(b"x", "", "recent")
    run = scan_publishes(data, 0, len(data), len(data))
    assert run is not None
    properties = node.properties.read(run.properties)
    route = Route(node.routes.entrance("v", "recent"), "", False)
    steps = routing.queue_steps(node, "v", route, ("",), run, properties)
    next(steps)
    next(steps)
    scene.harness._apply([Delete(("exchange", "v", "recent"))])
    list(steps)
    assert node.histories.nbytes == 0
