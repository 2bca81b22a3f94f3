"""A real broker, and a client that sends each method in each state, also those that no client may send: it is told
what was wrong, and nobody else notices.

What comes in: `every_method.py`. What goes out: for each case all that the broker said until the end; none of it is a
bug.
Rules: 1. A case is a connection of its own, unless the broker blocks it. 2. Behind what is tried stands
connection.close, so that each case has an end: the broker's close, its close-ok, or that of the stream. 3. The tenant
beside, of another user and virtual host, gets a confirm and an answer between the cases; at the end all that was
confirmed to it is there.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pamqp import commands, frame

from amqpd.management.control.socket import call
from tests.harness.slow import slow_but

from ..clients.broker_process import REPOSITORY, BrokerProcess
from ..clients.wire import BODY, HEADER, METHOD, ClosedByBroker, Wire, decode_method, frame_bytes, publish_bytes
from . import every_method as every

Basic, Channel, Connection = commands.Basic, commands.Channel, commands.Connection
Confirm, Exchange, Queue, Tx = commands.Confirm, commands.Exchange, commands.Queue, commands.Tx
pytestmark = pytest.mark.usefixtures("only_amqpd")

# Section 1.2 of the reference. 541 is our bug, 320 and 402 are the operator's doing.
SOFT = {311, 313, 403, 404, 405, 406}
HARD = {501, 502, 503, 504, 505, 530, 540}
CASES_PER_LOOK = 50
BUGS = ("event=bug", "fault_contained", "Traceback", "level=error")


class Tenant:
    def __init__(self, broker: BrokerProcess) -> None:
        self.wire = Wire(broker.port).open(vhost="victims", user="victim", password="of-victim")
        self.wire.open_channel()
        self.wire.call(Queue.Declare(queue="theirs", durable=True), channel=1)
        self.wire.call(Confirm.Select(), channel=1)
        self.confirmed = 0

    def goes_on(self) -> None:
        body = b"%d" % (self.confirmed + 1)
        self.wire.send_bytes(publish_bytes(1, "", "theirs", body, Basic.Properties(delivery_mode=2)))
        self.wire.expect(Basic.Ack)
        self.confirmed += 1
        self.answers()

    def answers(self) -> None:
        self.wire.send(Queue.Declare(queue="theirs", passive=True), channel=1)
        assert self.wire.expect(Queue.DeclareOk).message_count == self.confirmed


class Attacked:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        for name, vhost in (("victim", "victims"), (every.USER, every.VHOST)):
            self.command("vhost", "add", vhost)
            self.command("user", "add", name, "--password-stdin", stdin=f"of-{name}\n")
            self.command("permission", "set", vhost, name, ".*", ".*", ".*")
        self.tenant = Tenant(broker)
        self.cases = 0
        with self.attacker() as wire:
            every.open_channel(wire)
            for exchange, kind in (("attacked-delayed", "x-delayed-message"), ("attacked-hash", "x-consistent-hash")):
                arguments = {"x-delayed-type": "topic", "hash-header": "hash"}
                wire.call(Exchange.Declare(exchange=exchange, exchange_type=kind, arguments=arguments), channel=1)
            wire.call(Queue.Declare(queue=every.FULL, durable=True), channel=1)
            wire.call(Queue.Declare(queue=every.QUEUE, durable=True, arguments={"x-max-length": 100}), channel=1)
            for exchange in ("amq.headers", "amq.topic", "attacked-delayed", "attacked-hash"):
                wire.call(Queue.Bind(queue=every.QUEUE, exchange=exchange, routing_key="1"), channel=1)
            wire.send_bytes(publish_bytes(1, "", every.FULL, b"there") * 10)
            wire.close()

    def command(self, *arguments: str, stdin: str = "") -> None:
        command = [sys.executable, "-m", "amqpd", "--data-dir", str(self.broker.data_dir), *arguments]
        environment = self.broker.child_environment()
        subprocess.run(
            command, check=True, cwd=REPOSITORY, env=environment, capture_output=True, text=True, input=stdin
        )

    def attacker(self) -> Wire:
        return Wire(self.broker.port)

    def tried(self, state: str, name: str, payload: bytes, behind: bytes = b"") -> list[str]:
        """What the broker said of that method, with `behind` and connection.close behind it."""
        self.cases += 1
        if self.cases % CASES_PER_LOOK == 0:
            self.tenant.goes_on()
        with self.attacker() as wire:
            channel = every.STATES[state](wire)
            with contextlib.suppress(OSError):
                wire.send_bytes(every.method_frame(payload, channel) + behind + every.close_bytes())
            said = until_the_end(wire)
        for word in said:
            close, _, code = word.partition(" ")
            if code:
                assert int(code) in (HARD if close == Connection.Close.name else SOFT), (state, name, said)
        return said

    def nothing_noticed(self) -> None:
        self.tenant.goes_on()
        bugs = [line for line in self.broker.log.splitlines() if any(word in line for word in BUGS)]
        assert not bugs, bugs[:5]
        status = call(self.broker.data_dir, "status")
        assert status is not None
        assert not any(status["faults"].values()), status["faults"]
        assert not status["queues_out_of_service"]
        assert not self.tenant.wire.buffer


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """One for all tests of this file: what one case leaves behind is part of what the next ones meet."""
    broker = BrokerProcess(tmp_path_factory.mktemp("attacked") / "data")
    try:
        broker.start()
        made = Attacked(broker)
        yield made
        made.tenant.wire.socket.close()
    finally:
        broker.close()


def until_the_end(wire: Wire) -> list[str]:
    """The methods that came, closes with their codes, until the stream ends. Closes are answered. After a frame that
    could not be read (501) the broker hears nothing more, and waits for us."""
    said: list[str] = []
    with contextlib.suppress(ClosedByBroker, ConnectionResetError, BrokenPipeError):
        while True:
            kind, _, payload = wire.read_frame()
            if kind != METHOD:
                continue
            method = decode_method(payload)
            closes = isinstance(method, (Channel.Close, Connection.Close))
            said.append(f"{method.name} {method.reply_code}" if closes else method.name)
            if isinstance(method, Connection.Close):
                wire.send(Connection.CloseOk())
            if isinstance(method, Connection.CloseOk) or said[-1] == f"{Connection.Close.name} 501":
                break
    return said


@pytest.mark.parametrize("state", slow_but(set(every.STATES) - {"before_header", "opened"}, every.STATES))
def test_each_method_in_each_state(attacked: Attacked, state: str) -> None:
    ends = {Connection.Close.name, Connection.CloseOk.name}
    for name, payload in every.methods():
        said = attacked.tried(state, name, payload)
        # Before the header there is nobody who would understand a close; one that crosses the broker's is answered.
        assert state == "before_header" or name == Connection.CloseOk.name or said[-1].split()[0] in ends, (
            name,
            said,
        )
    attacked.nothing_noticed()


@pytest.mark.parametrize("state", ["before_start_ok", "before_tune_ok", "before_open", "opened", "open_channel"])
def test_each_argument_of_each_method(attacked: Attacked, state: str) -> None:
    for name, payload in every.extremes():
        if state == "open_channel" or name.startswith("Connection."):
            attacked.tried(state, name, payload)
    attacked.nothing_noticed()


@pytest.mark.parametrize("state", slow_but({"confirming"}, ["confirming", "transaction"]))
def test_publishes_with_odd_headers(attacked: Attacked, state: str) -> None:
    commit = frame.marshal(Tx.Commit(), 1) if state == "transaction" else b""
    for name, exchange, head in every.contents():
        publish = Basic.Publish(0, exchange.decode(), "1", mandatory=True)
        content = frame_bytes(HEADER, head) + frame_bytes(BODY, b"x")
        attacked.tried(state, name, every.payload_of(publish), content + commit)
    attacked.nothing_noticed()


def test_each_method_behind_a_publish_that_an_alarm_blocks(attacked: Attacked) -> None:
    """None is carried out, nobody is closed; all are when the alarm is over, also of clients that are gone."""
    attacked.command("alarm", "set", "memory")
    waiting: list[Wire] = []
    for number, (name, payload) in enumerate(every.methods()):
        wire = attacked.attacker()
        every.blocked(wire)
        wire.send_bytes(every.method_frame(payload, 1) + every.close_bytes())
        if number % 2:
            wire.socket.close()
        else:
            waiting.append(wire)
        assert attacked.broker.running, name
    attacked.tenant.answers()
    attacked.command("alarm", "clear", "memory")
    for wire in waiting:
        wire.expect(Connection.Unblocked)
        assert until_the_end(wire)
        wire.socket.close()
    attacked.nothing_noticed()
