"""What the pump does with what still comes from a client whose connection is over."""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from amqpd.pump import Pump
from amqpd.transport.link import LITTLES_MIN, Link
from amqpd.transport.tls_stream import TlsStream
from tests.harness.harness import Harness, publish_bytes

# The smallest record of application data there is (RFC 8446 section 5.2): a read brings thousands.
RECORD = b"\x17\x03\x03\x00\x12" + bytes(18)


def pump_of(harness: Harness, connections_max: int = 10, **options: Any) -> Pump:
    return Pump(
        harness.node,
        connections_max=connections_max,
        new_connection_id=harness.token,
        certificate_user=lambda certificate: None,
        want_reads=harness.reads.extend,
        clock_ms=lambda: 0,
        **{"want_commit": lambda: None, "alone": lambda: True, **options},
    )


def tls_stream() -> TlsStream:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    stream = TlsStream(context)
    stream.handshaken = True
    return stream


def test_what_comes_behind_the_end_is_not_decrypted_and_not_kept() -> None:
    """The client takes nothing of the last words, so the socket stays open for a while; what it sends meanwhile was
    kept, a read for each tick, because a call decrypts a bounded number of records."""

    async def main() -> None:
        pump = pump_of(Harness())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            link = Link(ours, Harness().client().connection, tls_stream())
            link.connection.lost()
            assert link.tls is not None
            for _ in range(3):
                theirs.send(RECORD * 1000)
                pump._read(link, 0.0)
            assert not link.tls.behind
            assert not link.tls._waiting
            assert not link.ended
        pump.close()

    trio.run(main)


def test_what_comes_little_at_a_time_and_what_comes_in_a_burst_is_all_received_in_order() -> None:
    async def main() -> None:
        harness = Harness()
        client, pump = harness.client(), pump_of(harness)
        client.declare("q")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            link = Link(ours, client.connection, None)
            sizes, large, sent = [20] * (LITTLES_MIN + 2) + [9_000, 20, 20, 5_000, 20, 20, 20], [], []
            for number, size in enumerate(sizes):
                sent.append(str(number).encode().ljust(size, b"."))
                theirs.send(publish_bytes(sent[-1]))
                large.append(link.littles < LITTLES_MIN)
                while select.select([ours], [], [], 0)[0]:
                    pump._read(link, 0.0)
            # What is left of a burst after the first piece may itself be little.
            assert large == [True] * LITTLES_MIN + [False] * 3 + [True] * 2 + [False, True, False, False]
            harness.step()
            client.consume("q", no_ack=True)
            assert client.bodies() == sent
        pump.close()

    trio.run(main)


class Committing:
    """A pump at rest, whose commits are counted; one end of a socket that it watches."""

    def __init__(self, busy_wait_s: float = 0.0) -> None:
        self.harness = Harness(automatic=False)
        self.commits = self.records = 0
        self.wanted, self.alone = 0, True
        self.pump = pump_of(
            self.harness,
            busy_wait_s=busy_wait_s,
            commit_now=self._commit_now,
            want_commit=self._want_commit,
            alone=lambda: self.alone,
            record=self._record,
        )
        self.ours, self.theirs = socket.socketpair()
        self.pump._epoll.register(self.ours.fileno(), select.EPOLLIN)

    def __enter__(self) -> Committing:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pump.close()
        self.ours.close()
        self.theirs.close()

    def _commit_now(self) -> bool:
        self.commits += 1
        self.harness.node.journal.take()
        return True

    def _want_commit(self) -> None:
        self.wanted += 1

    def _record(self) -> None:
        assert not self.commits, "what is in a commit is in the log before it"
        self.records += 1


def test_what_somebody_waits_for_is_committed_when_nothing_is_ready() -> None:
    with Committing() as committing:
        committing.harness.node.journal.force()
        committing.pump._audit.pending = True
        assert committing.pump._at_rest() == []
        assert (committing.commits, committing.records) == (1, 1)


