"""A rolling restart of three nodes from the version before to this one, under load: `python -m
tests.faults.upgrade.rolling --before ../before`.

What comes in: a checkout of the version before. What goes out: what clients saw, and what the logs say of versions;
the exit code is 1 if a confirmed message is lost or out of order, a client saw anything but the end of its connection
(320, or none at all) and the cancel of its consumer, or the nodes did not talk in both versions.
Rules: 1. Each node has a quorum queue and a classic one that were declared there. Each queue has a publisher with one
message in the air, one with `WINDOW` of them, and a consumer. What is not confirmed when a connection ends is sent
again over the next one, in order: so a message may come twice. 2. A client whose connection has ended, or whose
consumer was cancelled, connects where its queue is led by then, as a proxy would have it, asks for its queue there,
and does nothing else. 3. The next node is restarted when every copy is there again. 4. With `--back` the nodes go
back to the version before, one by one. 5. What a node of the version before refuses is counted apart if that version
does not let publishers wait for a leader that moves.
Not here: what is on the disk (`__main__.py`).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pika
from pamqp import commands
from pika.exceptions import AMQPConnectionError, AMQPError, ChannelClosedByBroker, NackError

from amqpd.management.control.socket import call

from ...clients.broker_process import REPOSITORY, BrokerProcess
from ...clients.wire import ClosedByBroker, Wire, described, publish_bytes
from ..cluster import Cluster

QUORUM, CLASSIC = "rolling-quorum-", "rolling-classic-"
"""names of queues, before that of their node"""
COPIES_DEADLINE_S = 300.0
PHASE_MESSAGES = 50
"""of each publisher, confirmed between two restarts"""
PHASE_DEADLINE_S = 300.0
WINDOW = 100
PACE_S, WINDOW_PACE_S = 0.02, 0.2
"""between two messages, and between two looks at a window: the nodes and all clients share a machine"""
AGAIN_S = 0.1
BACKLOG_MAX = 1_000
"""that a window's publisher lets gather: its consumer has the slower client library"""
ENDED_CODES = (320,)
"""CONNECTION_FORCED: the node is about to end, or the leader of a queue has moved"""
NOT_FOUND = 404
"""of its first question: between the look for the leader and the connection the queue went to another node"""
DECLARED = commands.Queue.DeclareOk
PERSISTENT = commands.Basic.Properties(delivery_mode=2)
WAITS_FOR_LEADERS = "amqpd/flow/leader_moves.py"
"""of a checkout in which a publish waits while the leader of its queue moves"""


class Client(threading.Thread):
    """One client of one queue, which connects again when its connection has ended."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.queue = cluster, queue
        self.ending = threading.Event()
        self.reconnects = self.moved = 0
        """because the connection has ended; because its consumer was cancelled"""
        self.errors: list[tuple[Path, str]] = []
        """with the checkout of the node that told them"""
        self.failure: BaseException | None = None
        self.at: BrokerProcess
        """where it is connected"""
        self.version = REPOSITORY
        """the checkout of that"""

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self.at = self.cluster.brokers[self._leader()]
                self.version = self.at.checkout
                try:
                    self.use()
                    self.moved += not self.ending.is_set()
                except AMQPConnectionError as error:
                    self.ended(getattr(error, "reply_code", None), repr(error))
                except TimeoutError as error:
                    self.note(f"no answer: {error!r}")
                except (ClosedByBroker, OSError) as error:
                    self.ended(None, repr(error))
                except ChannelClosedByBroker as error:
                    if error.reply_code != NOT_FOUND:
                        self.note(repr(error))
                except AMQPError as error:
                    self.note(repr(error))
        except BaseException as error:  # of the thread: whoever joins it raises it
            self.failure = error
            raise

    def _leader(self) -> str:
        if self.queue.startswith(CLASSIC):
            return self.queue.removeprefix(CLASSIC)
        return self.cluster.leader_of([self.queue])

    def ended(self, code: int | None, text: str) -> None:
        """The connection has; or there was none, since nobody listens there now."""
        self.reconnects += 1
        if code is not None and code not in ENDED_CODES:
            self.note(text)
        self.ending.wait(AGAIN_S)  # nobody tells when it listens again

    def note(self, text: str) -> None:
        """An error that a client has to handle."""
        self.errors.append((self.version, f"{type(self).__name__} of {self.queue} at {self.version.name}: {text}"))

    def use(self) -> None:
        """Until `ending`, over one connection. Raises AMQPError, ClosedByBroker, OSError."""
        raise NotImplementedError


class Consumer(Client):
    """A client that acknowledges what comes, and counts how often each number came."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(cluster, queue)
        self.came: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """by publisher"""
        self._next: Counter[str] = Counter()
        """behind the highest number that came, by publisher"""
        self.out_of_order = 0
        """that came for the first time behind a later one"""
        self.again_unmarked = 0
        """that came again without `redelivered`, though this client had acknowledged it: sent twice by the
        publisher"""

    def use(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.at.url)) as connection:
            channel = connection.channel()
            for method, _, body in channel.consume(self.queue, inactivity_timeout=0.5):
                if method is not None:
                    self._take(method, body)
                    channel.basic_ack(method.delivery_tag)
                if self.ending.is_set():
                    break
            channel.cancel()

    def _take(self, method: Any, body: bytes) -> None:
        publisher, text = body.decode().split()
        came, number = self.came[publisher], int(text)
        self.again_unmarked += came[number] > 0 and not method.redelivered
        self.out_of_order += not came[number] and number < self._next[publisher]
        self._next[publisher] = max(self._next[publisher], number + 1)
        came[number] += 1


