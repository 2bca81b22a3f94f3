"""What the broker keeps for clients is bounded: messages, caches, times.

Memory is counted twice where it can be: by the machine's own accounting, and by tracemalloc, which knows nothing of
it. Clients that do not read are in `tests/session/test_unread_answers.py`, those that leave something undone in
`tests/flow/test_half_done.py`; resident memory of a whole broker is measured in `tests/faults/test_memory.py`.
"""

from __future__ import annotations

import os
import struct

import pytest
from pamqp import commands, frame

from amqpd import KERNEL
from amqpd.exchanges.sublist import CACHE_ENTRIES_MAX as SUBLIST_ENTRIES_MAX
from amqpd.exchanges.topic import TopicMatcher
from amqpd.kernel.mixed import PLACE_BYTES
from amqpd.message.properties import CACHE_ENTRIES_MAX, PropertiesReader
from amqpd.publishing.histories import EXCHANGE_BYTES_MAX
from amqpd.publishing.publish import ROUTES_BYTES_MAX
from amqpd.publishing.routes import ROUTE_BYTES
from amqpd.queues.segment import RUN_BYTES
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node
from tests.harness.resident import MIB, RECEIVE_BYTES, ROOMY, queue_of, traced
from tests.harness.slow import slow
from tests.topology.samples import routed

# Of an idle connection, with this test's own half of it and without sockets and tasks.
IDLE_BYTES_MAX = 13_000 if KERNEL == "cython" else 17_500
MESSAGES = 2_000_000 if os.environ.get("AMQPD_HEAVY") else 300_000


def ack(tag: int, multiple: bool = False) -> bytes:
    return struct.pack(">BHIIQBB", 1, 1, 13, 0x003C0050, tag, multiple, 0xCE)


def drained(client: Client) -> int:
    """Read what the broker sent, and throw it away; how many bytes it was."""
    connection, nbytes = client.connection, 0
    while connection.outbox:
        nbytes += sum(map(len, connection.outbox))
        connection.outbox = []
        connection.sent(0)
        client.harness.step()
    return nbytes


# One kept message a buffer