def test_a_commit_waits_for_those_whose_confirms_went_out_with_the_last_one() -> None:
    with Committing(busy_wait_s=0.001) as committing:
        journal, pump = committing.harness.node.journal, committing.pump
        pump._timing._odds._credit = 0
        journal.force()
        journal.came_before, journal.came = 50, 24
        committing.theirs.send(b"x")
        assert pump._at_rest(), "another one has come"
        assert committing.commits == 0
        committing.ours.recv(1)
        assert pump._at_rest() == [], "nobody came for so long"
        assert committing.commits == 1
        journal.force()
        journal.came_before, journal.came = 50, 25
        committing.theirs.send(b"x")
        pump._at_rest()
        assert committing.commits == 2, "half of them are enough"


def test_what_the_last_commits_brought_fades() -> None:
    journal = Harness(automatic=False).node.journal
    for came, before in ((50, 50), (1, 43), (1, 37)):
        journal.came = came
        journal.take()
        assert (journal.came, journal.came_before) == (0, before)
    for _ in range(40):
        journal.came = 1
        journal.take()
    assert journal.came_before == 1


def test_a_commit_at_the_end_of_a_turn_is_the_threads_if_somebody_else_waits() -> None:
    with Committing() as committing:
        committing.pump._end_turn()
        committing.harness.node.journal.force()
        committing.alone = False
        committing.pump._end_turn()
        assert (committing.commits, committing.wanted) == (0, 1)
        committing.alone = committing.pump._audit.pending = True
        committing.pump._end_turn()
        assert (committing.commits, committing.wanted, committing.records) == (1, 1, 1)


def test_a_commit_that_the_pump_may_not_carry_out_is_wanted() -> None:
    wanted: list[bool] = []
    harness = Harness(automatic=False)
    pump = pump_of(harness, commit_now=lambda: False, want_commit=lambda: wanted.append(True))
    harness.node.journal.force()
    pump._end_turn()
    assert wanted
    pump.close()


@pytest.mark.parametrize("alone", [True, False])
def test_the_next_commit_is_the_pumps_if_it_has_had_a_moment_and_then_it_is_carried_out(alone: bool) -> None:
    """Also where somebody waits for a thread just then: that is the writer's commit itself."""

    async def main() -> None:
        with Committing() as committing:
            committing.alone = alone
            assert not committing.pump.takes_commit()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(committing.pump.run)
                committing.pump._wakeup.set()
                await trio.testing.wait_all_tasks_blocked()
                committing.alone = True
                committing.harness.node.journal.force()
                assert not committing.commits
                assert committing.pump.takes_commit()
                with trio.fail_after(60):
                    while not committing.commits:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_acknowledgements_wait_for_what_comes_next_and_not_for_long() -> None:
    with Committing() as committing:
        journal = committing.harness.node.journal
        journal.retire(1, 0, 0)
        committing.theirs.send(b"x")
        assert len(committing.pump._at_rest()) == 1
        assert committing.commits == 0
        committing.ours.recv(1)
        assert committing.pump._at_rest() == []
        assert committing.commits == 1


def test_a_commit_waits_a_moment_while_that_turns_out_well() -> None:
    with Committing(busy_wait_s=0.001) as committing:
        journal, patience = committing.harness.node.journal, committing.pump._timing._odds
        for _ in range(100):
            journal.force()
            committing.theirs.send(b"x")
            assert committing.pump._at_rest()
            committing.ours.recv(1)
            journal._forced = False  # as if what came had settled it
            committing.pump._at_rest()
        assert committing.commits == 0
        while patience._credit:
            journal.force()
            committing.pump._at_rest()
        before = committing.commits
        journal.force()
        committing.theirs.send(b"x")
        committing.pump._at_rest()
        assert committing.commits == before + 1, "it was in vain for long, so it is not waited any more"