class Publisher(Client):
    """A client that publishes numbers, each when the one before is confirmed."""

    def __init__(self, cluster: Cluster, consumer: Consumer) -> None:
        """`consumer`: of the queue that it publishes to."""
        super().__init__(cluster, consumer.queue)
        self.came = consumer.came[type(self).__name__]
        self.confirmed = self.refused = 0
        """numbers below this one are; how many publishes were refused"""

    def body(self, number: int) -> bytes:
        return f"{type(self).__name__} {number}".encode()

    def refuse(self, text: str) -> None:
        self.refused += 1
        self.note(text)

    def use(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.at.url)) as connection:
            channel = connection.channel()
            channel.queue_declare(self.queue, passive=True)
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            while not self.ending.wait(PACE_S):
                try:
                    channel.basic_publish("", self.queue, self.body(self.confirmed), persistent, mandatory=True)
                except NackError as error:
                    self.refuse(repr(error))
                    return
                self.confirmed += 1


class Window(Publisher):
    """A client that publishes numbers, and has `WINDOW` of them in the air."""

    def use(self) -> None:
        with Wire(self.at.port) as wire:
            wire.open()
            wire.open_channel()
            if not isinstance(wire.call(commands.Queue.Declare(queue=self.queue, passive=True), channel=1), DECLARED):
                return
            wire.call(commands.Confirm.Select(), channel=1)
            base = sent = self.confirmed
            early: set[int] = set()
            """confirmed above `confirmed`"""
            while not self.ending.wait(WINDOW_PACE_S):
                until = max(sent, min(self.confirmed + WINDOW, len(self.came) + BACKLOG_MAX))
                wire.send_bytes(
                    b"".join(
                        publish_bytes(1, "", self.queue, self.body(number), PERSISTENT, mandatory=True)
                        for number in range(sent, until)
                    )
                )
                sent = until
                if sent == self.confirmed:
                    continue
                _, method = wire.read_method()
                if isinstance(method, commands.Basic.Ack):
                    number = base + method.delivery_tag - 1
                    early.update(range(self.confirmed, number + 1) if method.multiple else (number,))
                    while self.confirmed in early:
                        early.remove(self.confirmed)
                        self.confirmed += 1
                elif isinstance(method, commands.Connection.Close):
                    wire.send(commands.Connection.CloseOk())
                    self.ended(method.reply_code, described(method))
                    return
                else:
                    self.refuse(described(method))
                    return


def wait_copies(cluster: Cluster) -> None:
    """Until every node lives, and what it leads has all of its copies. Raises AssertionError."""
    deadline_s, lacking = time.monotonic() + COPIES_DEADLINE_S, ["nobody was asked"]
    while lacking:
        assert time.monotonic() < deadline_s, f"copies are missing: {lacking}\n{cluster.log}"
        time.sleep(0.2)  # nobody tells when copies are there again
        facts = {name: call(each.data_dir, "status", {}, COPIES_DEADLINE_S) for name, each in cluster.brokers.items()}
        lacking = [
            f"{name}: {each}"
            for name, each in facts.items()
            if each is None or _lacks(each["cluster"], len(cluster.brokers))
        ]


def _lacks(facts: dict[str, Any], nodes: int) -> bool:
    return bool(len(facts["members"]) < nodes or facts["sources_under_replicated"] or facts["sources_cut_off"])


def wait_published(cluster: Cluster, publishers: list[Publisher]) -> None:
    """Until each one has `PHASE_MESSAGES` more confirmed. Raises AssertionError, or what a client has."""
    wanted = {each: each.confirmed + PHASE_MESSAGES for each in publishers}
    deadline_s = time.monotonic() + PHASE_DEADLINE_S
    while any(each.confirmed < count for each, count in wanted.items()):
        for each in publishers:
            if each.failure is not None:
                raise each.failure
        slow = [f"{each.queue}: {each.errors}" for each, count in wanted.items() if each.confirmed < count]
        assert time.monotonic() < deadline_s, f"no more is confirmed: {slow}\n{cluster.log}"
        time.sleep(0.1)  # publishers count, and tell nobody


