"""What the topology takes in memory and on disk: a small multiple of what was sent, counted, bounded, given back."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from amqpd.flow.client_counters import ARGUMENTS_BYTES_MAX
from amqpd.topology import plans
from amqpd.topology.metadata import events
from amqpd.topology.metadata.codec import PREFIX, decode_record, encode_key, encode_record
from amqpd.topology.metadata.reading import records_of
from amqpd.topology.metadata.sqlite import sqlite_file
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import DeleteKey, PutKey
from amqpd.topology.metadata.sync import TopologySync
from amqpd.topology.sizes import arguments_bytes, record_bytes
from amqpd.topology.state import Topology
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import BindingRecord, Change, Delete, ExchangeRecord, Put, QueueRecord
from amqpd.wire.values import ARGUMENTS_KEY_CHARS_MAX, arguments_key, canonical
from tests.harness.harness import Client, Harness
from tests.harness.resident import KIB, MIB, traced
from tests.harness.slow import slow
from tests.topology.old_formats import make_old

# As the attack sends them: octets that are no text are escaped in every text form.
OCTETS = bytes(range(256)) * 120
LARGE = 30 * KIB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def large_binding(number: int, durable: bool = True) -> BindingRecord:
    arguments = {"number": number, "octets": OCTETS}
    key = arguments_key(arguments)
    return BindingRecord("/", "amq.headers", "q", "queue", "", durable, arguments, key)


# Keys


def test_the_key_of_long_arguments_is_short_and_equal_for_equal_ones_only() -> None:
    one, same, other = ({"octets": OCTETS, "n": n} for n in (1, 1, 2))
    assert arguments_key(one) == arguments_key(dict(reversed(same.items())))
    assert arguments_key(one) != arguments_key(other)
    assert len(arguments_key(one)) <= ARGUMENTS_KEY_CHARS_MAX
    assert len(encode_key(large_binding(1).key)) < 1000
    assert arguments_key({"a": 1}) == ascii(canonical({"a": 1})[1]), "short ones stay readable"


def test_what_is_stored_of_large_arguments_is_a_small_multiple() -> None:
    record = large_binding(1)
    stored = len(encode_key(record.key)) + len(encode_record(record))
    assert stored < 2 * len(OCTETS), f"{stored / len(OCTETS):.1f} times"
    assert decode_record(encode_key(record.key), encode_record(record)) == record


def test_large_keys_are_not_remembered() -> None:
    with traced() as resident:
        for number in range(200):
            encode_key(("binding", "/", "e", "queue", "q", "", f"{number}" + "x" * LARGE))
    assert resident[0] < 100 * KIB


@pytest.mark.trio
async def test_a_store_with_long_keys_is_taken_over(path: Path) -> None:
    """Also what a watch asks for from before: it has to read everything again."""
    arguments = {"octets": OCTETS, "text": "ä" * 300}
    text = ascii(canonical(arguments)[1])
    short = BindingRecord("/", "e", "q", "queue", "k", True, {"a": 1}, arguments_key({"a": 1}))
    long = BindingRecord("/", "e / ü", "q", "queue", "k", True, arguments, text)
    make_old(path, "metadata_0002", {encode_key(each.key): encode_record(each) for each in (short, long)})
    store = await SqliteStore.open(path)
    found = records_of(await store.range(PREFIX))
    assert len(found) == 2
    assert short in found
    taken_over = next(record for record in found if record != short)
    assert taken_over.key == (*long.key[:-1], arguments_key(arguments))
    assert taken_over.arguments == arguments
    assert await store.refresh() > 2 << LEASED_BITS
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM history").fetchone() == (0,)
    database.close()
    await store.aclose()


# The store


@pytest.mark.trio
async def test_the_history_of_large_records_is_bounded_and_its_pages_are_used_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "HISTORY_BYTES_MAX", MIB, raising=False)
    monkeypatch.setattr(events, "EVENTS_BYTES_MAX", MIB, raising=False)
    store = await SqliteStore.open(path, poll_s=3600)
    value = json.dumps({"octets": OCTETS.hex()})
    with traced() as resident:
        for number in range(100):
            await store.transact([], [PutKey(f"key {number % 5}", value)])
            if number % 5 == 4:
                await store.transact([], [DeleteKey(f"key {n}") for n in range(5)])
    with sqlite3.connect(path) as database:
        kept = database.execute("SELECT sum(length(key) + ifnull(length(value), 0)) FROM history").fetchone()[0] or 0
        pages = database.execute("PRAGMA page_count").fetchone()[0] * 4 * KIB
    database.close()
    assert kept <= MIB
    assert pages < 3 * MIB, f"{pages / MIB:.1f} MiB for what is at most 0.3 MiB at a time"
    assert resident[0] < 2 * MIB, f"{resident[0] / MIB:.1f} MiB of {100 * len(value) / MIB:.1f}"
    await store.aclose()
    again = await SqliteStore.open(path)
    assert again._file._history_bytes == kept, "counted again"
    await again.aclose()


@pytest.mark.trio
async def test_events_that_a_watch_has_not_read_are_kept_and_then_dropped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVENTS_BYTES_MAX", 100 * KIB, raising=False)
    store = await SqliteStore.open(path, poll_s=3600)
    watch = store.watch(await store.refresh())
    for number in range(20):
        await store.transact([], [PutKey(f"key {number}", "x" * LARGE)])
    seen = [operation.key for _ in range(20) for operation in (await anext(watch)).operations]
    assert seen == [f"key {number}" for number in range(20)]
    assert store._history.nbytes <= 100 * KIB
    await store.aclose()


# In memory


@pytest.mark.slow
@pytest.mark.parametrize("durable", [True, slow(False)], ids=["durable", "transient"])
@pytest.mark.trio
async def test_bindings_with_large_arguments_take_a_small_multiple_of_them(path: Path, durable: bool) -> None:
    """The whole way through store and topology: 12 MB were 1.2 GB, and 549 MB on disk."""
    store = await SqliteStore.open(path, poll_s=3600)
    topology = Topology()
    count = 300
    with traced() as resident:
        sync = TopologySync(store, topology, lambda changes: None)
        await sync.start()
        topology.apply([*plans.create_vhost("/"), Put(QueueRecord("/", "q", 1, durable=durable))])
        watch = store.watch(sync.revision)
        for number in range(count):
            sync.submit_nowait([Put(large_binding(number, durable))], lambda _: None)
            await _one_commit(sync)
            event = await anext(watch)
            sync._apply([Put(decode_record(op.key, op.value)) for op in event.operations], event.revision)
            del event
    sent = count * len(OCTETS)
    assert len(topology.vhosts["/"].bindings_from("amq.headers")) == count
    assert resident[0] < 5 * sent, f"{resident[0] / sent:.1f} times what was sent"
    assert resident[0] < 1.6 * topology.vhosts["/"].nbytes, "more than was counted"
    await store.aclose()
    assert size_of(path) < 4 * sent


def size_of(path: Path) -> int:
    return os.path.getsize(path)


async def _one_commit(sync: TopologySync) -> None:
    taken = sync._pending.take(1)
    outcomes = await sync._store.transact_all([submission.transaction for submission in taken])
    assert len(outcomes) == len(taken) == 1


def records(number: int) -> list[Any]:
    name = f"name{number:06d}"
    return [
        QueueRecord("/", name, number << 8, durable=False),
        ExchangeRecord("/", name, "topic"),
        BindingRecord("/", "amq.direct", name, "queue", f"key{number}"),
        BindingRecord("/", "amq.topic", name, "queue", f"{number}.#" + ".w" * 60),
        BindingRecord("/", "amq.headers", name, "queue", "", True, {"n": number, "t": "x"}, str(number)),
    ]


@pytest.mark.parametrize(
    "kind", [0, slow(1), slow(2), slow(3), 4], ids=["queue", "exchange", "binding", "pattern", "headers"]
)
def test_what_is_counted_is_about_what_is_taken(kind: int) -> None:
    harness = Harness()
    made = [records(number)[kind] for number in range(1, 1001)]
    for number in range(1, 1001):
        if kind > 1:
            harness._apply([Put(records(number)[0])])
    before = harness.topology.vhosts["/"].nbytes
    with traced() as resident:
        harness._apply([Put(record) for record in made])
    counted = harness.topology.vhosts["/"].nbytes - before
    assert counted == sum(map(record_bytes, made))
    assert 0.3 < resident[0] / counted < 1.3, f"{resident[0] / 1000:.0f} bytes each, {counted / 1000:.0f} counted"


def test_what_goes_is_taken_off_exactly() -> None:
    harness = Harness()
    vhost = harness.topology.vhosts["/"]
    before = vhost.nbytes
    made = [record for number in range(20) for record in records(number)]
    changed = [QueueRecord("/", "name000001", 1 << 8, durable=False, arguments={"x-expires": 1000})]
    harness._apply([Put(record) for record in [*made, *made, *changed]])
    assert vhost.nbytes > before
    changes: list[Change] = [Delete(record.key) for record in reversed(made)]
    harness._apply(changes + changes)
    assert vhost.nbytes == before


# The bounds


def refused(client: Client, method: Any) -> tuple[int, str]:
    client.send(method)
    client.collect()
    _, answer = client.inbox.pop(0)
    assert isinstance(answer, commands.Channel.Close), answer
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    return answer.reply_code, answer.reply_text


@pytest.mark.parametrize("what", ["queue", "exchange", "binding"])
def test_the_arguments_of_one_declaration_are_bounded(what: str) -> None:
    client = Harness().client()
    client.declare("q")
    arguments = {"x-text": "x" * ARGUMENTS_BYTES_MAX}
    method: Any = {
        "queue": commands.Queue.Declare(queue="large", arguments=arguments),
        "exchange": commands.Exchange.Declare(exchange="large", arguments=arguments),
        "binding": commands.Queue.Bind(queue="q", exchange="amq.headers", arguments=arguments),
    }[what]
    named = "binding from exchange 'amq.headers' to queue 'q'" if what == "binding" else f"{what} 'large'"
    nbytes = arguments_bytes(arguments)
    assert refused(client, method) == (
        406,
        f"PRECONDITION_FAILED - arguments of {named} in vhost '/' take {nbytes} bytes, more than "
        f"{ARGUMENTS_BYTES_MAX}",
    )


def test_what_a_vhost_has_is_bounded_and_what_is_deleted_makes_room() -> None:
    harness = Harness(Limits(vhost_topology_bytes_max=200 * KIB))
    client = harness.client()
    names = []
    client.send(commands.Queue.Declare(queue="q0"))
    while not isinstance(client.inbox[-1][1], commands.Channel.Close):
        names.append(f"q{len(names)}")
        client.send(commands.Queue.Declare(queue=f"q{len(names)}"))
    close = client.inbox[-1][1]
    assert close.reply_code == 406
    assert close.reply_text == (
        f"PRECONDITION_FAILED - cannot declare queue 'q{len(names)}' in vhost '/': what queues, exchanges and "
        "bindings of the vhost may take (204800 bytes) is reached"
    )
    assert 15 < len(names) < 30
    assert harness.topology.vhosts["/"].nbytes <= 200 * KIB
    client = harness.client()
    client.declare(names[0])
    client.call(commands.Queue.Delete(queue=names[0]), commands.Queue.DeleteOk)
    client.declare("another")


def test_what_is_on_its_way_counts_already() -> None:
    """Declarations on many channels at once do not get past the bound together."""
    harness = Harness(Limits(vhost_topology_bytes_max=200 * KIB), automatic=False)
    client = Client(harness)
    client.harness.automatic = True
    client.open()
    for channel in range(2, 61):
        client.channel(channel)
    harness.automatic = False
    for channel in range(1, 61):
        client.send(commands.Queue.Declare(queue=f"q{channel}"), channel)
    assert len(client.take(commands.Channel.Close)) > 30
    harness.automatic = True
    harness.step()
    assert len(client.take(commands.Queue.DeclareOk)) > 15
    assert harness.topology.vhosts["/"].nbytes <= 200 * KIB
    assert not harness.node.client_counters._coming_bytes


def test_declarations_that_wait_with_large_arguments_pause_the_connection() -> None:
    """One on each of 2,047 channels would be 130 MB of a single connection."""
    harness = Harness(automatic=False)
    client = Client(harness)
    harness.automatic = True
    client.open()
    client.declare("q")
    for channel in range(2, 61):
        client.channel(channel)
    harness.automatic = False
    sent = 0
    for channel in range(1, 61):
        if client.connection.reading_paused:
            break
        arguments = {"text": "x" * LARGE, "n": channel}
        client.send(commands.Queue.Bind(queue="q", exchange="amq.headers", arguments=arguments), channel)
        sent += 1
    assert 20 < sent < 50
    harness.automatic = True
    harness.step()
    assert not client.connection.reading_paused
    assert client.connection.intake.held_bytes == 0
    assert len(client.take(commands.Queue.BindOk)) == sent
