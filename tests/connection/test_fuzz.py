"""Hostile bytes on the pure connection machine: a correct close or nothing; nobody else notices.

A stream is one connection's valid session (`tests/harness/sessions.py`), mutated (`tests/harness/mutations.py`), cut
anywhere, with the answers of store and journal at random moments in between. Several live on one node at a time,
beside a witness that goes on with its work. Afterwards: every error was a close with a code that AMQP has, never 541;
everything adds up (`tests/harness/invariants.py`); what the broker sent satisfies a strict client
(`tests/harness/output.py`).

A seeded generator of our own and not Hypothesis: 100,000 streams take minutes instead of hours, valid sessions need
state that Hypothesis would shrink to nothing before it found anything, and a stream is replayed by its number alone.
`AMQPD_FUZZ_STREAMS=100000` sets how many, `AMQPD_FUZZ_FIRST=n` where to begin: a failure prints both.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from random import Random

import pytest
from pamqp import commands

from amqpd.connection import Connection
from amqpd.security.sasl import parse_response
from amqpd.session.services import Resume
from amqpd.topology.metadata.sync import transaction_of
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Change, Key
from amqpd.vocabulary.states import ConnectionState, PeerAddress
from tests.harness.harness import Client, Harness
from tests.harness.invariants import check_bounds, check_node
from tests.harness.mutations import mutated
from tests.harness.output import Event, Output
from tests.harness.session_choices import CLASSIC_ARGUMENTS, EXCHANGE_TYPES, QUEUE_ARGUMENTS, QUORUM_ARGUMENTS
from tests.harness.sessions import Session

STREAMS = int(os.environ.get("AMQPD_FUZZ_STREAMS", "500"))
FIRST = int(os.environ.get("AMQPD_FUZZ_FIRST", "0"))
# Streams on one node, one after the other and some at a time: enough for them to meet, few enough to replay.
STREAMS_A_NODE = 20
# Sessions that are sent three times: whole, octet by octet, and cut at random.
CUT_SESSIONS = max(60, STREAMS // 50)
DELIVER_ID = b"\x00\x3c\x00\x3c"
# Small, so that short sessions reach them.
SMALL = Limits(
    queue_memory_bytes=20_000, backlog_memory_bytes=60_000, outbox_bytes_max=30_000, message_bytes_max=200_000
)
ANSWER_BYTES_MAX = 400_000


class FuzzHarness(Harness):
    """Answers of the store and commits come when the test says so."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits, automatic=False)

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        """What the real store is asked to write must be writable, or refused as the real one refuses."""
        transaction_of(changes, 1, requires)
        super().submit(changes, resume, requires, owner)

    def authenticate(self, connection: Connection, mechanism: str, response: bytes) -> None:
        assert parse_response(mechanism, response) is not None
        super().authenticate(connection, mechanism, response)

    def some_time_passes(self, random: Random) -> None:
        self.node.now_ms += random.choice((0, 0, 1, 30, 1500))
        for happen in random.sample((self.answer, self.commit_pending, self.read, self.tick), random.randint(1, 4)):
            happen()

    def everything_settles(self) -> None:
        self.automatic = True
        self.node.measure()
        self.step()
        self.automatic = False

    def commit_pending(self) -> None:
        if self.node.journal.pending:
            self.commit()

    def tick(self) -> None:
        """One, and no more for those who wait for it; until nobody waits, when everything settles."""
        if self.automatic:
            super().tick()
            return
        self.node.turns.begin(0)
        self.node.turns.next()
        self.reads += self.node.tick()


