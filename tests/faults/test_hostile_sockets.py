"""A real broker and clients that are slow, stuck, too many or wrong: those that behave go on.

Every test has a connection that was there before and makes round trips all the while; they are counted, not timed.
Nothing sleeps: what is waited for is asked for again and again, under a deadline.
"""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from pamqp import commands, frame

from tests.harness.slow import slow

from ..clients import address
from ..clients.broker_process import REPOSITORY, BrokerProcess
from ..clients.wire import PROTOCOL_HEADER, ClosedByBroker, Wire, publish_bytes

MakeBroker = Callable[..., BrokerProcess]
DEADLINE_S = 120.0
MIB = 1 << 20
Beside = Callable[[BrokerProcess], "Neighbour"]
Sockets = Callable[[BrokerProcess, int], list[socket.socket]]

pytestmark = pytest.mark.usefixtures("only_amqpd")


class Neighbour:
    """The connection that behaves."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.wire = Wire(broker.port, timeout_s=DEADLINE_S).open()
        self.wire.open_channel()
        self.wire.call(commands.Queue.Declare(queue="neighbour"), channel=1)
        self.round_trips = 0

    def goes_on(self) -> None:
        """A message there and back."""
        self.round_trips += 1
        content = b"%d" % self.round_trips
        self.wire.send_bytes(publish_bytes(1, "", "neighbour", content))
        self.wire.send(commands.Basic.Get(queue="neighbour", no_ack=True), channel=1)
        assert self.wire.read_message()[1].body == content

    def goes_on_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
            self.goes_on()


@pytest.fixture
def beside() -> Iterator[Beside]:
    """Opens the connection that behaves, and closes it at the end."""
    made: list[Neighbour] = []

    def connect(broker: BrokerProcess) -> Neighbour:
        made.append(Neighbour(broker))
        return made[-1]

    yield connect
    for one in made:
        one.wire.socket.close()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Opens connections; all are closed at the end."""
    opened: list[socket.socket] = []

    def connect(broker: BrokerProcess, count: int) -> list[socket.socket]:
        made = [address.connect(broker.port, DEADLINE_S) for _ in range(count)]
        opened.extend(made)
        return made

    yield connect
    for one in opened:
        one.close()


def closed_by_broker(one: socket.socket) -> bool:
    """Whether the broker has ended the stream; does not wait. What it sent before is thrown away."""
    while select.select([one], [], [], 0)[0]:
        try:
            if not one.recv(65_536):
                return True
        except ConnectionResetError:
            return True
    return False


def still_open(many: list[socket.socket]) -> list[socket.socket]:
    return [one for one in many if not closed_by_broker(one)]


# Slow


def test_slow_handshakes_are_cut_off(make_broker: MakeBroker, beside: Beside, sockets: Sockets) -> None:
    """Some say nothing, some stop in the middle, some send an octet now and then and never end."""
    broker = make_broker(environment={"AMQPD_HANDSHAKE_TIMEOUT_S": "1"})
    broker.start()
    neighbour = beside(broker)
    slow = sockets(broker, 60)
    for one in slow[20:40]:
        one.sendall(PROTOCOL_HEADER + b"\x01\0\0\0\0\x10")
    start_ok = PROTOCOL_HEADER + b"\x01\0\0\0\0\x10\0" + bytes(4096)
    dribbling, at = slow[40:], 0

    def all_cut() -> bool:
        nonlocal slow, at
        if at < len(start_ok):
            for one in dribbling:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    one.sendall(start_ok[at : at + 1])
            at += 1
        slow = still_open(slow)
        return not slow

    neighbour.goes_on_until(all_cut, "slow handshakes are cut off")
    neighbour.goes_on_until(lambda: broker.log.count("connection_timeout") == 60, "each is in the log")
    assert neighbour.round_trips > 20


