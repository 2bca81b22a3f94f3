"""Wrong log-ins by the thousand, while right ones and messages go on: a node, its services, and argon2 held up.

Whether somebody has to wait is read off the order of things, not off a clock: while no hash ends, whatever comes to
its end needed none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from pamqp import commands

from amqpd.connection import Connection
from amqpd.process.services import BrokerServices
from amqpd.security.authentication import attempts as attempts_module
from amqpd.security.authentication import logins as logins_module
from amqpd.security.authentication.attempts import ABANDONED_AN_ADDRESS_MAX
from amqpd.security.authentication.logins import VERIFICATIONS_AT_ONCE, WAIT_MAX_S, WAITING_AN_ADDRESS_MAX, Logins
from amqpd.vocabulary.records import Put, UserRecord
from amqpd.vocabulary.states import ConnectionState, PeerAddress
from tests.harness.harness import PROTOCOL_HEADER, Client, Harness

pytestmark = pytest.mark.trio

FLOOD = WAITING_AN_ADDRESS_MAX + 100
"""connections from each of two addresses, one with one name and one with many"""


class HeldHashes:
    """Stands for argon2: nothing ends before `go_on`. Its order is that in which threads were asked for the hashes,
    not that in which the threads then ran: a busy machine lets one wait while the other goes through several."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.order: list[str] = []
        self._in_thread = trio.to_thread.run_sync
        monkeypatch.setattr(trio.to_thread, "run_sync", self.begin)
        monkeypatch.setattr(logins_module, "verify_password", self.verify)
        monkeypatch.setattr(logins_module, "hash_password", lambda password: "hash of nothing")

    async def begin(self, verify: Callable[[bytes, str], bool], password: bytes, stored: str) -> bool:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.order.append(stored or "hash of nothing")
        return await self._in_thread(verify, password, stored)

    def verify(self, stored: str, password: bytes) -> bool:
        assert self.go_on.wait(60)
        return stored == "hash of " + password.decode()


class Guarded(Harness):
    """A node with users: log-ins are the real ones."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        users = ("guest", "victim", "other")
        self._apply([Put(UserRecord(user, f"hash of {user}")) for user in users])
        self._services = BrokerServices(Logins(self.topology))
        self._services.start(None, nursery, self._run_effects)  # type: ignore[arg-type]  # nothing is submitted through it
        self._answered = trio.Event()

    def authenticate(self, connection: Connection, mechanism: str, response: bytes) -> None:
        self._services.authenticate(connection, mechanism, response)

    def left_unauthenticated(self, connection: Connection) -> None:
        self._services.left_unauthenticated(connection)

    @property
    def attempts(self) -> tuple[int, int]:
        """under way, and of these abandoned"""
        attempts = self._services._attempts
        assert attempts._counts.total() == len(attempts._abandoned)
        return len(attempts._under_way), len(attempts._abandoned)

    def _run_effects(self) -> None:
        self.step()
        self._answered.set()
        self._answered = trio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return when it is so; looked at after each answer to a log-in, when its task has come to its end."""
        with trio.fail_after(60):
            while True:
                answered = self._answered
                await trio.testing.wait_all_tasks_blocked()
                if reached():
                    return
                await answered.wait()


