"""A whole node in a test: the real pure modules, with a store and a journal that the test moves by hand.

`Harness` makes the node and its services; `Client` is a connection machine with frames going in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from pamqp import base, body, commands, exceptions, frame, header

from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.recorder import Recorder
from amqpd.connection import Connection
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.operation_marks import Marks
from amqpd.journal.records import LOCAL, Recovered, RecoveredQueue, RecoveredRow, Row
from amqpd.journal.transaction import JournalTransaction
from amqpd.methods import METHODS
from amqpd.node.node import Node
from amqpd.session.services import Resume
from amqpd.topology import plans
from amqpd.topology.state import Topology
from amqpd.tracing.tracer import Tracer
from amqpd.vocabulary.identity import Identity
from amqpd.vocabulary.journal_numbers import vhost_number
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Change, Delete, Key, Put
from amqpd.vocabulary.states import ConnectionState, PeerAddress
from tests.harness.cluster import ClusterByHand

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CATCH_UP_TICKS_MAX = 100_000


class OpenAccess:
    """Everything is allowed, but what a test forbids."""

    def __init__(self) -> None:
        self.forbidden: set[tuple[str, str]] = set()

    def may_enter(self, user: str, vhost: str) -> bool:
        return ("enter", vhost) not in self.forbidden

    def require(self, user: str, vhost: str, kind: str, resource: str, name: str) -> None:
        if (kind, name) in self.forbidden:
            raise exceptions.AMQPAccessRefused(f"{kind} access to {resource} '{name}' refused")

    def require_topic(self, *args: Any) -> None: ...


class Harness:
    """A node. `answer` lets the metadata store answer; `commit` lets the journal reach the disk (a dictionary here).
    With `automatic`, both happen by themselves at the end of each step."""

    node_class: type[Node] = Node
    identity = Identity("amqpd@test", "17" * 16)
    metadata_applied = metadata_told = 0
    cluster_node = ""
    """under which the records of a shared store name it"""

    def __init__(self, limits: Limits | None = None, automatic: bool = True) -> None:
        self.limits = limits or Limits()
        self.automatic = automatic
        self.catches_up = False
        """what was begun is done in one step, also where the test moves store and journal by hand"""
        self.access = OpenAccess()
        self.rows: dict[int, dict[int, Row]] = {}
        self.damaged: dict[tuple[int, int], str] = {}
        """(queue_id, first_seq) of rows that cannot be read, and why"""
        self.reads_done: list[tuple[int, int, int]] = []
        """(queue_id, first_seq, last_seq)"""
        self.settled: list[tuple[int, int, int]] = []
        self.delivered: dict[int, int] = {}
        self.next_seqs: dict[int, int] = {}
        self.counts: list[tuple[int, int, int]] = []
        self.marks = Marks()
        """of operations of other nodes' clients on the local source"""
        self.transactions: list[JournalTransaction] = []
        self.bugs: list[Exception] = []
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.reads: list[Any] = []
        self._submitted: list[tuple[Sequence[Change], Resume, list[Key]]] = []
        self._logins: list[tuple[Connection, str, bytes]] = []
        self._count = 0
        self._chances = 0
        self.loses: Callable[[Any], bool] = lambda record: False
        """which records the next restart does not find any more"""
        self.finds: Callable[[Any], Any] = lambda record: record
        """as what the next restart finds a record"""
        self.tombstones: set[int] = set()
        """the journal's ids of what was deleted"""
        self.topology = Topology()
        self.cluster = ClusterByHand(self.cluster_node)
        self._start(JournalBuffer())
        self._apply(plans.create_vhost("/"))

    def _start(self, journal: JournalBuffer) -> None:
        services: Any = self
        self.node = self.node_class(
            services,
            self.topology,
            self.access,
            journal,
            self.limits,
            METHODS,
            {"product": "amqpd"},
            self.identity,
            *self.audit(),
            self.tracer(),
            self.cluster,
        )

    def audit(self) -> tuple[Recorder | None, Coverage | None]:
        """What the node records, in tests that read it."""
        return None, None

    def tracer(self) -> Tracer | None:
        """Who is told of traced messages, in tests that ask for it."""
        return None

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Delete):
                vhost = self.topology.vhosts.get(change.key[1])
                if vhost is not None and change.key[0] == "queue" and change.key[2] in vhost.queues:
                    self.tombstones.add(vhost.queues[change.key[2]].id)
                elif change.key[0] == "vhost":
                    self.tombstones.add(vhost_number(change.key[1]))
        self.topology.apply(changes)
        self.node.applied(changes)

    # Services

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        self._submitted.append((changes, resume, list(requires)))

    def authenticate(self, connection: Connection, mechanism: str, response: bytes) -> None:
        self._logins.append((connection, mechanism, response))

    def left_unauthenticated(self, connection: Connection) -> None:
        """Its log-in is answered all the same, as that of some clients that left is."""

    def token(self) -> str:
        self._count += 1
        return f"{self._count:022d}"

    def queue_id(self) -> int:
        # The levels of a priority queue have the numbers behind its own.
        self._count += 1
        return self._count << 8

    def chance(self) -> float:
        """The same numbers in every run, spread over all."""
        self._chances += 1
        return self._chances * 0.6180339887498949 % 1.0

    def log(self, event: str, fields: Mapping[str, Any]) -> None:
        self.logged.append((event, dict(fields)))

    def bug(self, error: Exception) -> None:
        self.bugs.append(error)

    # What the shell would do

    def exists(self, key: Key) -> bool:
        vhost = self.topology.vhosts.get(key[1])
        return vhost is not None and (
            key[0] == "vhost"
            or (key[0] == "queue" and key[2] in vhost.queues)
            or (key[0] == "exchange" and key[2] in vhost.exchanges)
        )

    def answer(self) -> None:
        """The metadata store answers everything that was submitted, and the log-ins are verified."""
        while self._submitted or self._logins:
            while self._logins:
                connection, mechanism, response = self._logins.pop(0)
                if response.endswith(b"wrong"):
                    connection.refused(mechanism, "wrong password")
                else:
                    connection.authenticated("guest")
            while self._submitted:
                changes, resume, requires = self._submitted.pop(0)
                clash = any(isinstance(c, Put) and c.create and self.exists(c.record.key) for c in changes)
                if clash or not all(self.exists(key) for key in requires):
                    resume(False)
                else:
                    self._apply(changes)
                    resume(True)
        self.tick()

    def commit(self) -> None:
        """One transaction of the journal reaches the disk."""
        transaction = self.node.journal.take()
        for row in transaction.rows:
            row.join()
        self.transactions.append(transaction)
        for row in transaction.rows:
            self.rows.setdefault(row.queue_id, {})[row.first_seq] = row
            self.next_seqs[row.queue_id] = row.last_seq + 1
        self.settled += [(r.queue_id, r.first_seq, r.last_seq) for r in transaction.settled]
        for r in transaction.deletes:
            kept = self.rows.get(r.queue_id, {})
            for first in [f for f, row in kept.items() if f >= r.first_seq and row.last_seq <= r.last_seq]:
                del kept[first]
            self.counts = [c for c in self.counts if not (c[0] == r.queue_id and r.first_seq <= c[1] <= r.last_seq)]
            self.settled = [
                s for s in self.settled if not (s[0] == r.queue_id and r.first_seq <= s[1] and s[2] <= r.last_seq)
            ]
        self.delivered.update(transaction.delivered)
        self.counts += transaction.counts
        for record in [each for change in transaction.marks for each in change.records()]:
            self.marks.apply(record)
        for queue_id in transaction.dropped:
            self.rows.pop(queue_id, None)
            self.delivered.pop(queue_id, None)
        self.node.journal.stored(transaction.index)
        self.node.journal.committed(transaction.index)
        self.node.reported(self.node.journal.lane)
        self.tick()

    def read(self) -> None:
        """What the queues want to have read is read."""
        while self.reads:
            queue, request = self.reads.pop(0)
            self.node.loaded(queue, request, self.rows_of(request.queue_id, request.first, request.last)[:2])
            self.tick()

    def rows_of(self, queue_id: int, first: int, last: int) -> list[Row]:
        """As the disk gives them."""
        self.reads_done.append((queue_id, first, last))
        found = [row for f, row in sorted(self.rows.get(queue_id, {}).items()) if f <= last and row.last_seq >= first]
        return [
            replace(row, data=b"\0damaged", damage=self.damaged[queue_id, row.first_seq])
            if (queue_id, row.first_seq) in self.damaged
            else row
            for row in found
        ]

    def step(self) -> None:
        """A tick, and as many more as clients need that sent more than their turn had space for."""
        self.tick()
        if self.automatic:
            self.answer()
            while self.node.journal.pending:
                self.commit()
            self.read()
            self.answer()

    def tick(self) -> None:
        """One tick, and as many more as what was begun needs."""
        self.reads += self.node.tick()
        if not (self.automatic or self.catches_up):
            return
        for _ in range(CATCH_UP_TICKS_MAX):
            if not (self.node.turns.waiting or self.node.behind):
                return
            self.node.turns.begin(0)
            self.node.turns.next()
            self.reads += self.node.tick()
        raise AssertionError("the node is behind, however many ticks it gets")

    def restart(self) -> None:
        """The node dies; a new one recovers from what is on disk. Transient things are gone."""
        found: dict[int, RecoveredQueue] = {}
        for queue_id in {**self.rows, **self.delivered}:
            rows = self.rows.get(queue_id, {})
            recovered, next_seq = [], self.next_seqs.get(queue_id, 0)
            for row in sorted(rows.values(), key=lambda row: row.first_seq):
                next_seq = max(next_seq, row.last_seq + 1)
                if not row.persistent:
                    continue
                gone = sorted(
                    (max(first, row.first_seq), min(last, row.last_seq))
                    for owner, first, last in self.settled
                    if owner == queue_id and first <= row.last_seq and last >= row.first_seq
                )
                if sum(last - first + 1 for first, last in gone) < row.last_seq - row.first_seq + 1:
                    recovered.append(
                        RecoveredRow(
                            row.first_seq,
                            row.last_seq,
                            len(row.data),
                            gone,
                            body_bytes=row.body_bytes,
                            published_ms=row.published_ms,
                            deadlines=row.deadlines,
                        )
                    )
            delivered = self.delivered.get(queue_id, 0)
            counts = {seq: count for owner, seq, count in self.counts if owner == queue_id}
            found[queue_id] = RecoveredQueue(recovered, max(next_seq, delivered), delivered, counts)
        index = self.transactions[-1].index if self.transactions else 0
        old = self.topology
        self.topology = Topology()
        self._submitted, self._logins, self.reads = [], [], []
        self._start(JournalBuffer(index))
        self.node.recover(Recovered(index, found, {LOCAL: deepcopy(self.marks)}))
        changes: list[Change] = [Put(record) for record in old.vhost_records.values() if not self.loses(record)]
        for name, vhost in old.vhosts.items():
            if self.loses(old.vhost_records[name]):
                continue
            changes += [Put(record) for record in vhost.policies.records()]
            records = (
                [e.record for e in vhost.exchanges.values()] + list(vhost.queues.values()) + list(vhost.bindings())
            )
            kept = [record for record in records if record.durable and not self.loses(record)]
            changes += [Put(self.finds(record)) for record in kept]
        self._apply(changes)
        self.node.recovery_ended(self.tombstones)

    def client(self, **options: Any) -> Client:
        client = Client(self, **options)
        client.open()
        return client


