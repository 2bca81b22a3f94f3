"""Commits of transactions and dead letters never keep the journal from committing for long
(docs/decisions/transaction-holds.md)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pamqp import commands, frame

from amqpd.kernel import Run
from amqpd.management.running import Running
from amqpd.management.why.connections import explained
from amqpd.methods import modes
from amqpd.node.dispatching import QUEUES_SHARE_MIN
from amqpd.node.node import Node
from amqpd.publishing.acceptance import COPIES_AT_ONCE, accept_slowly
from amqpd.session import holds
from amqpd.topology import plans
from amqpd.vocabulary.records import Delete
from amqpd.vocabulary.states import ConnectionState
from tests.harness.harness import Client, Harness, publish_bytes

QUEUES, MESSAGES = 20, 100
"""of a commit that takes about ten turns of 500"""
WORK = MESSAGES * (modes.COMMIT_WORK + 2 * QUEUES)
TURN = 500
COMMIT = frame.marshal(commands.Tx.Commit(), 1)


def durable_queues(client: Client, queues: int = QUEUES) -> None:
    for number in range(queues):
        client.declare(f"q{number}", durable=True)
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)


def transacting(harness: Harness) -> Client:
    client = harness.client()
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    return client


def a_transaction(messages: int = MESSAGES) -> bytes:
    sent = b"".join(publish_bytes(b"x", f"k{n}", "amq.fanout", delivery_mode=2) for n in range(messages))
    return sent + COMMIT


def commit_begins(harness: Harness, clients: list[Client], messages: int = MESSAGES) -> None:
    """All that the commits need is there; each begins with a turn of its own."""
    for client in clients:
        client.raw(a_transaction(messages)[: -len(COMMIT)])
    harness.automatic = False
    for client in clients:
        client.connection.receive(COMMIT)


def confirming(harness: Harness) -> Client:
    client = harness.client()
    client.declare("victim", durable=True)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def tick(harness: Harness) -> None:
    """As the pump does it, with short turns."""
    harness.node.turns.begin(0)
    harness.node.turns.turn_work = TURN
    harness.node.turns.next()
    harness.reads += harness.node.tick()


def short_turns(monkeypatch: pytest.MonkeyPatch, commits: int = 1) -> None:
    """Also for whom the journal waits for; a hold has space for this many of the commits."""
    monkeypatch.setattr("amqpd.flow.turns.TURN_WORK_MAX", TURN)
    monkeypatch.setattr(holds, "HOLD_WORK_MAX", commits * WORK)


def run_until_idle(harness: Harness) -> int:
    """The number of ticks until nothing is left to do; the journal's writer commits whenever it may."""
    ticks = 0
    while harness.node.turns.waiting or harness.node.behind or harness.node.journal.pending:
        tick(harness)
        if harness.node.journal.pending:
            harness.commit()
        ticks += 1
        assert ticks < 1_000
    return ticks