def restarted(cluster: Cluster, checkout: Path, publishers: list[Publisher]) -> None:
    """One node after the other, in this checkout."""
    for name, broker in cluster.brokers.items():
        wait_published(cluster, publishers)
        broker.terminate()
        broker.checkout = checkout
        broker.start()
        wait_copies(cluster)
        confirmed = sum(each.confirmed for each in publishers)
        refused = sum(each.refused for each in publishers)
        print(f"{name} runs {checkout.name}: {confirmed} confirmed, {refused} refused", flush=True)
    wait_published(cluster, publishers)


def versions_of(cluster: Cluster) -> set[int]:
    """Of the links that nodes of this version had."""
    return {int(found) for broker in cluster.brokers.values() for found in re.findall(r"\bversion=(\d+)", broker.log)}


def roll(folder: Path, before: Path, *, back: bool = False) -> list[str]:
    """What is wrong."""
    cluster = Cluster(folder)
    for broker in cluster.brokers.values():
        broker.checkout = before
    quorum = {name: f"{QUORUM}{name}" for name in cluster.brokers}
    classic = {name: f"{CLASSIC}{name}" for name in cluster.brokers}
    queues = [*quorum.values(), *classic.values()]
    consumers = [Consumer(cluster, queue) for queue in queues]
    publishers = [kind(cluster, consumer) for consumer in consumers for kind in (Publisher, Window)]
    clients: list[Client] = [*publishers, *consumers]
    try:
        cluster.start()
        for name in cluster.brokers:
            cluster.declare_quorum(name, [quorum[name]])
            cluster.declare_classic(name, [classic[name]])
        wait_copies(cluster)
        for client in clients:
            client.start()
        restarted(cluster, REPOSITORY, publishers)
        spoken = versions_of(cluster)
        if back:
            restarted(cluster, before, publishers)
        wrong = _ended(publishers, consumers)
        wrong += _told(clients, before)
    finally:
        for client in clients:
            client.ending.set()
        cluster.close()
    if len(spoken) < 2:
        wrong.append(f"links had versions {sorted(spoken)}: both were expected")
    return wrong


def _ended(publishers: list[Publisher], consumers: list[Consumer]) -> list[str]:
    """All messages have come, or will not. What is wrong with them."""
    wrong: list[str] = []
    for publisher in publishers:
        publisher.ending.set()
    for publisher in publishers:
        publisher.join(PHASE_DEADLINE_S)
    for publisher in publishers:
        came = publisher.came
        deadline_s = time.monotonic() + PHASE_DEADLINE_S
        while any(number not in came for number in range(publisher.confirmed)) and time.monotonic() < deadline_s:
            time.sleep(0.5)  # the consumer counts, and tells nobody
        lost = [number for number in range(publisher.confirmed) if number not in came]
        if lost:
            wrong.append(f"{publisher.queue}: {len(lost)} confirmed messages are lost: {lost[:10]}")
        print(
            f"{publisher.queue}, {type(publisher).__name__}: {publisher.confirmed} confirmed, {len(lost)} lost, "
            f"{publisher.refused} refused, {publisher.reconnects} connections ended, "
            f"{sum(came.values()) - len(came)} came again",
            flush=True,
        )
    for consumer in consumers:
        consumer.ending.set()
        consumer.join(PHASE_DEADLINE_S)
        print(
            f"{consumer.queue}, Consumer: {consumer.reconnects} connections ended, {consumer.moved} cancels, "
            f"{consumer.again_unmarked} published again",
            flush=True,
        )
        if consumer.out_of_order:
            wrong.append(f"{consumer.queue}: {consumer.out_of_order} came out of order")
    return wrong


def _told(clients: list[Client], before: Path) -> list[str]:
    """What clients were told that is more than to connect again, and what they failed with."""
    wrong = [repr(each.failure) for each in clients if each.failure is not None]
    errors = [error for each in clients for error in each.errors]
    if not (before / WAITS_FOR_LEADERS).exists():
        of_before = [text for version, text in errors if version == before]
        errors = [error for error in errors if error[0] != before]
        print(f"{len(of_before)} publishes were refused by nodes of {before.name}, which lets none wait", flush=True)
    confirmed = sum(each.confirmed for each in clients if isinstance(each, Publisher))
    print(f"{confirmed} confirmed in all, {len(errors)} errors beyond a reconnect", flush=True)
    return wrong + [text for _, text in errors]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.upgrade.rolling",
        description="restart three nodes in another version",
    )
    parser.add_argument("--before", type=Path, required=True, help="the checkout of the version before")
    parser.add_argument("--back", action="store_true", help="and then back to it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amqpd-rolling-") as folder:
        wrong = roll(Path(folder), options.before.resolve(), back=options.back)
    print("\n".join(wrong or ["nothing is wrong"]), flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