class Stream:
    """One hostile connection."""

    def __init__(self, harness: FuzzHarness, random: Random, name: str) -> None:
        self.harness = harness
        self.random = random
        self.connection = Connection(harness.node, PeerAddress(name, True), name, 0.0)
        self.output = Output()
        self.sent = 0

    def feed(self, data: bytes, mean_chunk: int) -> list[Event]:
        """Send it in chunks; what the broker sent meanwhile, as events."""
        random, at, events = self.random, 0, []
        while at < len(data) and self.connection.state is not ConnectionState.CLOSED:
            size = max(1, int(random.expovariate(1 / mean_chunk)))
            chunk, at = data[at : at + size], at + size
            self.wait_until_read()
            self.connection.receive(chunk)
            self.sent += len(chunk)
            check_bounds(self.connection, len(chunk), ANSWER_BYTES_MAX)
            if random.random() < 0.3:
                self.harness.some_time_passes(random)
                events += self.drain()
        return events + self.drain()

    def wait_until_read(self) -> None:
        """As the pump does: a connection that is paused is not read until it goes on."""
        for _ in range(20):
            if not self.connection.reading_paused:
                return
            self.drain()
            self.harness.everything_settles()
        intake, state = self.connection.intake, self.connection.state
        raise AssertionError(f"reading stays paused: {state}, paused {intake.paused}, throttled {intake.throttled}")

    def drain(self) -> list[Event]:
        connection = self.connection
        data = b"".join(connection.outbox)
        connection.outbox = []
        connection.sent(0)
        return self.output.feed(data, connection.frame_max)

    def lose(self) -> None:
        self.connection.lost()
        self.drain()


class Witness:
    """A well-behaved client on the same node: each round trip must work, whatever the others do."""

    def __init__(self, harness: FuzzHarness) -> None:
        self.harness = harness
        self.client = Client(harness)
        self.number = 0

    def open(self) -> None:
        self.harness.automatic = True
        self.client.open()
        self.client.declare("witness", exclusive=True)
        self.client.consume("witness")
        self.client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self.harness.automatic = False

    def goes_on(self) -> None:
        self.number += 1
        self.harness.automatic = True
        self.client.publish(str(self.number).encode(), "witness", delivery_mode=2)
        (message,) = self.client.messages()
        assert message.body == str(self.number).encode()
        (confirm,) = self.client.take(commands.Basic.Ack)
        assert confirm.delivery_tag == self.number
        self.client.send(commands.Basic.Ack(message.tag))
        self.harness.automatic = False
        assert not self.client.inbox


def run_node(first: int, count: int, totals: Counter[str]) -> None:
    """The streams first..first+count-1 on one node."""
    harness = FuzzHarness(SMALL)
    witness = Witness(harness)
    witness.open()
    lively: list[Stream] = []
    for number in range(first, first + count):
        random = Random(number)
        stream = Stream(harness, random, f"s{number}")
        run_stream(stream, random, number, totals)
        lively.append(stream)
        if len(lively) > 2:
            end_stream(lively.pop(random.randrange(3)), random)
        check_node(harness.node)
        witness.goes_on()
        assert not harness.bugs, harness.bugs
        totals["bytes"] += stream.sent
    for stream in lively:
        stream.lose()
    harness.everything_settles()
    check_node(harness.node)
    assert set(harness.node.connections) == {witness.client.connection.id}


def run_stream(stream: Stream, random: Random, number: int, totals: Counter[str]) -> None:
    session = Session(random, stream.connection.name, rude=random.random() < 0.3)
    other = Session(Random(number + 10**9), stream.connection.name)
    spare = other.handshake() + other.work(15)
    mean_chunk = random.choice((30, 300, 300, 5000, 10**6))
    acts = random.randint(2, 5)
    spoiled = 0 if random.random() < 0.1 else random.randrange(1, acts)
    for act in range(acts):
        frames = session.work(random.choice((3, 10, 25))) if act else session.handshake()
        if act == spoiled:
            data, names = mutated(random, frames, spare)
            totals.update(names)
        else:
            data = b"".join(frames)
        react(session, stream.feed(data, mean_chunk))
        harness_time(stream, random)
        react(session, stream.drain())
    if random.random() < 0.3:
        stream.feed(b"".join(session.goodbye()), mean_chunk)
    totals.update(f"made {name}" for name, made in session.made.items() if made)
    count_end(stream, totals)


def harness_time(stream: Stream, random: Random) -> None:
    if random.random() < 0.7:
        stream.harness.everything_settles()


def react(session: Session, events: list[Event]) -> None:
    for event in events:
        if event[0] == "deliver":
            session.delivered(*event[1:])
        elif event[0] == "get":
            session.got(*event[1:])
        else:
            session.channel_closed(event[1])