def test_two_clients_whose_commits_overlap_do_not_keep_others_from_their_confirms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On many channels, so that one of them always has something to commit."""
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    attackers, victim, channels = [harness.client() for _ in range(2)], confirming(harness), 10
    for attacker in attackers:
        for channel in range(1, channels + 1):
            if channel > 1:
                attacker.channel(channel)
            attacker.call(commands.Tx.Select(), commands.Tx.SelectOk, channel)
            attacker.raw(
                b"".join(
                    publish_bytes(b"x", f"k{n}", "amq.fanout", channel, delivery_mode=2) for n in range(MESSAGES)
                )
            )
    harness.automatic = False
    for attacker in attackers:
        attacker.connection.receive(
            b"".join(frame.marshal(commands.Tx.Commit(), channel) for channel in range(1, channels + 1))
        )
    tick(harness)
    victim.connection.receive(publish_bytes(b"x", "victim", delivery_mode=2))
    ticks_for_one = WORK // TURN + 2
    waited = 0
    while not victim.take(commands.Basic.Ack):
        tick(harness)
        if harness.node.journal.pending:
            harness.commit()
        waited += 1
        assert waited < 3 * ticks_for_one, f"{harness.node.journal.held} hold the journal"
    assert harness.node.turns.waiting
    run_until_idle(harness)
    for attacker in attackers:
        assert len(attacker.take(commands.Tx.CommitOk)) == channels


def test_commits_that_do_not_fit_beside_each_other_are_taken_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(4)]
    before = len(harness.transactions)
    commit_begins(harness, clients)
    assert harness.node.journal.held == 1
    assert sum(client.connection.intake.parked for client in clients) == 3
    run_until_idle(harness)
    assert harness.node.journal.held == 0
    messages = [len(transaction.rows) for transaction in harness.transactions[before:] if transaction.rows]
    assert messages == [QUEUES] * 4
    for client in clients:
        client.expect(commands.Tx.CommitOk)


def test_who_waits_for_the_journal_has_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(2)]
    commit_begins(harness, clients)
    tick(harness)
    assert list(harness.node.turns.waiting) == [clients[0].connection]
    while harness.node.journal.held:
        tick(harness)
    tick(harness)
    assert not harness.node.turns.waiting
    assert not harness.node.behind
    assert clients[1].connection.intake.parked
    harness.commit()
    assert clients[1].connection in harness.node.turns.waiting


def test_a_commit_that_waits_is_said_to_wait_and_not_to_publish_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(2)]
    commit_begins(harness, clients)
    on = Running(harness.node, lambda: None)
    first, second = (trio.run(explained, on, client.connection) for client in clients)
    assert not any("publishes faster" in sentence or "tx.commit waits" in sentence for sentence in first)
    assert second[0].startswith("its tx.commit waits")
    assert not any("publishes faster" in sentence for sentence in second)


def test_small_commits_share_a_transaction_of_the_journal() -> None:
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(10)]
    before = len(harness.transactions)
    commit_begins(harness, clients, 3)
    assert not any(client.connection.intake.parked for client in clients)
    harness.commit()
    assert len(harness.transactions) == before + 1
    for client in clients:
        client.expect(commands.Tx.CommitOk)


def test_a_commit_larger_than_a_hold_goes_on_without_one_and_is_answered_after_the_last_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_turns(monkeypatch)
    monkeypatch.setattr(holds, "HOLD_WORK_MAX", WORK - 1)
    harness = Harness()
    durable_queues(harness.client())
    client, victim = transacting(harness), confirming(harness)
    before = len(harness.transactions)
    commit_begins(harness, [client])
    victim.connection.receive(publish_bytes(b"", "victim", delivery_mode=2))
    tick(harness)
    assert harness.node.journal.pending
    harness.commit()
    assert victim.take(commands.Basic.Ack)
    assert not client.take(commands.Tx.CommitOk)
    run_until_idle(harness)
    client.expect(commands.Tx.CommitOk)
    assert len([transaction for transaction in harness.transactions[before:] if transaction.rows]) > 2


def test_transient_commits_do_not_wait_for_a_take_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(3)]
    sent = b"".join(publish_bytes(b"x", f"k{n}", "amq.fanout") for n in range(MESSAGES))
    for client in clients:
        client.raw(sent)
    commit_begins(harness, clients, 0)
    run_until_idle(harness)
    for client in clients:
        client.expect(commands.Tx.CommitOk)


@pytest.mark.parametrize("at", ["held", "parked"])
@pytest.mark.parametrize("end", ["lost", "closed", "vhost", "quarantine"])
def test_whatever_ends_a_holder_the_journal_goes_on(monkeypatch: pytest.MonkeyPatch, at: str, end: str) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(3)]
    victim = confirming(harness)
    commit_begins(harness, clients)
    tick(harness)
    assert harness.node.journal.held == 1
    ended = clients[0 if at == "held" else 1].connection
    if end == "lost":
        ended.lost()
    elif end == "closed":
        ended.force_close("the operator")
    elif end == "quarantine":
        harness.node.quarantine(harness.node.queues["/", "q3"], RuntimeError("a bug"))
    else:
        harness.submit([Delete(key) for key in [("vhost", "/")]], lambda _: None)
        harness.answer()
    victim.connection.receive(publish_bytes(b"", "victim", delivery_mode=2))
    run_until_idle(harness)
    assert harness.node.journal.held == 0
    assert harness.node.turns.holder is None
    assert not harness.node.holds.waiting
    assert [str(bug) for bug in harness.bugs] == (["a bug"] if end == "quarantine" else [])
    if end != "vhost":
        assert victim.take(commands.Basic.Ack)
        for client in clients:
            # Not all queues took it: 406, as in RabbitMQ.
            answer = commands.Channel.Close if end == "quarantine" else commands.Tx.CommitOk
            assert client.take(answer) or client.connection is ended
    if end == "lost":
        assert ended.state is ConnectionState.CLOSED
        assert not ended.intake.unfinished


def test_an_error_inside_a_commit_ends_its_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(2)]
    accept = accept_slowly
    seen: list[Any] = []

    def breaks(node: Node, channel: Any, run: Run, *rest: Any) -> Any:
        seen.append(channel)
        if channel.connection is clients[0].connection and len(seen) == MESSAGES // 2:
            raise RuntimeError("a bug")
        return accept(node, channel, run, *rest)

    monkeypatch.setattr(modes, "accept_slowly", breaks)
    commit_begins(harness, clients)
    run_until_idle(harness)
    assert harness.node.journal.held == 0
    assert [str(bug) for bug in harness.bugs] == ["a bug"]
    assert clients[0].expect(commands.Connection.Close).reply_code == 541
    clients[1].expect(commands.Tx.CommitOk)


def test_a_transaction_that_waits_for_the_journal_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    short_turns(monkeypatch)
    harness = Harness()
    durable_queues(harness.client())
    clients = [transacting(harness) for _ in range(2)]
    commit_begins(harness, clients)
    assert clients[1].connection.transaction_bytes > 0
    run_until_idle(harness)
    assert clients[1].connection.transaction_bytes == 0
    assert harness.node.client_counters.unfinished.nbytes == 0


def wide_dead_letters(harness: Harness, sources: int = 1) -> Client:
    """A client that declared queues whose messages die into very many; with the exchange `die` to all of them."""
    client = harness.client()
    durable_queues(client, 3 * COPIES_AT_ONCE)
    client.call(commands.Exchange.Declare(exchange="die", exchange_type="fanout"), commands.Exchange.DeclareOk)
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-max-length": 1}
    for number in range(sources):
        client.declare(f"dying-{number}", durable=True, arguments=arguments)
        client.call(commands.Queue.Bind(queue=f"dying-{number}", exchange="die"), commands.Queue.BindOk)
    client.publish(b"0", "", "die", delivery_mode=2)
    return client


def test_many_dead_letters_do_not_keep_others_from_their_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "HOLD_WORK_MAX", 1_000)
    # So a dead letter takes 3,000 in 150 steps, and seldom ends with the tick.
    monkeypatch.setattr("amqpd.publishing.dead_lettering.COPIES_AT_ONCE", 10)
    harness = Harness()
    attacker, victim = wide_dead_letters(harness, 8), confirming(harness)
    harness.automatic = False
    attacker.connection.receive(publish_bytes(b"1", "", "die", delivery_mode=2))
    victim.connection.receive(publish_bytes(b"x", "victim", delivery_mode=2))
    waited = 0
    while not victim.take(commands.Basic.Ack):
        harness.node.work_left = QUEUES_SHARE_MIN + 250
        harness.reads += harness.node.tick(fresh=False)
        if harness.node.journal.pending:
            harness.commit()
        waited += 1
        assert waited < 10, f"{harness.node.journal.held} hold the journal"
    assert harness.node.dispatching.behind
    run_until_idle(harness)
    assert {queue.backlog.ready for (_, name), queue in harness.node.queues.items() if name[0] == "q"} == {8}


def test_dead_letters_that_end_release_the_journal_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    attacker = wide_dead_letters(harness)
    harness.automatic = False
    node = harness.node

    def breaks(work: int) -> Any:
        node.work_left -= work
        yield
        raise RuntimeError("a bug")

    node.work_left = 10
    node.dispatching.carry_out(breaks(20), None)
    attacker.connection.receive(publish_bytes(b"1", "", "die", delivery_mode=2))
    assert node.journal.held == 1
    run_until_idle(harness)
    assert node.journal.held == 0
    assert [str(bug) for bug in harness.bugs] == ["a bug"]


def test_a_vhost_that_is_deleted_while_its_dead_letters_are_on_their_way_releases_the_journal() -> None:
    harness = Harness()
    harness._apply(plans.create_vhost("other"))
    client = Client(harness)
    client.open("other")
    durable_queues(client, 3 * COPIES_AT_ONCE)
    client.declare("dying", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout", "x-max-length": 1})
    client.publish(b"0", "dying", delivery_mode=2)
    harness.automatic = False
    client.connection.receive(publish_bytes(b"1", "dying", delivery_mode=2))
    harness.node.work_left = QUEUES_SHARE_MIN + 200
    harness.node.tick(fresh=False)
    assert harness.node.journal.held == 1
    harness.submit([Delete(("vhost", "other"))], lambda _: None)
    harness.answer()
    run_until_idle(harness)
    assert harness.node.journal.held == 0
    assert not harness.bugs
