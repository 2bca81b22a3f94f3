"""What one turn has no space for goes on in the next, and takes effect as if it had been done at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands, frame

from amqpd.exchanges.headers import STEP_WANTS
from amqpd.flow.turns import TURN_WORK_MAX
from amqpd.kernel import scan_publishes
from amqpd.node.dispatching import QUEUES_SHARE_MIN, QUEUES_WORK_MAX
from amqpd.publishing import dead_lettering
from amqpd.publishing.acceptance import COPIES_AT_ONCE
from amqpd.publishing.dead_lettering import DEAD_LETTER_WORK
from amqpd.queues.deadletters import DEATHS_BYTES_MAX
from amqpd.topology import plans
from amqpd.vocabulary.records import Delete
from tests.harness.harness import Client, Harness, publish_bytes

QUEUES = 3 * COPIES_AT_ONCE


def wide(harness: Harness, exchange: str = "amq.fanout", durable: bool = False, queues: int = QUEUES) -> Client:
    """A client that declared this many queues, all bound to the exchange."""
    client = harness.client()
    for number in range(queues):
        client.declare(f"q{number}", durable=durable)
        client.call(
            commands.Queue.Bind(queue=f"q{number}", exchange=exchange, routing_key="k"), commands.Queue.BindOk
        )
    return client


def ready(harness: Harness) -> list[int]:
    return [queue.backlog.ready for (_, name), queue in harness.node.queues.items() if name.startswith("q")]


def test_one_publish_to_very_many_queues_takes_several_turns_and_is_confirmed_after_the_last() -> None:
    harness = Harness()
    client = wide(harness)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    turns = harness.node.turns
    turns.turn_work = 250
    client.connection.receive(publish_bytes(b"x", "k", "amq.fanout"))
    assert turns.waiting
    assert 0 <= sum(ready(harness)) < QUEUES
    assert client.connection.reading_paused
    assert not client.take(commands.Basic.Ack)
    client.harness.step()
    assert ready(harness) == [1] * QUEUES
    assert [ack.delivery_tag for ack in client.take(commands.Basic.Ack)] == [1]


def test_what_is_sent_behind_it_keeps_its_order() -> None:
    harness = Harness()
    client = wide(harness)
    harness.node.turns.turn_work = 250
    client.connection.receive(publish_bytes(b"1", "k", "amq.fanout") + publish_bytes(b"2", "q5"))
    harness.step()
    client.consume("q5", no_ack=True)
    assert client.bodies() == [b"1", b"2"]


def test_all_queues_have_it_also_when_its_publisher_is_gone() -> None:
    harness = Harness()
    client = wide(harness)
    harness.node.turns.turn_work = 250
    client.connection.receive(publish_bytes(b"1", "k", "amq.fanout"))
    client.connection.lost()
    harness.step()
    assert ready(harness) == [1] * QUEUES


def test_a_commit_that_takes_several_turns_is_one_transaction_of_the_journal() -> None:
    harness = Harness(automatic=False)
    harness.automatic = True
    client = wide(harness, durable=True, queues=20)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    for number in range(50):
        client.publish(b"%d" % number, f"k{number}", "amq.fanout", delivery_mode=2)
    harness.automatic = False
    harness.node.turns.turn_work = 250
    before = len(harness.transactions)
    client.send(commands.Tx.Commit())
    assert harness.node.turns.waiting
    assert 0 < sum(ready(harness)) < 20 * 50
    assert not harness.node.journal.pending
    harness.automatic = True
    harness.step()
    assert ready(harness) == [50] * 20
    written = [transaction for transaction in harness.transactions[before:] if transaction.rows]
    assert len(written) == 1
    client.expect(commands.Tx.CommitOk)


def test_a_transaction_of_too_many_copies_is_refused() -> None:
    harness = Harness()
    client = wide(harness, queues=1_000)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    for number in range(251):
        client.publish(b"", f"k{number}", "amq.fanout")
    (close,) = client.take(commands.Channel.Close)
    assert close.reply_code == 406
    assert close.reply_text == "PRECONDITION_FAILED - transaction of 251000 copies into queues is too large"


def test_a_headers_exchange_with_very_many_bindings_is_asked_in_steps() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    for number in range(3 * STEP_WANTS):
        bind = commands.Queue.Bind(
            queue="q", exchange="amq.headers", routing_key=str(number), arguments={"a": 1, "z": number // 10_000}
        )
        client.call(bind, commands.Queue.BindOk)
    harness.node.turns.turn_work = 250
    client.connection.receive(
        publish_bytes(b"no", exchange="amq.headers", headers={"a": 1, "z": 7})
        + publish_bytes(b"yes", exchange="amq.headers", headers={"a": 1, "z": 0})
    )
    assert harness.node.turns.waiting
    harness.step()
    client.consume("q", no_ack=True)
    assert client.bodies() == [b"yes"]


def test_a_dead_letter_to_very_many_queues_goes_out_with_the_death_in_one_transaction() -> None:
    harness = Harness()
    client = wide(harness, durable=True)
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-max-length": 1}
    client.declare("dying", durable=True, arguments=arguments)
    client.publish(b"1", "dying", delivery_mode=2)
    harness.automatic = False
    before = len(harness.transactions)
    client.connection.receive(publish_bytes(b"2", "dying", delivery_mode=2))
    harness.node.work_left = 500
    harness.node.tick(fresh=False)
    assert harness.node.behind
    assert not harness.node.journal.pending
    harness.automatic = True
    harness.step()
    assert ready(harness) == [1] * QUEUES
    assert len([transaction for transaction in harness.transactions[before:] if transaction.rows]) == 1
    assert not harness.bugs


def test_a_dead_letter_that_has_not_begun_when_its_virtual_host_goes_is_no_fault() -> None:
    """Nor a delayed message."""
    harness = Harness()
    harness._apply(plans.create_vhost("other"))
    client = Client(harness)
    client.open("other")
    for number in range(QUEUES):
        client.declare(f"q{number}")
        bind = commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout", routing_key="k")
        client.call(bind, commands.Queue.BindOk)
    client.declare("dying", arguments={"x-dead-letter-exchange": "amq.fanout", "x-max-length": 1})
    client.publish(b"1", "dying")
    node = harness.node
    client.connection.receive(publish_bytes(b"2", "dying"))
    node.work_left = 0
    for queue in node.queues.values():
        run = queue.backlog.take(1)[0] if queue.record.name == "dying" else None  # type: ignore[index]
        if run is not None:
            dead_lettering.dead_letter(node, queue, run, 0, 1, "maxlen")
    delayed = publish_bytes(b"later", "k", "amq.fanout")
    delayed_run = scan_publishes(delayed, 0, len(delayed), len(delayed))
    assert delayed_run is not None
    node.release("other", delayed_run)
    assert node.dispatching.behind
    harness._apply([Delete(("vhost", "other"))])
    harness.step()
    assert not node.dispatching.behind
    assert not harness.bugs


def test_what_is_said_of_deaths_has_a_bound_and_the_last_routing_keys_stay() -> None:
    harness = Harness()
    client = harness.client()
    stages = 40
    for stage in range(stages):
        target = f"d{stage + 1}"
        client.declare(f"d{stage}", arguments={"x-message-ttl": 0, "x-dead-letter-exchange": f"x{stage + 1}"})
        client.call(
            commands.Exchange.Declare(exchange=f"x{stage + 1}", exchange_type="fanout"), commands.Exchange.DeclareOk
        )
        client.declare(target) if stage + 1 == stages else None
    for stage in range(1, stages + 1):
        client.call(commands.Queue.Bind(queue=f"d{stage}", exchange=f"x{stage}"), commands.Queue.BindOk)
    client.publish(b"x", "d0", headers={"CC": ["k" * 200] * 400})
    client.consume(f"d{stages}", no_ack=True)
    (message,) = client.messages()
    deaths = message.properties.headers["x-death"]
    assert len(deaths) == stages
    assert sum(len(key) for death in deaths for key in death["routing-keys"]) < DEATHS_BYTES_MAX
    assert deaths[-1]["routing-keys"][0] == "d0"


def test_while_something_long_goes_on_the_consumers_of_other_queues_are_served() -> None:
    harness = Harness()
    node, victim = harness.node, harness.client()
    victim.declare("v")
    victim.consume("v", no_ack=True)
    victim.declare("dies", arguments={"x-dead-letter-exchange": "amq.fanout", "x-max-length": 0})
    dies = node.queues["/", "dies"]

    def long() -> Iterator[None]:
        for _ in range(100):
            node.work_left -= 500
            yield

    harness.automatic = False
    node.dispatching.carry_out(long(), dies)
    for body in (b"1", b"2", b"3"):
        victim.connection.receive(publish_bytes(body, "v") + publish_bytes(body, "dies"))
        node.tick()
        assert victim.bodies() == [body]
        assert dies.backlog.ready, "it would begin more, and has to wait"
    harness.automatic = True
    harness.step()
    assert not node.behind
    assert not dies.backlog.ready


def test_a_queue_with_dead_letters_does_not_wait_for_those_of_other_queues() -> None:
    """A tenant's queues that all die at once are not to keep another's consumers waiting."""
    harness = Harness()
    node, attacker, victim = harness.node, wide(harness), harness.client()
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 50}
    for number in range(20):
        attacker.declare(f"dying{number}", arguments=arguments)
        attacker.publish(b"x", f"dying{number}")
    victim.declare("v", arguments={"x-dead-letter-exchange": "amq.direct"})
    victim.declare("dead")
    victim.call(commands.Queue.Bind(queue="dead", exchange="amq.direct", routing_key="v"), commands.Queue.BindOk)
    victim.consume("v")
    harness.automatic = False
    node.now_ms += 100
    for number in range(1, 6):
        victim.connection.receive(publish_bytes(b"%d" % number, "v"))
        served: list[bytes] = []
        for _ in range(3):
            node.work_left = QUEUES_SHARE_MIN + 1_000  # a dead letter takes several ticks
            node.tick(fresh=False)
            served += victim.bodies()
        assert served == [b"%d" % number]
        assert node.dispatching.behind
    victim.connection.receive(frame.marshal(commands.Basic.Reject(delivery_tag=1, requeue=False), 1))
    node.tick()
    assert node.queues["/", "dead"].backlog.ready == 1
    harness.automatic = True
    harness.step()
    assert ready(harness) == [20] * QUEUES
    assert not harness.bugs


def test_dead_letters_of_different_queues_take_turns() -> None:
    harness = Harness()
    node, served = harness.node, []
    wide(harness, queues=2)

    def dead_letter(name: str) -> Iterator[None]:
        for _ in range(20):
            node.work_left -= 500
            served.append(name)
            yield

    for number in range(10):
        node.dispatching.carry_out(dead_letter("first"), node.queues["/", "q0"])
        node.dispatching.carry_out(dead_letter("second"), node.queues["/", "q1"]) if number == 5 else None
    harness.step()
    assert served.index("second") < 30
    assert served[-1] == "first"
    assert not node.queues["/", "q0"].dead_letters_under_way


@pytest.mark.slow
def test_whoever_looks_at_a_queue_does_not_make_it_send_ever_more_dead_letters() -> None:
    harness = Harness()
    node, client, looker = harness.node, wide(harness), harness.client()
    client.declare("dying", arguments={"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 50})
    for number in range(300):
        client.publish(b"%d" % number, "dying", message_id=str(number))
    harness.automatic = False
    node.now_ms += 100
    most = 0
    for _ in range(10):
        node.turns.begin(1)
        looker.connection.receive(
            b"".join(frame.marshal(commands.Queue.Declare(queue="dying", passive=True), 1) for _ in range(20))
        )
        looker.connection.receive(frame.marshal(commands.Basic.Get(queue="dying"), 1))
        node.turns.next()
        node.tick()
        most = max(most, node.queues["/", "dying"].dead_letters_under_way)
    assert 0 < most <= QUEUES_WORK_MAX // DEAD_LETTER_WORK
    assert most < 300
    looker.take(commands.Queue.DeclareOk)
    harness.automatic = True
    harness.step()
    assert looker.take(commands.Basic.GetEmpty)
    assert not looker.messages(), "they were all dead"
    assert ready(harness) == [300] * QUEUES


def test_dead_letters_of_what_a_full_queue_turns_away_are_work_of_the_publisher() -> None:
    harness = Harness()
    node, client, victim = harness.node, wide(harness), harness.client()
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    client.declare("full", arguments=arguments)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    victim.declare("v")
    victim.consume("v", no_ack=True)
    harness.automatic = False
    count, ticks = 20, 0
    client.connection.receive(b"".join(publish_bytes(b"%d" % n, "full", message_id=str(n)) for n in range(count)))
    while node.turns.waiting:
        assert client.connection.intake.throttled
        assert len(client.connection.intake.unfinished or ()) <= 1
        assert not node.dispatching.behind
        node.turns.begin(1)
        node.turns.next()
        victim.connection.receive(publish_bytes(b"v", "v"))
        node.tick()
        assert victim.bodies() == [b"v"]
        ticks += 1
    assert ticks > count // 2
    assert ready(harness) == [count] * QUEUES
    harness.automatic = True
    harness.step()
    assert len(client.take(commands.Basic.Nack)) == count
    assert not harness.bugs


def test_small_dead_letters_of_what_a_full_queue_turns_away_end_the_publishers_turn_too() -> None:
    """They were charged to what queues may do, which did not keep the publisher from going on."""
    harness = Harness()
    node, client = harness.node, harness.client()
    client.declare("dead")
    client.call(commands.Queue.Bind(queue="dead", exchange="amq.fanout"), commands.Queue.BindOk)
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    client.declare("full", arguments=arguments)
    harness.automatic = False
    node.turns.begin(1)
    client.connection.receive(b"".join(publish_bytes(b"x", "full", message_id=str(n)) for n in range(1000)))
    assert client.connection.intake.throttled
    assert node.queues["/", "dead"].backlog.ready <= TURN_WORK_MAX // DEAD_LETTER_WORK + 1
    assert node.work_left >= 0
    harness.automatic = True
    harness.step()
    assert node.queues["/", "dead"].backlog.ready == 1000


def test_what_takes_long_may_begin_more_that_does() -> None:
    harness = Harness()
    node, done = harness.node, []

    def inner() -> Iterator[None]:
        yield
        done.append("inner")

    def outer() -> Iterator[None]:
        yield
        node.dispatching.carry_out(inner(), None)
        yield
        done.append("outer")

    node.dispatching.carry_out(outer(), None)
    harness.step()
    assert done == ["outer", "inner"]
    assert not harness.bugs


def test_a_large_dead_letter_that_nobody_takes_is_not_tried_in_each_tick() -> None:
    """One try uses up the budget of a tick, which must not count as if nothing had been tried."""
    harness = Harness()
    client = harness.client()
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "missing",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    client.declare("q", durable=True, arguments=arguments)
    client.publish(b"x", "q", expiration="50", headers={"a": "v" * 16 * QUEUES_WORK_MAX})
    harness.node.now_ms += 100
    harness.automatic = False
    for _ in range(3):
        harness.node.tick()
    assert not harness.node.behind
    harness.automatic = True
    client.call(commands.Exchange.Declare(exchange="missing", exchange_type="fanout"), commands.Exchange.DeclareOk)
    client.declare("target")
    client.call(commands.Queue.Bind(queue="target", exchange="missing"), commands.Queue.BindOk)
    harness.node.now_ms += 1000
    harness.step()
    client.consume("target", no_ack=True)
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}], ids=["classic", "priority"])
def test_what_expires_in_very_many_queues_at_once_takes_several_ticks(arguments: dict[str, Any]) -> None:
    """1,500 priority queues with one TTL took 80 ms: only that they were looked at was counted."""
    harness = Harness()
    queues = 400
    client = harness.client()
    for number in range(queues):
        client.declare(f"q{number}", arguments={"x-message-ttl": 1_000, **arguments})
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    client.publish(b"x", "", "amq.fanout")
    harness.automatic = False
    harness.node.now_ms += 2_000
    harness.tick()
    expired = sum(queue.facts.expired for queue in harness.node.queues.values())
    assert 0 < expired < queues / 2
    assert harness.node.behind
    harness.automatic = True
    harness.step()
    assert sum(queue.facts.expired for queue in harness.node.queues.values()) == queues