def end_stream(stream: Stream, random: Random) -> None:
    if random.random() < 0.5:
        stream.feed(b"\x01\0\0\0\0\0\x04\x00\x0a\x00\x33\xce", 100)
    stream.lose()
    assert stream.connection.id not in stream.harness.node.connections


def count_end(stream: Stream, totals: Counter[str]) -> None:
    totals["streams"] += 1
    totals[f"ended {stream.connection.state.value}, code {stream.output.close_code}"] += 1
    totals.update(f"channel closed {code}" for code in stream.output.soft_codes)
    totals.update({f"answer {name}": count for name, count in stream.output.counts.items()})


@pytest.mark.timeout(0 if STREAMS > 20_000 else 600)
def test_a_hostile_stream_is_closed_correctly_and_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for first in range(FIRST, FIRST + STREAMS, STREAMS_A_NODE):
        try:
            run_node(first, STREAMS_A_NODE, totals)
        except Exception as error:
            raise AssertionError(
                f"AMQPD_FUZZ_FIRST={first} AMQPD_FUZZ_STREAMS={STREAMS_A_NODE} fails: {error!r}"
            ) from error
    if STREAMS > 20_000:
        with capsys.disabled():
            print(*(f"\n{count:>10} {name}" for name, count in sorted(totals.items())))
    codes = {name.rpartition(" ")[2] for name in totals if name.startswith("ended")}
    assert codes >= {"501", "502", "503", "504", "505", "530", "None"}, codes
    soft = {int(name.rpartition(" ")[2]) for name in totals if name.startswith("channel closed")}
    assert soft >= {403, 404, 405, 406}, soft
    working = sum(count for name, count in totals.items() if name.startswith("ended running"))
    assert working > STREAMS / 8, f"only {working} of {STREAMS} streams were let live: too much is broken at once"


# Cuts


def transcript(number: int, cut: Callable[[Random, bytes], list[bytes]]) -> list[dict[int, bytes]] | None:
    """What the broker sends on each channel in answer to each act of a session, one of which is mutated, when the
    bytes of each act arrive in the pieces that `cut` makes of them; between channels there is no order. None when a
    turn ended in the middle of an act: then queues hand out before the rest is read, and who gets what depends on
    when."""
    random, cuts = Random(number), Random(number)
    # Large outboxes: how far deliveries go beyond a full one depends on how large the runs are.
    harness = FuzzHarness(Limits(message_bytes_max=200_000))
    stream = Stream(harness, random, f"s{number}")
    session = Session(random, f"s{number}")
    spare = Session(Random(number + 10**9), f"s{number}")
    other = spare.handshake() + spare.work(10)
    sent = []
    for act in range(4):
        frames = session.work(10) if act else session.handshake()
        data = mutated(random, frames, other)[0] if act == number % 5 else b"".join(frames)
        for piece in cut(cuts, data):
            stream.connection.receive(piece)
        if stream.connection in harness.node.turns.waiting or DELIVER_ID in b"".join(stream.connection.outbox):
            return None
        harness.everything_settles()
        sent.append(by_channel(b"".join(stream.connection.outbox)))
        react(session, stream.drain())
        check_node(harness.node)
    assert not harness.bugs
    return sent