@pytest.mark.parametrize(
    ("kept", "durable"),
    [slow("unacked", False), ("unacked", True), slow("ready", False), slow("ready", True)],
    ids=["unacked-transient", "unacked-durable", "ready-transient", "ready-durable"],
)
def test_one_kept_message_does_not_pin_its_buffer(kept: str, durable: bool) -> None:
    """60 buffers of 256 KiB are published, all but one message of each is settled, and the limits would let it all
    stay in memory. What stays is the 60 messages, not the 15 MiB."""
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client()
    publisher.declare("q", durable=durable)
    one = publish_bytes(bytes(1000), "q", delivery_mode=2)
    each = RECEIVE_BYTES // len(one)
    buffers = 60
    keep = {number * each + each // 2 for number in range(buffers)}
    with traced() as resident:
        for _ in range(buffers):
            publisher.connection.receive(one * each)
            harness.step()
        harness.rows.clear()
        harness.transactions.clear()
        assert queue_of(harness).messages.memory_bytes == buffers * (each * len(one) + RUN_BYTES)
        consumer.connection.receive(frame.marshal(commands.Basic.Consume(queue="q", consumer_tag="c"), 1))
        harness.step()
        drained(consumer)
        consumer.connection.receive(b"".join(ack(seq + 1) for seq in range(buffers * each) if seq not in keep))
        harness.step()
        if kept == "ready":
            consumer.lose()
        harness.transactions.clear()
    backlog = queue_of(harness).backlog
    assert (backlog.unacked if kept == "unacked" else backlog.ready) == buffers
    assert backlog.store.memory_bytes == buffers * (len(one) + RUN_BYTES)
    assert resident[0] < buffers * (len(one) + 2500), f"{resident[0] / buffers:.0f} bytes for each kept message"
    check_node(harness.node)


def test_a_run_that_is_a_small_part_of_its_buffer_does_not_pin_it() -> None:
    """One message to a queue that keeps it among many to one that does not."""
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("kept")
    kept, passing = publish_bytes(b"k" * 100, "kept"), publish_bytes(bytes(1000), "nowhere")
    with traced() as resident:
        for _ in range(60):
            client.connection.receive(passing * 100 + kept + passing * 100)
            harness.step()
    assert queue_of(harness, "kept").backlog.ready == 60
    assert resident[0] < 60 * 1500, f"{resident[0] / 60:.0f} bytes for each kept message"


def bytes_per_message(count: int) -> float:
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("q")
    one = publish_bytes(bytes(16), "q")
    each = RECEIVE_BYTES // len(one)
    with traced() as resident:
        for number in range(0, count, each):
            client.connection.receive(one * min(each, count - number))
            harness.step()
    assert queue_of(harness).backlog.ready == count
    assert queue_of(harness).messages.memory_bytes == count * len(one) + -(-count // each) * RUN_BYTES
    return resident[0] / count - len(one)


def test_small_messages_cost_hardly_more_than_their_bytes() -> None:
    """Messages of 16 bytes are 64 bytes each on the wire, which is what is kept, and a tenth of a byte beside."""
    beside = bytes_per_message(MESSAGES)
    assert beside < 1, f"{beside:.2f} bytes for each message beside its frames"


@pytest.mark.parametrize("spread", [1, slow(7)], ids=["one size", "seven sizes"])
def test_small_messages_that_differ_cost_what_is_counted_for_them(spread: int) -> None:
    """They come in batches, with a place for each. What is counted is what bounds them, so it has to be what they
    take."""
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("q")
    client.call(commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"), commands.Queue.BindOk)
    count, keys = 30_000, 100
    all_of_them = [publish_bytes(bytes(16 + i % spread), f"key.{i % keys:03d}", "amq.topic") for i in range(count)]
    published = b"".join(all_of_them)
    bodies = sum(16 + i % spread for i in range(count))
    del all_of_them
    with traced() as resident:
        for at in range(0, len(published), RECEIVE_BYTES):
            client.connection.receive(published[at : at + RECEIVE_BYTES])
            harness.step()
    backlog = queue_of(harness).backlog
    runs = [run for segment in backlog.store.segments for run in segment.runs or ()]
    assert len(runs) <= 3 * len(published) // RECEIVE_BYTES
    assert backlog.ready == count
    assert backlog.store.memory_bytes == len(published) + count * PLACE_BYTES + len(runs) * RUN_BYTES
    # The routes of the keys are in it too.
    assert 0.9 < resident[0] / backlog.store.memory_bytes < 1.1, (
        f"{(resident[0] - len(published)) / count:.0f} bytes a message"
    )
    assert (resident[0] - bodies) / count < 110, "above the body"


# Caches


def test_an_idle_consumer_costs_little() -> None:
    """A connection with an exclusive queue and a consumer that wait for messages: nothing is kept for what has not
    come yet. An empty deque alone takes 760 bytes."""
    harness = Harness()
    clients = [harness.client()]
    with traced() as resident:
        for _ in range(100):
            client = harness.client()
            queue = client.declare("", exclusive=True).queue
            client.consume(queue)
            clients.append(client)
        harness.step()
    assert resident[0] < 100 * IDLE_BYTES_MAX, f"{resident[0] / 100:.0f} bytes for each"


def test_the_route_cache_is_bounded_for_a_whole_connection() -> None:
    client = Harness().client()
    client.channel(2)
    count = ROUTES_BYTES_MAX // ROUTE_BYTES
    routes_max = 0
    for channel in (1, 2):
        for number in range(count * 3 // 4):
            client.connection.receive(publish_bytes(b"", f"key{number}{channel}", channel=channel))
            routes_max = max(routes_max, len(client.connection.routes.known))
    assert count // 2 < routes_max < count
    client.harness.step()
    client.declare("q")
    client.publish(b"x", "q")
    assert len(client.connection.routes.known) == 1, "routes of an earlier topology are kept"


def test_the_properties_cache_is_bounded_in_number_and_size() -> None:
    reader = PropertiesReader()

    def header_with(name: bytes) -> bytes:
        return b"\x80\x00" + bytes([len(name)]) + name

    for number in range(CACHE_ENTRIES_MAX * 3):
        reader.read(header_with(str(number).encode()))
        assert len(reader._known) <= CACHE_ENTRIES_MAX
    before = len(reader._known)
    table = b"".join(b"\x04" + struct.pack(">I", number) + b"V" for number in range(1000))
    reader.read(b"\x20\x00" + struct.pack(">I", len(table)) + table)
    assert len(reader._known) == before, "a large list of properties is remembered"


def test_the_topic_exchanges_cache_is_bounded() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    client.call(commands.Queue.Bind(0, "q", "amq.topic", "a.#", False, {}), commands.Queue.BindOk)
    matcher = harness.topology.vhosts["/"].exchanges["amq.topic"].matcher
    assert isinstance(matcher, TopicMatcher)
    largest = 0
    for number in range(SUBLIST_ENTRIES_MAX * 2):
        routed(harness.topology.vhosts["/"], "amq.topic", f"a.{number}")
        largest = max(largest, matcher._sublist.cached)
    assert 0 < largest <= SUBLIST_ENTRIES_MAX


# Times to look at a queue


def test_times_that_were_overtaken_do_not_gather() -> None:
    """A queue that keeps one message for a day while others expire within milliseconds asks for two times in turn,
    and a queue with a time between them stands before the later one in the heap."""
    harness = Harness()
    client = harness.client()
    client.declare("long")
    client.declare("between")
    client.publish(b"x", "between", expiration="3600000")
    client.publish(b"x", "long", expiration="86400000")
    for _ in range(2000):
        client.publish(b"x", "long", expiration="5")
        harness.node.now_ms += 10
        harness.step()
    assert queue_of(harness, "long").backlog.ready == 1
    assert len(harness.node.wakes.heap) < 300


def test_queues_that_are_gone_are_not_kept_until_they_would_have_expired() -> None:
    harness = Harness()
    client = harness.client()
    for number in range(1000):
        client.declare(f"q{number}", arguments={"x-expires": 1_000_000_000 + number})
        client.call(commands.Queue.Delete(queue=f"q{number}"), commands.Queue.DeleteOk)
    assert len(harness.node.wakes.heap) < 300


@pytest.mark.parametrize("durable", [slow(False), True], ids=["transient", "durable"])
def test_what_was_acknowledged_leaves_memory_before_its_deadline(durable: bool) -> None:
    """One message is not acknowledged for long, and its deadline is the first: those behind it come and go."""
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client()
    publisher.declare("q", durable=durable, arguments={"x-message-ttl": 86_400_000})
    consumer.consume("q")
    one = publish_bytes(bytes(50_000), "q", delivery_mode=2)
    publisher.raw(publish_bytes(b"stays", "q", delivery_mode=2))
    with traced() as resident:
        for number in range(2, 402):
            publisher.connection.receive(bytes(bytearray(one)))
            harness.step()
            drained(consumer)
            consumer.raw(ack(number))
            harness.node.now_ms += 1
            harness.rows.clear()
            harness.transactions.clear()
    assert queue_of(harness).backlog.unacked == 1
    assert resident[0] < 5 * MIB, f"{resident[0] / MIB:.1f} MiB of 20 that are acknowledged"
    check_node(harness.node)


@pytest.mark.slow
def test_what_an_exchange_keeps_is_bounded_in_memory_too() -> None:
    """Empty messages that differ: an object of the broker for each weighs more than the message."""
    harness = Harness()
    client = harness.client()
    arguments = {"x-recent-history-length": 1_000_000}
    client.call(
        commands.Exchange.Declare(exchange="h", exchange_type="x-recent-history", arguments=arguments),
        commands.Exchange.DeclareOk,
    )
    data = b"".join(publish_bytes(b"", "k", "h", message_id=str(number % 10)) for number in range(1000))
    with traced() as resident:
        for _ in range(40):
            client.raw(data)
    assert harness.node.histories.count("/", "h") > 10_000
    assert resident[0] < 2 * EXCHANGE_BYTES_MAX


def test_a_template_of_dead_letters_keeps_no_body() -> None:
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("dead", arguments={"x-max-length": 0})
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    with traced() as resident:
        client.raw(publish_bytes(bytes(10 * MIB), "q", expiration="10"))
        harness.node.now_ms += 11
        harness.step()
    assert queue_of(harness).facts.dead_lettered == 1
    assert resident[0] < MIB