@pytest.mark.slow
def test_thousands_of_half_open_connections(make_broker: MakeBroker, beside: Beside, sockets: Sockets) -> None:
    count = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"no more than {hard} open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    try:
        broker = make_broker(environment={"AMQPD_HANDSHAKE_TIMEOUT_S": "5"})
        broker.start()
        neighbour = beside(broker)
        process = psutil.Process(broker.broker_pid)
        neighbour.goes_on()
        before, descriptors = broker.resident_bytes(), process.num_fds()
        highest = 0
        for _ in range(count // 100):
            for one in sockets(broker, 100):
                one.sendall(PROTOCOL_HEADER)
            neighbour.goes_on()
            highest = max(highest, process.num_fds())
        # Some may be cut off already where the machine is slow.
        each = (broker.resident_bytes() - before) / max(1, highest - descriptors)
        print(f"{highest - descriptors} half-open connections at a time, {each:.0f} bytes each")
        assert highest - descriptors > count / 4
        assert each < 20_000
        neighbour.goes_on_until(lambda: process.num_fds() <= descriptors, "all of them are cut off")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Too many


def durable_publish(wire: Wire) -> None:
    """What needs the metadata store and the journal."""
    wire.call(commands.Queue.Declare(queue="durable", durable=True), channel=1)
    wire.open_channel(2)
    wire.call(commands.Confirm.Select(), channel=2)
    wire.send_bytes(publish_bytes(2, "", "durable", b"x", commands.Basic.Properties(delivery_mode=2)))
    assert isinstance(wire.read_method()[1], commands.Basic.Ack)
    wire.call(commands.Channel.Close(200, "", 0, 0), channel=2)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_out_of_descriptors_it_waits_without_a_busy_loop_and_recovers(
    make_broker: MakeBroker, beside: Beside, sockets: Sockets
) -> None:
    """The limit is lowered under the running broker, so accept(2) itself fails (EMFILE)."""
    broker = make_broker()
    broker.start()
    neighbour = beside(broker)
    process = psutil.Process(broker.broker_pid)
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds() + 10, before[1]))
    many = sockets(broker, 60)
    neighbour.goes_on_until(lambda: "accept_failed" in broker.log, "accept fails")
    # Three more seconds, by the broker's own clock, in which nobody asks anything of it.
    durable_publish(neighbour.wire)
    seen, began, used = broker.log.count("accept_failed"), time.monotonic(), cpu_s(process)
    for number in range(seen + 1, seen + 4):
        wait_for_lines(broker, "accept_failed", number)
    elapsed, used = time.monotonic() - began, cpu_s(process) - used
    print(f"{used:.2f} s of CPU in {elapsed:.2f} s without descriptors")
    assert used < 0.3 * elapsed
    assert broker.log.count("accept_failed") < seen + 3 * elapsed + 3, "it tries more often than it pauses"
    neighbour.goes_on()
    for one in many:
        one.close()

    def accepts() -> bool:
        wire = Wire(broker.port, timeout_s=15)
        try:
            wire.open()
        except (ClosedByBroker, TimeoutError, ConnectionError):
            return False
        finally:
            wire.socket.close()
        return True

    neighbour.goes_on_until(accepts, "new connections are accepted again")
    assert broker.running


def wait_for_lines(broker: BrokerProcess, text: str, count: int) -> None:
    """Returns when the log has this many lines with the text."""
    with broker._news:
        assert broker._news.wait_for(lambda: sum(text in line for line in broker._lines) >= count, DEADLINE_S), (
            f"{text!r} is not logged {count} times"
        )


def test_a_small_limit_of_descriptors_bounds_the_connections(
    make_broker: MakeBroker, beside: Beside, sockets: Sockets
) -> None:
    """What is above it is refused at once, so that the disk and the metadata store never lack a descriptor."""
    broker = make_broker(prefix=["sh", "-c", 'ulimit -n 320; "$@"; exit $?', "sh"])
    broker.start()
    neighbour = beside(broker)
    many = sockets(broker, 200)
    neighbour.goes_on_until(lambda: "connection_refused" in broker.log, "connections above the limit are refused")
    neighbour.goes_on_until(lambda: len(still_open(many)) < 64, "they are closed")
    broker.wait_log("connections_refused count=")
    assert broker.log.count("refused") < 20, "a line for each"
    assert "accept_failed" not in broker.log, "256 are kept for other things"
    durable_publish(neighbour.wire)
    for one in many:
        one.close()

    def accepts() -> bool:
        with contextlib.suppress(ClosedByBroker, ConnectionError), Wire(broker.port, timeout_s=DEADLINE_S) as wire:
            wire.open()
            return True
        return False

    neighbour.goes_on_until(accepts, "there is space again")


# Stuck

CONSUMER = """
import sys
from pamqp import commands
from tests.clients.wire import BODY, Wire

queue, no_ack = sys.argv[2], sys.argv[5]
port, wanted, heartbeat_s = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
wire = Wire(port, timeout_s=100).open(heartbeat_s=heartbeat_s)
wire.open_channel()
wire.call(commands.Basic.Consume(queue=queue, consumer_tag="c", no_ack=no_ack == "no_ack"), channel=1)
print("consuming", flush=True)
received = 0
while received < wanted:
    received += wire.read_frame()[0] == BODY
print("received", received, flush=True)
"""


