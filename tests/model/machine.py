"""Random commands on a node, each held against the model at once.

What comes in: commands. What goes out: an AssertionError as soon as something is not as the model has it.
Rules: 1. After each command: counts and bytes of each queue, what each client received, confirms. 2. When the disk is
not slow, nothing that could happen has not happened. 3. At the end all queues are emptied, and what comes out is what
the model has, in its order.
Not here: what is right (`queues.py`, `broker.py`), which commands there are to come (`commands.py`).
"""

from __future__ import annotations

from typing import Any

from pamqp import commands

from amqpd.audit.publication import Publication
from amqpd.kernel import Run, scan_publishes
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Delete, PolicyRecord, Put
from tests.harness.harness import Client, publish_bytes
from tests.harness.harness import Message as Received
from tests.model.broker import FAN, Model
from tests.model.messages import Message
from tests.model.queues import ClientChannel, Consumer, ModelQueue
from tests.model.watching import WatchedHarness

NAMES = ["a", "b", "c", "d"]
CLIENTS = 2
PUBLISHING, CONSUMING, GETTING = 1, 2, 3
SMALL = Limits(queue_memory_bytes=2500, backlog_memory_bytes=2500, small_queue_bytes=800)


class Machine:
    """The methods under "Commands" are what `commands.py` draws."""

    model_class: type[Model] = Model
    harness_class: type[WatchedHarness] = WatchedHarness

    def __init__(self) -> None:
        self.model = self.model_class()
        self.harness = self.harness_class(SMALL, self.model)
        self.number = 0
        self.slow_disk = False
        self.policies: set[str] = set()
        self.publishes: list[list[int]] = []
        """by client: what each of its confirms is about"""
        self.answered: list[dict[int, str]] = []
        self.pending_get: set[int] = set()
        self.harness._apply([Put(PolicyRecord("/", "nothing", "^nothing$", "queues", {}))])
        self.connect()
        self.harness.automatic = True
        self.harness.clients[0].call(
            commands.Exchange.Declare(exchange=FAN, exchange_type="fanout", durable=True), commands.Exchange.DeclareOk
        )
        self.harness.automatic = False

    def count(self, event: str) -> None:
        self.model.events[event] += 1

    def small_bounds(self, copies: bool) -> None:
        """See `watching.BOUNDS`."""
        self.count("copies on disk" if copies else "small bounds")

    # The node

    def connect(self) -> None:
        self.harness.clients = []
        self.publishes, self.answered, self.pending_get = [], [], set()
        for _ in range(CLIENTS):
            self.harness.clients.append(self.new_client())

    def new_client(self) -> Client:
        self.publishes.append([])
        self.answered.append({})
        client = Client(self.harness)
        self.harness.automatic = True
        client.open()
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        for channel in (CONSUMING, GETTING):
            client.channel(channel)
        self.harness.automatic = False
        return client

    def settle_down(self) -> None:
        """Everything that can happen without time passing, and without the disk if it is slow."""
        node = self.harness.node
        for turn in range(200):
            self.harness.answer()
            if not self.slow_disk:
                self.harness.read()
            self.harness.answer()
            waits = self.harness.reads and not self.slow_disk
            # What is due and has to be read first is looked at again until then, by the pump each 10 ms.
            reading = self.harness.reads and self.slow_disk
            due = node.wakes.next_ms is not None and node.wakes.next_ms <= node.now_ms
            if not waits and not node.to_dispatch and (reading or not due):
                break
            assert turn < 199, "it never ends"
        for bug in self.harness.bugs:
            raise bug
        for number, client in enumerate(self.harness.clients):
            self.collect(number, client)

    def collect(self, number: int, client: Client) -> None:
        client.collect()
        inbox, client.inbox = client.inbox, []
        for channel, value in inbox:
            if isinstance(value, Received):
                self.check_received((number, channel), value)
            elif isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
                self.confirmed(number, value)
            elif isinstance(value, commands.Basic.GetEmpty):
                self.pending_get.discard(number)
            else:
                assert not isinstance(value, commands.Channel.Close | commands.Connection.Close), dict(value)

    def check_received(self, channel: ClientChannel, received: Received) -> None:
        sent = self.model.sent[channel].pop(0)
        message = sent.message
        assert (int(received.body[:8]), len(received.body)) == (message.number, message.size)
        assert (received.tag, received.redelivered) == (sent.tag, sent.redelivered)
        if channel[1] == GETTING:
            self.pending_get.discard(channel[0])
        else:
            assert received.method.consumer_tag == sent.consumer
        headers = received.properties.headers or {}
        assert headers.get("x-delivery-count", 0) == sent.returns, f"{sent} with {headers}"
        assert (received.method.exchange, received.method.routing_key) == (message.exchange, message.key)
        assert received.properties.expiration == (None if message.expiration is None else str(message.expiration))
        deaths = [
            (d["queue"], d["reason"], d["exchange"], d["routing-keys"], d.get("original-expiration"), d["count"])
            for d in headers.get("x-death", ())
        ]
        assert deaths == [
            (d.queue, d.reason, d.exchange, [d.key], None if d.expiration is None else str(d.expiration), d.count)
            for d in message.deaths
        ]
        for which, death in (("first", message.first_death), ("last", message.last_death)):
            found = tuple(headers.get(f"x-{which}-death-{part}") for part in ("queue", "reason", "exchange"))
            assert found == (death or (None, None, None)), f"{which} death {found} of {message}"

    def confirmed(self, number: int, answer: commands.Basic.Ack | commands.Basic.Nack) -> None:
        tags = [answer.delivery_tag or 0]
        if answer.multiple:
            tags = [tag for tag in range(1, tags[0] + 1) if tag not in self.answered[number]]
        kind = "ack" if isinstance(answer, commands.Basic.Ack) else "nack"
        for tag in tags:
            assert tag not in self.answered[number], f"{tag} is confirmed twice"
            self.answered[number][tag] = kind
            published = self.publishes[number][tag - 1]
            assert (kind == "nack") == (published in self.model.refused), f"{kind} for {published}"
            if kind == "ack":
                for name, queue in self.model.queues.items():
                    if queue.durable and any(
                        each.number == published and not each.deaths and (each.persistent or queue.asked.quorum)
                        for each in queue.held
                    ):
                        assert self.model.on_disk(published, name), f"{published} is confirmed, and not on disk"
        self.count(f"confirm {kind}")

    # Commands

    def declare(
        self, name: str, kind: str, durable: bool, arguments: dict[str, Any], fanned: bool, instead: bool
    ) -> None:
        """A queue that is not there, or `instead` of one that is."""
        if name in self.model.queues:
            if not instead:
                return
            self.count("delete")
            self.harness.deleting = name
            self.harness.clients[0].send(commands.Queue.Delete(queue=name, nowait=True))
            self.harness.answer()
            self.harness.deleting = ""
            assert name not in self.model.queues
        for argument in arguments:
            self.count(f"{kind} {argument}")
        if kind == "quorum":
            arguments = {**arguments, "queue-type": "quorum"}
        queue = ModelQueue(name, arguments, durable, self.model.now_ms)
        queue.asked.policy = self.policy_of(name)
        self.model.queues[name] = queue
        client = self.harness.clients[0]
        named = {f"x-{key}": value for key, value in arguments.items()}
        client.send(commands.Queue.Declare(queue=name, durable=durable, arguments=named, nowait=True))
        self.harness.answer()
        if fanned:
            client.send(commands.Queue.Bind(queue=name, exchange=FAN, nowait=True))
            self.harness.answer()
            self.model.fan.add(name)
        self.settle_down()

    def publish(
        self,
        number: int,
        to: str,
        size: int,
        count: int,
        persistent: bool,
        priority: int | None,
        expiration: int | None,
        at_once: bool,
    ) -> None:
        exchange, key = (FAN, "k") if to == FAN else ("", to)
        data = b""
        for _ in range(count):
            message = self.new_message(exchange, key, size, persistent, priority, expiration)
            self.publishes[number].append(message.number)
            self.model.expect(message, self.model.route(exchange, key))
            data += self.published_bytes(message)
            if not at_once:
                self.harness.clients[number].raw(data)
                data = b""
                self.settle_down()
        if data:
            self.harness.clients[number].raw(data)
            self.settle_down()
        self.count("publish run" if at_once and count > 1 else "publish")
        for what, is_so in (("priority", priority), ("expiration", expiration is not None)):
            if is_so:
                self.count(f"publish with {what}")

    def new_message(
        self, exchange: str, key: str, size: int, persistent: bool, priority: int | None, expiration: int | None
    ) -> Message:
        self.number += 1
        return Message(self.number, size, exchange, key, persistent, priority, expiration)

    def published_bytes(self, message: Message) -> bytes:
        properties: dict[str, Any] = {"delivery_mode": 2 if message.persistent else 1}
        if message.priority is not None:
            properties["priority"] = message.priority
        if message.expiration is not None:
            properties["expiration"] = str(message.expiration)
        body = (b"%08d" % message.number).ljust(message.size, b".")
        return publish_bytes(body, message.key, message.exchange, PUBLISHING, **properties)

    def delay(self, to: str, delay_ms: int, size: int) -> None:
        message = self.new_message("", to, size, True, None, None)
        data = self.published_bytes(message)
        run = scan_publishes(data, 0, len(data), 1 << 20)
        assert run is not None
        self.model.delayed.append((self.model.now_ms + delay_ms + 1, message))
        self.put_off(run, delay_ms)
        self.count("delay")
        self.settle_down()

    def put_off(self, run: Run, delay_ms: int, publication: Publication | None = None) -> None:
        self.harness.node.delay("/", run, delay_ms, publication)

    def consume(self, number: int, name: str, prefetch: int, no_ack: bool, priority: int) -> None:
        queue = self.model.queues.get(name)
        if queue is None or len(queue.consumers) > 2:
            return
        self.number += 1
        consumer = Consumer((number, CONSUMING), f"t{self.number}", prefetch, no_ack, priority)
        client = self.harness.clients[number]
        client.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk, CONSUMING)
        queue.consume(consumer)
        self.count("consume with no_ack" if no_ack else "consume")
        client.send(
            commands.Basic.Consume(
                queue=name, consumer_tag=consumer.tag, no_ack=no_ack, arguments={"x-priority": priority}, nowait=True
            ),
            CONSUMING,
        )
        self.settle_down()

    def cancel(self, which: int) -> None:
        found = [(queue, each) for queue in self.model.queues.values() for each in queue.consumers]
        if found:
            queue, consumer = found[which % len(found)]
            queue.cancel(consumer, self.model.now_ms)
            self.count("cancel")
            client = self.harness.clients[consumer.channel[0]]
            client.send(commands.Basic.Cancel(consumer_tag=consumer.tag, nowait=True), CONSUMING)
            self.settle_down()

    def get(self, number: int, name: str, no_ack: bool) -> None:
        if number in self.pending_get or name not in self.model.queues:
            return
        self.pending_get.add(number)
        self.count("get")
        client = self.harness.getter = self.harness.clients[number]
        client.send(commands.Basic.Get(queue=name, no_ack=no_ack), GETTING)
        self.settle_down()
        if number in self.pending_get:
            assert self.slow_disk, "a get without an answer"
            self.count("get that waits")

    def settle(self, which: int, multiple: bool, how: str) -> None:
        outstanding = sorted(
            key
            for queue in self.model.queues.values()
            for key in queue.unacked
            if key[0][1] != GETTING or key[0][0] not in self.pending_get
        )
        if not outstanding:
            return
        channel, tag = outstanding[which % len(outstanding)]
        taken = [key for key in outstanding if key[0] == channel and (key[1] == tag or (multiple and key[1] < tag))]
        for key in taken:
            queue = next(queue for queue in self.model.queues.values() if key in queue.unacked)
            {"ack": queue.ack, "requeue": queue.requeue, "reject": queue.reject}[how](*key)
        self.count(f"{how} with multiple" if len(taken) > 1 else how)
        if how == "ack":
            method: Any = commands.Basic.Ack(tag, multiple)
        else:
            method = commands.Basic.Nack(tag, multiple, how == "requeue")
        self.harness.clients[channel[0]].send(method, channel[1])
        self.settle_down()

    def purge(self, name: str) -> None:
        if name in self.model.queues:
            self.count("purge")
            if self.is_late(self.harness.node.queues["/", name]):
                # A purge takes what is over and was not read yet as it takes what is ready. Which messages these are
                # the model does not know.
                self.slow_disk = False
                self.settle_down()
                self.slow_disk = True
            self.harness.clients[0].send(commands.Queue.Purge(queue=name, nowait=True), PUBLISHING)
            self.settle_down()

    def lose(self, number: int) -> None:
        """A client's connection breaks, and it comes again."""
        self.lose_client(number)
        self.count("lose")
        self.settle_down()
        before = self.publishes, self.answered
        self.publishes, self.answered = [], []
        self.harness.clients[number] = self.new_client()
        (published,), (answered,) = self.publishes, self.answered
        self.publishes, self.answered = before
        self.publishes[number], self.answered[number] = published, answered
        self.settle_down()

    def lose_client(self, number: int) -> None:
        self.model.release_client(number)
        for channel in (PUBLISHING, CONSUMING, GETTING):
            mine = sorted(
                key for queue in self.model.queues.values() for key in queue.unacked if key[0] == (number, channel)
            )
            for key in mine:
                next(queue for queue in self.model.queues.values() if key in queue.unacked).requeue(*key)
            self.model.sent.pop((number, channel), None)
        self.pending_get.discard(number)
        self.harness.clients[number].lose()
        self.harness.clients[number].collect()
        self.harness.clients[number].inbox = []

    # Disk, time, policies

    def later(self, ms: int) -> None:
        self.model.now_ms += ms
        self.harness.node.now_ms = self.model.now_ms
        self.count("later")
        self.harness.step()
        self.settle_down()

    def until_the_next_deadline(self) -> None:
        deadlines = [
            each.deadline_ms
            for queue in self.model.queues.values()
            for each in queue.ready
            if each.deadline_ms is not None and each.deadline_ms > self.model.now_ms
        ]
        if deadlines:
            self.count("until a deadline")
            self.later(min(deadlines) - self.model.now_ms - 1 or 1)
            if min(deadlines) > self.model.now_ms:
                self.later(min(deadlines) - self.model.now_ms)

    def disk(self, slow: bool) -> None:
        self.slow_disk = slow
        self.count("disk slow" if slow else "disk fast")
        self.settle_down()

    def page_out(self, name: str) -> None:
        """The queue must let go of its memory: what is on disk leaves at once, the rest after the next commit."""
        queue = self.harness.node.queues.get(("/", name))
        if queue is not None:
            queue.messages.shrink(0)
            self.count("page out")
            levels = queue.messages.levels()
            if any(segment.runs is None for level in levels for segment in level.store.segments):
                self.count("paged out")

    def commit(self) -> None:
        self.harness.commit()
        self.count("commit")
        self.settle_down()

    def set_policy(self, definition: dict[str, Any], pattern: str) -> None:
        self.policies = {pattern}
        self.definition = definition
        self.count("policy")
        for key in definition:
            self.count(f"policy {key}")
        self.apply_policy([Put(PolicyRecord("/", "p", pattern, "queues", definition))])

    def clear_policy(self) -> None:
        if not self.policies:
            return
        self.policies = set()
        self.count("policy cleared")
        if any(queue.pending for queue in self.model.queues.values()):
            self.count("policy cleared while messages die")
        self.apply_policy([Delete(("policy", "/", "p"))])

    def apply_policy(self, changes: list[Any]) -> None:
        for name, queue in self.model.queues.items():
            before = queue.asked.number("expires")
            queue.asked.policy = self.policy_of(name)
            if queue.asked.number("expires") != before:
                queue.used_ms = self.model.now_ms
        self.harness._apply(changes)
        self.harness.step()
        self.settle_down()

    def policy_of(self, name: str) -> dict[str, Any]:
        for pattern in self.policies:
            if pattern == "" or name in pattern:
                return self.definition
        return {}

    def restart(self, clean: bool) -> None:
        if clean:
            for number in range(CLIENTS):
                self.lose_client(number)
            self.harness.answer()
            self.harness.read()
            while self.harness.node.journal.pending:
                self.harness.commit()
                self.harness.read()
        self.count("restart clean" if clean else "restart dirty")
        before = {name: len(queue.held) for name, queue in self.model.queues.items()}
        if sum(before.values()):
            self.count("restart with messages")
        for queue in self.model.queues.values():
            if queue.pending:
                self.count("restart while messages die")
            for what in ("deadline_ms", "returns"):
                if any(getattr(message, what) for message in queue.held):
                    self.count(f"restart with {what}")
        self.model.restart(clean)
        self.harness.clients = []
        self.harness.restart()
        self.harness.node.now_ms = self.model.now_ms
        for queue in self.model.queues.values():
            queue.used_ms = 0
        self.harness.reads = []
        self.connect()
        self.settle_down()

    # What must hold

    def holds(self) -> None:
        for bug in self.harness.bugs:
            raise bug
        assert {name for _, name in self.harness.node.queues} == set(self.model.queues)
        for name, queue in self.model.queues.items():
            self.check_queue(queue, self.harness.node.queues["/", name])
            queue.expired_now = 0
        for channel, sent in self.model.sent.items():
            assert not sent, f"{channel} did not receive {sent}"
        held = [number for queue in self.model.queues.values() for number in queue.held]
        self.count("step")
        assert len(held) < 10_000

    def check_queue(self, queue: ModelQueue, real: Any) -> None:
        queue.check_conservation()
        backlog, facts = real.backlog, real.facts
        assert facts.accepted == backlog.ready + backlog.unacked + facts.left, f"{queue.name} does not add up"
        counts = (backlog.ready, backlog.unacked), (len(queue.ready), queue.unacked_count)
        if self.is_late(real):
            assert sum(counts[0]) == sum(counts[1]), queue.name
        else:
            assert counts[0] == counts[1], queue.name
        for fact in ("accepted", "refused", "dead_lettered", "acked", "rejected", "expired", "dropped", "purged"):
            assert getattr(facts, fact) == queue.facts[fact], f"{queue.name}: {fact} {getattr(facts, fact)}"
        levels = list(real.messages.levels())
        for level in levels:
            assert level.backlog.ready + level.backlog.unacked == sum(
                segment.left for segment in level.store.segments
            )
            assert level.memory_bytes == sum(segment.memory_bytes for segment in level.store.segments)
        if all(segment.runs is not None for level in levels for segment in level.store.segments):
            assert (backlog.ready_bytes, backlog.unacked_bytes) == (queue.ready_bytes, queue.unacked_bytes)
        if not self.slow_disk:
            self.check_quiet(queue)

    def is_late(self, real: Any) -> bool:
        """Something is over and on disk only: it dies when it has been read."""
        return bool(self.slow_disk and real.reading and (real.messages.next_due_ms or 0) <= self.model.now_ms)

    def check_quiet(self, queue: ModelQueue) -> None:
        """Nothing waits for anything but clients and time."""
        if queue.ready:
            queue.choose()
            assert not [each for each in queue.served() if queue.credit(each) > 0], f"{queue.name} does not serve"
            assert not queue.getters
        if not queue.asked.at_least_once:
            assert not queue.overdue(self.model.now_ms), f"{queue.overdue(self.model.now_ms)} did not expire"
            assert not queue.pending, f"{queue.pending} are not dead-lettered"
        if queue.asked.drops and not queue.bytes_guessed:
            assert not queue.over_limit, f"{queue.name} is too long"

    def drain(self) -> None:
        """At the end: what is left comes out in order."""
        self.slow_disk = False
        self.settle_down()
        for number in range(CLIENTS):
            self.lose_client(number)
        self.settle_down()
        self.harness.clients[0] = self.new_client()
        for name in list(self.model.queues):
            while name in self.model.queues and self.model.queues[name].ready:
                self.get(0, name, True)
        self.holds()