def by_channel(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if data[at : at + 4] == b"AMQP":
            return found | {-1: data[at:]}
        _, channel, size = struct.unpack_from(">BHI", data, at)
        found[channel] = found.get(channel, b"") + data[at : at + size + 8]
        at += size + 8
    return found


def whole(_: Random, data: bytes) -> list[bytes]:
    return [data]


def octet_by_octet(_: Random, data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def anywhere(random: Random, data: bytes) -> list[bytes]:
    places = [0, *sorted(random.sample(range(len(data)), min(len(data), random.choice((1, 3, 20))))), len(data)]
    return [data[at:end] for at, end in pairwise(places)]


def test_the_answer_does_not_depend_on_how_the_bytes_are_cut() -> None:
    """Sessions, valid ones and mutated ones: the kernel's way through a buffer and the way frame by frame agree on
    what each channel is sent."""
    compared = 0
    for number in range(CUT_SESSIONS):
        found = [transcript(number, cut) for cut in (whole, octet_by_octet, anywhere)]
        if None not in found:
            compared += 1
            assert found[1] == found[0], f"seed {number}"
            assert found[2] == found[0], f"seed {number}"
    assert compared > 0.8 * CUT_SESSIONS


def test_a_client_that_disconnects_at_any_byte_leaves_nothing_behind() -> None:
    random = Random(1)
    session = Session(random, "s")
    handshake = b"".join(session.handshake())
    # Bodies are long and all alike: of their inside every 50th octet is enough.
    work = b"".join(session.work(40))
    ends = [end for end in range(len(work)) if end < 1500 or end % 50 == 0 or work[end - 1] == 0xCE]
    ends = [*range(-len(handshake), 0), *ends]
    harness = FuzzHarness(SMALL)
    witness = Witness(harness)
    witness.open()
    for end in ends:
        connection = Connection(harness.node, PeerAddress("s", True), f"cut{end}", 0.0)
        connection.receive(handshake[: len(handshake) + end] if end < 0 else handshake)
        if end >= 0:
            harness.everything_settles()
            connection.receive(work[:end])
        if end % 2:
            harness.everything_settles()
        connection.lost()
        harness.everything_settles()
        check_node(harness.node)
        assert set(harness.node.connections) == {witness.client.connection.id}
        assert not [
            queue for queue in harness.node.queues.values() if queue.consumers and queue.record.name != "witness"
        ]
        assert all(q.record.owner in (None, witness.client.connection.id) for q in harness.node.queues.values())
    witness.goes_on()
    assert not harness.bugs


# The generator itself


def run_polite(number: int) -> tuple[Session, Output, FuzzHarness]:
    """A valid session, each frame answered before the next."""
    random = Random(number)
    harness = FuzzHarness(SMALL)
    stream = Stream(harness, random, f"s{number}")
    session = Session(random, f"s{number}")
    for frames in (session.handshake(), *(None for _ in range(4)), session.goodbye):
        made = frames() if callable(frames) else frames if frames is not None else session.work(20)
        for one in made:
            stream.wait_until_read()
            stream.connection.receive(one)
            harness.everything_settles()
            react(session, stream.drain())
            check_node(harness.node)
    assert not harness.bugs
    return session, stream.output, harness


def test_polite_sessions_are_valid_and_hold_everything() -> None:
    made: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for number in range(60):
        session, output, harness = run_polite(number)
        assert output.soft_codes == [], f"seed {number}: {harness.logged[-3:]}"
        assert output.close_code is None, f"seed {number}: {harness.logged[-3:]}"
        assert output.ended
        made += session.made
        answers.update(output.counts)
    client_methods = {
        "Basic": "Ack Cancel Consume Get Nack Publish Qos Recover RecoverAsync Reject",
        "Channel": "Close Flow Open",
        "Confirm": "Select",
        "Connection": "Close Open StartOk TuneOk UpdateSecret",
        "Exchange": "Bind Declare Delete Unbind",
        "Queue": "Bind Declare Delete Purge Unbind",
        "Tx": "Commit Rollback Select",
    }
    wanted = {f"{name}.{method}" for name, methods in client_methods.items() for method in methods.split()}
    shapes = {"run", "interleaved", "empty body", "body", "several body frames", "empty body frame", "mandatory"}
    properties = {f"property {name}" for name in ("headers", "delivery_mode", "expiration", "user_id", "priority")}
    types = {f"type {name}" for name in EXCHANGE_TYPES}
    arguments = {
        f"argument {name}"
        for some in (*QUEUE_ARGUMENTS, *CLASSIC_ARGUMENTS, *QUORUM_ARGUMENTS)
        for name in (*some, "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type")
    }
    missing = [name for name in wanted | shapes | properties | types | arguments | {"heartbeat"} if made[name] < 3]
    assert not missing, f"hardly ever made: {missing}"
    for answer in ("Deliver", "GetOk", "GetEmpty", "Return", "Ack"):
        assert answers[f"Basic.{answer}"] >= 20, f"{answer}: {answers}"