class Client:
    """One AMQP client, frame by frame. `received` holds what came: (channel, method or content)."""

    def __init__(self, harness: Harness, heartbeat: int = 0, frame_max: int = 131_072, **capabilities: bool) -> None:
        self.harness = harness
        self.heartbeat = heartbeat
        self.frame_max = frame_max
        self.capabilities = {"consumer_cancel_notify": True, "connection.blocked": True, **capabilities}
        harness._count += 1
        self.connection = Connection(harness.node, PeerAddress("test", True), f"c{harness._count}", 0.0)
        self.inbox: list[tuple[int, Any]] = []
        self._bytes = b""

    def open(self, vhost: str = "/") -> None:
        self.raw(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        self.send(
            commands.Connection.StartOk(
                client_properties={"capabilities": self.capabilities}, response="\0guest\0guest", mechanism="PLAIN"
            ),
            0,
        )
        tune = self.expect(commands.Connection.Tune)
        self.send(
            commands.Connection.TuneOk(tune.channel_max, min(self.frame_max, tune.frame_max), self.heartbeat), 0
        )
        self.send(commands.Connection.Open(virtual_host=vhost), 0)
        self.expect(commands.Connection.OpenOk)
        self.channel(1)

    def channel(self, number: int) -> None:
        self.send(commands.Channel.Open(), number)
        self.expect(commands.Channel.OpenOk)

    def raw(self, data: bytes) -> None:
        self.connection.receive(data)
        self.harness.step()
        self.collect()

    def send(self, frame_value: Any, channel: int = 1) -> None:
        self.raw(frame.marshal(frame_value, channel))

    def call(self, method: base.Frame, answer: Any, channel: int = 1) -> Any:
        self.send(method, channel)
        return self.expect(answer)

    def publish(
        self,
        data: bytes = b"x",
        key: str = "q",
        exchange: str = "",
        channel: int = 1,
        mandatory: bool = False,
        **properties: Any,
    ) -> None:
        self.raw(publish_bytes(data, key, exchange, channel, mandatory, **properties))

    def declare(self, queue: str, channel: int = 1, **options: Any) -> Any:
        return self.call(commands.Queue.Declare(queue=queue, **options), commands.Queue.DeclareOk, channel)

    def consume(self, queue: str, tag: str = "t", channel: int = 1, **options: Any) -> None:
        self.call(commands.Basic.Consume(queue=queue, consumer_tag=tag, **options), commands.Basic.ConsumeOk, channel)

    def collect(self) -> None:
        """Take what the broker wrote."""
        connection = self.connection
        data = self._bytes + b"".join(connection.outbox)
        connection.outbox = []
        connection.sent(0)
        if data == PROTOCOL_HEADER:
            self.inbox.append((0, header.ProtocolHeader()))
            data = b""
        content: list[Any] | None = getattr(self, "_content", None)
        while data:
            consumed, channel, value = frame.unmarshal(data)
            data = data[consumed:]
            if isinstance(value, header.ContentHeader):
                assert content is not None
                content[1:] = [value, b""]
            elif isinstance(value, body.ContentBody):
                assert content is not None
                content[2] += value.value
            elif isinstance(value, commands.Basic.Deliver | commands.Basic.Return | commands.Basic.GetOk):
                content = [value]
            else:
                self.inbox.append((channel, value))
            if content is not None and len(content) == 3 and len(content[2]) == content[1].body_size:
                self.inbox.append((channel, Message(content[0], content[1].properties, content[2])))
                content = None
        self._content = content

    def take(self, kind: Any) -> list[Any]:
        """All that came of this kind, removed from the inbox."""
        self.collect()
        found = [value for _, value in self.inbox if isinstance(value, kind)]
        self.inbox = [(channel, value) for channel, value in self.inbox if not isinstance(value, kind)]
        return found

    def expect(self, kind: Any) -> Any:
        """The next thing in the inbox, which must be of this kind."""
        self.collect()
        assert self.inbox, f"nothing came, expected {kind.__name__}; bugs: {self.harness.bugs!r}"
        _, value = self.inbox.pop(0)
        assert isinstance(value, kind), f"{value!r} {vars_of(value)} where {kind.__name__} was expected"
        return value

    def messages(self) -> list[Message]:
        return self.take(Message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages()]

    def lose(self) -> None:
        """The socket breaks."""
        self.connection.lost()
        self.harness.step()

    @property
    def closed(self) -> bool:
        return self.connection.state in (ConnectionState.LINGERING, ConnectionState.CLOSED)


class Message:
    """basic.deliver, basic.get-ok or basic.return with its content."""

    def __init__(self, method: Any, properties: Any, data: bytes) -> None:
        self.method = method
        self.properties = properties
        self.body = data

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def redelivered(self) -> bool:
        return bool(self.method.redelivered)


def publish_bytes(
    data: bytes = b"x",
    key: str = "q",
    exchange: str = "",
    channel: int = 1,
    mandatory: bool = False,
    **properties: Any,
) -> bytes:
    frames = frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory), channel)
    frames += frame.marshal(
        header.ContentHeader(body_size=len(data), properties=commands.Basic.Properties(**properties)), channel
    )
    for at in range(0, len(data), 131_064):
        frames += frame.marshal(body.ContentBody(data[at : at + 131_064]), channel)
    return frames


def vars_of(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, base.Frame) else {}