def knock(harness: Harness, user: str, password: str, host: str = "192.0.2.1") -> Client:
    """Begin to log in."""
    client = Client(harness, authentication_failure_close=True)
    client.connection.peer = PeerAddress(f"{host}:4711 -> 192.0.2.9:5672", True)
    client.raw(PROTOCOL_HEADER)
    client.expect(commands.Connection.Start)
    properties: dict[str, Any] = {"capabilities": client.capabilities}
    client.send(commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0{password}"), 0)
    return client


def refused(client: Client) -> bool:
    """connection.close was sent, and says nothing but 403."""
    assert all(close.reply_code == 403 for close in client.take(commands.Connection.Close))
    return client.connection.state is ConnectionState.CLOSING


async def warm(harness: Guarded, hashes: HeldHashes) -> None:
    """The first log-in makes the hash of nobody; from here on hashes are held."""
    hashes.go_on.set()
    first = knock(harness, "made up", "wrong")
    await harness.until(lambda: refused(first))
    hashes.go_on.clear()
    hashes.order.clear()


async def break_off(harness: Guarded, count: int, host: str, at_once: bool = False) -> None:
    """Log-ins from one address whose connections end; `at_once`: before their tasks take a step."""
    for number in range(count):
        client = knock(harness, f"made up {number} at {host}", "wrong", host)
        if not at_once:
            await trio.testing.wait_all_tasks_blocked()
        client.lose()
    await trio.testing.wait_all_tasks_blocked()


async def test_a_flood_of_wrong_log_ins_stalls_neither_users_nor_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        hashes.go_on.set()
        first = knock(harness, "guest", "guest")
        await harness.until(lambda: first.connection.user == "guest")
        hashes.go_on.clear()
        consumer, publisher = harness.client(), harness.client()
        consumer.declare("q")
        consumer.consume("q", no_ack=True)
        publisher.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

        flood = [knock(harness, "victim", f"wrong {number}") for number in range(FLOOD)]
        flood += [knock(harness, f"made up {number}", "wrong", "192.0.2.2") for number in range(FLOOD)]
        await trio.testing.wait_all_tasks_blocked()
        # Few hashes at once, a bounded number waits from each address, and the rest has its answer already.
        answered = sum(map(refused, flood))
        assert answered == 2 * FLOOD - 2 * WAITING_AN_ADDRESS_MAX - VERIFICATIONS_AT_ONCE

        # No hash ends now, and nothing here lets another task run: what was verified before needs neither.
        known = harness.client()
        known.publish(b"from who came meanwhile")
        publisher.publish(b"from who was there")
        publisher.expect(commands.Basic.Ack)
        assert consumer.bodies() == [b"from who came meanwhile", b"from who was there"]

        # A right one that was never seen waits behind what runs and one of each address, not behind the flood.
        new = knock(harness, "other", "other", "192.0.2.3")
        await trio.testing.wait_all_tasks_blocked()
        assert not new.connection.user
        hashes.go_on.set()
        await harness.until(lambda: new.connection.user == "other")
        new.expect(commands.Connection.Tune)
        # Before the flood there was one; two at once may begin in either order.
        assert hashes.order.index("hash of other") <= 1 + VERIFICATIONS_AT_ONCE + 2 + 1
        await harness.until(lambda: all(map(refused, flood)))
        assert not harness.bugs


async def test_what_a_flood_leaves_behind_is_not_computed_for_ever(
    monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    """Connections that are gone left their log-ins: 500 hashes of each address, an hour's work of 200 addresses, for
    which all waited that logged in for the first time."""
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)

        for address in range(20):
            for number in range(20):
                client = knock(harness, f"made up {address} {number}", "wrong", f"198.51.100.{address}")
                await trio.testing.wait_all_tasks_blocked()
                client.connection.lost()
        mock_clock.jump(WAIT_MAX_S + 1)
        await trio.testing.wait_all_tasks_blocked()

        new = knock(harness, "other", "other", "192.0.2.3")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.rate = 1
        hashes.go_on.set()
        await harness.until(lambda: new.connection.user == "other")
        assert len(hashes.order) == VERIFICATIONS_AT_ONCE + 1
        await harness.until(lambda: harness.attempts == (0, 0))
        assert not harness.bugs


@pytest.mark.parametrize("at_once", [False, True])
async def test_of_log_ins_that_are_broken_off_ten_of_each_address_stay_in_line(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        await break_off(harness, 50, "198.51.100.1", at_once)
        assert harness.attempts == (ABANDONED_AN_ADDRESS_MAX, ABANDONED_AN_ADDRESS_MAX)
        assert len(nursery.child_tasks) == ABANDONED_AN_ADDRESS_MAX
        await break_off(harness, 50, "198.51.100.2", at_once)
        assert harness.attempts == (2 * ABANDONED_AN_ADDRESS_MAX, 2 * ABANDONED_AN_ADDRESS_MAX)

        # A client that is still there keeps its place.
        waiting = knock(harness, "other", "other", "198.51.100.1")
        await trio.testing.wait_all_tasks_blocked()
        hashes.go_on.set()
        await harness.until(lambda: waiting.connection.user == "other")
        await harness.until(lambda: len(hashes.order) == 2 * ABANDONED_AN_ADDRESS_MAX + 1)
        await harness.until(lambda: harness.attempts == (0, 0))
        # There is a place again for one that is broken off.
        hashes.go_on.clear()
        await break_off(harness, 1, "198.51.100.1", at_once)
        assert harness.attempts == (1, 1)
        hashes.go_on.set()
    assert harness.attempts == (0, 0)
    assert not harness.bugs


async def test_a_refusal_is_told_to_the_operator_though_the_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guessing and leaving at once left no trace of the guess."""
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        harness.logged.clear()
        client = knock(harness, "victim", "wrong", "198.51.100.1")
        await trio.testing.wait_all_tasks_blocked()
        client.lose()
        hashes.go_on.set()
        await harness.until(lambda: harness.attempts == (0, 0))
    (line,) = [fields for event, fields in harness.logged if event == "login_refused"]
    assert (line["connection"], line["mechanism"]) == (client.connection.name, "PLAIN")
    assert "victim" in line["reason"]
    assert not harness.bugs


async def test_log_ins_that_are_broken_off_from_many_addresses_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts_module, "ABANDONED_MAX", 15)
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        for address in range(10):
            await break_off(harness, 2, f"198.51.100.{address}")
        # An address that has fewer than others finds space all the same; what is given up for it may have begun.
        await break_off(harness, 2, "192.0.2.3")
        under_way, abandoned = harness.attempts
        assert abandoned == 15
        assert under_way <= 15 + VERIFICATIONS_AT_ONCE
        hashes.go_on.set()
        await harness.until(lambda: harness.attempts == (0, 0))
    told = [str(fields["reason"]) for event, fields in harness.logged if event == "login_refused"]
    assert sum("192.0.2.3" in reason for reason in told) == 1
    assert not harness.bugs


async def test_behind_a_flood_a_second_try_is_answered_by_the_hash_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        await break_off(harness, 50, "198.51.100.1")
        first = knock(harness, "other", "other", "192.0.2.3")
        await trio.testing.wait_all_tasks_blocked()
        first.lose()
        second = knock(harness, "other", "other", "192.0.2.3")
        await trio.testing.wait_all_tasks_blocked()
        assert not second.connection.user
        hashes.go_on.set()
        await harness.until(lambda: second.connection.user == "other")
    assert hashes.order.count("hash of other") == 1
    assert not first.connection.user
    assert harness.attempts == (0, 0)
    assert not harness.bugs


@pytest.mark.parametrize("waits", [False, True])
async def test_a_hash_that_has_begun_counts_though_its_log_in_is_given_up(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """For clients that wait for the same, and for those that come later."""
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        begun = knock(harness, "other", "other", "198.51.100.1")
        await trio.testing.wait_all_tasks_blocked()
        await break_off(harness, ABANDONED_AN_ADDRESS_MAX, "198.51.100.1")
        waiting = knock(harness, "other", "other", "192.0.2.3") if waits else None
        await trio.testing.wait_all_tasks_blocked()
        # Of its address there are ten already: it is not one of those that go on.
        begun.lose()
        assert harness.attempts == (ABANDONED_AN_ADDRESS_MAX + 1 + waits, ABANDONED_AN_ADDRESS_MAX)
        hashes.go_on.set()
        await harness.until(lambda: harness.attempts == (0, 0))
        assert waiting is None or waiting.connection.user == "other"
        later = knock(harness, "other", "other", "192.0.2.4")
        assert later.connection.user == "other", "it is remembered: no task, no hash"
    assert hashes.order.count("hash of other") == 1
    assert not harness.bugs


async def test_nothing_is_left_of_a_log_in_whatever_came_of_it(
    monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(logins_module, "WAITING_AN_ADDRESS_MAX", 3)
    hashes = HeldHashes(monkeypatch)
    async with trio.open_nursery() as nursery:
        harness = Guarded(nursery)
        await warm(harness, hashes)
        clients = []
        for number in range(4):
            clients.append(knock(harness, "victim", f"wrong {number}"))
            await trio.testing.wait_all_tasks_blocked()
        assert harness.attempts == (4, 0)
        # One place to wait is left, and then none.
        clients += [knock(harness, f"made up {number}", "wrong") for number in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        assert sum(map(refused, clients)) == 1
        assert harness.attempts == (5, 0)
        clients[0].lose()
        assert harness.attempts == (5, 1)
        # Some end for want of time, and those whose hash has begun by its answer.
        mock_clock.jump(WAIT_MAX_S + 1)
        await trio.testing.wait_all_tasks_blocked()
        assert harness.attempts == (VERIFICATIONS_AT_ONCE, 1)
        mock_clock.rate = 1
        hashes.go_on.set()
        await harness.until(lambda: harness.attempts == (0, 0))
        accepted = knock(harness, "other", "other")
        await harness.until(lambda: accepted.connection.user == "other")
        await trio.testing.wait_all_tasks_blocked()
        assert harness.attempts == (0, 0)
        assert not harness.bugs

        def broken(stored: str, password: bytes) -> bool:
            raise ValueError("no hash")

        with monkeypatch.context() as patch:
            patch.setattr(logins_module, "verify_password", broken)
            knock(harness, "guest", "guest", "127.0.0.1")
            await harness.until(lambda: bool(harness.bugs))
        await trio.testing.wait_all_tasks_blocked()
        assert harness.attempts == (0, 0)

        # The broker ends in the middle of one.
        hashes.go_on.clear()
        for number in range(VERIFICATIONS_AT_ONCE + 1):
            knock(harness, "victim", f"wrong again {number}")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        hashes.go_on.set()
    assert harness.attempts == (0, 0)