@contextlib.contextmanager
def consumer_process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A consumer in a process of its own, which can be stopped; it consumes when this yields."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONSUMER, *map(str, arguments)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "consuming\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_a_stopped_consumer_costs_no_memory_and_goes_on_when_it_wakes(
    make_broker: MakeBroker, beside: Beside
) -> None:
    """400 MB for a client that is stopped (SIGSTOP): its outbox is bounded, and the rest stays in the queue, which
    goes to disk; others are served. What is on its way to the disk takes its constant share of memory, so the second
    half is compared with the first."""
    body_bytes, count = 10_000, 40_000
    limits = {
        "AMQPD_QUEUE_MEMORY_BYTES": "4MiB",
        "AMQPD_BACKLOG_MEMORY_BYTES": "8MiB",
        "AMQPD_OUTBOX_BYTES_MAX": "1MiB",
        "AMQPD_SEND_TIMEOUT_S": "3600",
    }
    broker = make_broker(environment=limits)
    broker.start()
    neighbour = beside(broker)
    neighbour.goes_on()
    neighbour.wire.call(commands.Queue.Declare(queue="stopped"), channel=1)
    with consumer_process(broker.port, "stopped", count, 0, "no_ack") as consumer:
        consumer.send_signal(signal.SIGSTOP)
        before, highest = broker.resident_bytes(), [0, 0]
        with Wire(broker.port, timeout_s=DEADLINE_S).open() as publisher:
            publisher.open_channel()
            publisher.call(commands.Confirm.Select(), channel=1)
            message = publish_bytes(1, "", "stopped", bytes(body_bytes))
            for number in range(0, count, 100):
                publisher.send_bytes(message * 100)
                confirmed = 0
                while confirmed < number + 100:
                    confirmed = publisher.read_method()[1].delivery_tag
                neighbour.goes_on()
                half = number * 2 // count
                highest[half] = max(highest[half], broker.resident_bytes())
        grown = [(peak - before) // MIB for peak in highest]
        print(f"{grown[0]} MiB for the first {count * body_bytes // 2 // MIB} MiB, then {grown[1]}")
        assert grown[0] < 300
        assert grown[1] - grown[0] < 70
        consumer.send_signal(signal.SIGCONT)
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == f"received {count}\n"
    neighbour.goes_on()


def test_a_stopped_consumer_with_heartbeats_is_given_up_and_its_messages_go_to_others(
    make_broker: MakeBroker, beside: Beside
) -> None:
    broker = make_broker()
    broker.start()
    neighbour = beside(broker)
    neighbour.wire.call(commands.Queue.Declare(queue="stopped"), channel=1)
    with consumer_process(broker.port, "stopped", 1000, 1, "ack") as consumer:
        consumer.send_signal(signal.SIGSTOP)
        neighbour.wire.send_bytes(publish_bytes(1, "", "stopped", b"x" * 1000) * 100)

        def given_up() -> bool:
            answer = neighbour.wire.call(commands.Queue.Declare(queue="stopped", passive=True), channel=1)
            return (answer.message_count, answer.consumer_count) == (100, 0)

        neighbour.goes_on_until(given_up, "its messages are ready again")
        broker.wait_log("heartbeat_missed")
    neighbour.wire.send(commands.Basic.Get(queue="stopped", no_ack=True), channel=1)
    assert neighbour.wire.read_message()[1].method.redelivered


@pytest.mark.usefixtures("only_amqpd")
@pytest.mark.parametrize("what", ["deliveries", slow("answers")])
def test_a_client_that_stops_reading_for_good_is_dropped_and_its_messages_go_to_others(
    make_broker: MakeBroker, beside: Beside, what: str
) -> None:
    """Without heartbeats: its kernel goes on to say that it is there, and has no space."""
    broker = make_broker(environment={"AMQPD_SEND_TIMEOUT_S": "1", "AMQPD_OUTBOX_BYTES_MAX": "1MiB"})
    broker.start()
    neighbour = beside(broker)
    neighbour.wire.call(commands.Queue.Declare(queue="unread"), channel=1)
    if what == "deliveries":
        neighbour.wire.send_bytes(publish_bytes(1, "", "unread", bytes(100_000)) * 200)

    def depth() -> int:
        answer = neighbour.wire.call(commands.Queue.Declare(queue="unread", passive=True), channel=1)
        return int(answer.message_count)

    with Wire(broker.port) as silent:
        silent.open()
        silent.open_channel()
        if what == "deliveries":
            silent.send(commands.Basic.Consume(queue="unread"), channel=1)
        else:
            asked = frame.marshal(commands.Queue.Declare(queue="unread", passive=True), 1) * 1000
            silent.socket.settimeout(5)
            with contextlib.suppress(TimeoutError, ConnectionError):  # until the broker reads no more
                while True:
                    silent.socket.sendall(asked)
        broker.wait_log("send_timeout")
    if what == "deliveries":
        neighbour.goes_on_until(lambda: depth() == 200, "its messages are ready again")


# Wrong


def start_ok(mechanism: str, response: bytes) -> bytes:
    """By hand: pamqp takes text only."""
    payload = b"\x00\x0a\x00\x0b" + b"\0\0\0\0" + bytes((len(mechanism),)) + mechanism.encode()
    payload += len(response).to_bytes(4, "big") + response + b"\x05en_US"
    return b"\x01\0\0" + len(payload).to_bytes(4, "big") + payload + b"\xce"


def test_a_flood_of_wrong_passwords_stalls_nobody(make_broker: MakeBroker, beside: Beside, sockets: Sockets) -> None:
    """Each costs an argon2; two run at a time, in threads."""
    broker = make_broker()
    broker.start()
    neighbour = beside(broker)
    flood = sockets(broker, 60)
    for number, one in enumerate(flood):
        name = b"guest" if number % 2 else b"user%d" % number
        one.sendall(PROTOCOL_HEADER + start_ok("PLAIN", b"\0" + name + b"\0wrong%d" % number))
    during = neighbour.round_trips
    # Who logged in before comes in by the remembered password, past the flood.
    with Wire(broker.port, timeout_s=DEADLINE_S) as another:
        another.open()
        assert still_open(flood), "the flood was over before it began"
    neighbour.goes_on_until(lambda: not still_open(flood), "all are refused")
    print(f"{neighbour.round_trips - during} round trips during {len(flood)} wrong passwords")
    assert neighbour.round_trips - during > 50
    # The log comes by a pipe and a thread of its own.
    neighbour.goes_on_until(lambda: broker.log.count("login_refused") == len(flood), "each refusal is in the log")


def test_log_ins_that_make_no_sense_are_refused_and_logged_in_one_line(
    make_broker: MakeBroker, beside: Beside, sockets: Sockets
) -> None:
    broker = make_broker()
    broker.start()
    neighbour = beside(broker)
    forged = b"x\nlevel=error event=forged"
    responses = [
        ("PLAIN", b""),
        ("PLAIN", b"\0" * 5),
        ("PLAIN", b"\0" + forged + b"\0password"),
        ("PLAIN", b"\0\xff\xfe\0password"),
        ("PLAIN", b"\0\xed\xa0\x80\0password"),
        ("PLAIN", b"\0" + b"u" * 4000 + b"\0password"),
        ("AMQPLAIN", b"\x05LOGIN"),
        ("AMQPLAIN", b"\x05LOGINF\xff\xff\xff\xff"),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x02\xff\xfe\x08PASSWORDS\0\0\0\x01x"),
        ("AMQPLAIN", b"\x01aT" + b"\xff" * 8),
        ("AMQPLAIN", (b"\x01aA" + b"\0\0\x07\xf0" + b"A\0\0\0\0" * 400)[:2000]),
        ("EXTERNAL", b"guest"),
        ("ANONYMOUS", b"\xff"),
    ]
    many = sockets(broker, len(responses))
    for one, (mechanism, response) in zip(many, responses, strict=True):
        one.sendall(PROTOCOL_HEADER + start_ok(mechanism, response) + b"\x01\0\0\0\0\0\x04\x00\x0a\x00\x33\xce")
    neighbour.goes_on_until(lambda: not still_open(many), "all are refused")
    assert not any(line.startswith("level=error") for line in broker.log.splitlines())
    assert "event=bug" not in broker.log


def test_other_protocols_are_answered_with_the_header_that_would_be_right(
    make_broker: MakeBroker, beside: Beside, sockets: Sockets
) -> None:
    broker = make_broker()
    broker.start()
    neighbour = beside(broker)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
    strangers = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", hello, b"AMQP\x01\x01\x00\x0a", b"\0" * 100_000]
    for one, data in zip(sockets(broker, len(strangers)), strangers, strict=True):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := one.recv(100):
                received += piece
        # A reset may overtake it where much was left unread.
        assert received in (PROTOCOL_HEADER, b""), received
        assert received or len(data) > 1000
        neighbour.goes_on()
