"""A rolling restart of three nodes from the version before to this one, under load: `python -m
tests.faults.upgrade.rolling --before ../before`.

What comes in: a checkout of the version before. What goes out: what clients saw, and what the logs say of versions;
the exit code is 1 if a confirmed message is lost, a client saw an error other than the end of its connection, or the
nodes did not talk in both versions.
Rules: 1. A publisher has one message in the air, waits for its confirm, and sends it again over the next connection
if that does not come, or is a refusal, as while its queue goes to another node: so a message may come twice, and none
is unknown at the end. 2. A client whose connection has
ended connects where its queue is led by then, as a proxy would have it, and does nothing else. 3. The next node is
restarted when every copy is there again. 4. With `--back` the nodes go back to the version before, one by one.
Not here: what is on the disk (`__main__.py`).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPConnectionError, AMQPError, NackError

from amqpd.management.control.socket import call

from ...clients.broker_process import REPOSITORY
from ..cluster import Cluster

QUEUES = ("rolling1", "rolling2")
COPIES_DEADLINE_S = 300.0
PHASE_MESSAGES = 50
"""of each publisher, confirmed between two restarts"""
PHASE_DEADLINE_S = 300.0
ENDED_CODES = (320,)
"""CONNECTION_FORCED: the node is about to end"""


class Client(threading.Thread):
    """One client of one queue, which connects again when its connection has ended."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.queue = cluster, queue
        self.ending = threading.Event()
        self.reconnects = self.moved = 0
        """because the connection has ended; because the queue is led elsewhere"""
        self.errors: list[str] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                url = self.cluster.brokers[self.cluster.leader_of([self.queue])].url
                try:
                    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                        self.work(connection.channel())
                    self.moved += not self.ending.is_set()
                except AMQPConnectionError as error:
                    self._ended(error)
                except AMQPError as error:
                    self.errors.append(f"{type(self).__name__} of {self.queue}: {error!r}")
        except BaseException as error:  # of the thread: whoever joins it raises it
            self.failure = error
            raise

    def _ended(self, error: AMQPConnectionError) -> None:
        self.reconnects += 1
        code = getattr(error, "reply_code", None)
        if code is not None and code not in ENDED_CODES:
            self.errors.append(f"{type(self).__name__} of {self.queue}: {error!r}")

    def work(self, channel: Any) -> None:
        """Until `ending`. Raises AMQPError."""
        raise NotImplementedError


class Publisher(Client):
    """A client that publishes numbers, the next one when the one before is confirmed."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(cluster, queue)
        self.confirmed = self.refused = 0
        """numbers below this one are; how often the next one was refused first"""

    def work(self, channel: Any) -> None:
        channel.confirm_delivery()
        while not self.ending.is_set():
            body = b"%d" % self.confirmed
            try:
                channel.basic_publish("", self.queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
            except NackError:
                self.refused += 1
                return
            self.confirmed += 1


class Consumer(Client):
    """A client that acknowledges what comes, and counts how often each number came."""

    def __init__(self, cluster: Cluster, queue: str) -> None:
        super().__init__(cluster, queue)
        self.came: Counter[int] = Counter()
        self.again_unmarked = 0
        """that came again without `redelivered`, though this client had acknowledged it: sent twice by the
        publisher"""

    def work(self, channel: Any) -> None:
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.5):
            if method is not None:
                number = int(body)
                self.again_unmarked += self.came[number] > 0 and not method.redelivered
                self.came[number] += 1
                channel.basic_ack(method.delivery_tag)
            if self.ending.is_set():
                break
        channel.cancel()


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


def wait_published(publishers: list[Publisher]) -> None:
    """Until each one has `PHASE_MESSAGES` more confirmed. Raises AssertionError, or what a client has."""
    wanted = {each: each.confirmed + PHASE_MESSAGES for each in publishers}
    deadline_s = time.monotonic() + PHASE_DEADLINE_S
    while any(each.confirmed < count for each, count in wanted.items()):
        for each in publishers:
            if each.failure is not None:
                raise each.failure
        assert time.monotonic() < deadline_s, f"no more is confirmed: {[each.errors for each in publishers]}"
        time.sleep(0.1)  # publishers count, and tell nobody


def restarted(cluster: Cluster, checkout: Path, publishers: list[Publisher]) -> None:
    """One node after the other, in this checkout."""
    for name, broker in cluster.brokers.items():
        wait_published(publishers)
        broker.terminate()
        broker.checkout = checkout
        broker.start()
        wait_copies(cluster)
        print(f"{name} runs {checkout.name}: {[each.confirmed for each in publishers]} confirmed", flush=True)
    wait_published(publishers)


def versions_of(cluster: Cluster) -> set[int]:
    """Of the links that nodes of this version had."""
    return {int(found) for broker in cluster.brokers.values() for found in re.findall(r"\bversion=(\d+)", broker.log)}


def roll(folder: Path, before: Path, *, back: bool = False) -> list[str]:
    """What is wrong."""
    cluster = Cluster(folder)
    for broker in cluster.brokers.values():
        broker.checkout = before
    publishers = [Publisher(cluster, queue) for queue in QUEUES]
    consumers = [Consumer(cluster, queue) for queue in QUEUES]
    clients: list[Client] = [*publishers, *consumers]
    try:
        cluster.start()
        cluster.declare_quorum("a", QUEUES)
        wait_copies(cluster)
        for client in clients:
            client.start()
        restarted(cluster, REPOSITORY, publishers)
        spoken = versions_of(cluster)
        if back:
            restarted(cluster, before, publishers)
        wrong = _ended(publishers, consumers)
    finally:
        for client in clients:
            client.ending.set()
        cluster.close()
    if len(spoken) < 2:
        wrong.append(f"links had versions {sorted(spoken)}: both were expected")
    return wrong


def _ended(publishers: list[Publisher], consumers: list[Consumer]) -> list[str]:
    wrong: list[str] = []
    for publisher in publishers:
        publisher.ending.set()
        publisher.join(PHASE_DEADLINE_S)
    for publisher, consumer in zip(publishers, consumers, strict=True):
        deadline_s = time.monotonic() + PHASE_DEADLINE_S
        confirmed = range(publisher.confirmed)
        while any(number not in consumer.came for number in confirmed) and time.monotonic() < deadline_s:
            time.sleep(0.5)  # the consumer counts, and tells nobody
        lost = [number for number in confirmed if number not in consumer.came]
        consumer.ending.set()
        consumer.join(PHASE_DEADLINE_S)
        if lost:
            wrong.append(f"{publisher.queue}: {len(lost)} of {len(confirmed)} confirmed messages lost: {lost[:10]}")
        again = sum(count - 1 for count in consumer.came.values())
        print(
            f"{publisher.queue}: {len(confirmed)} confirmed, {len(lost)} lost, {again} came again "
            f"({consumer.again_unmarked} of them published again), {publisher.refused} refused and sent again, "
            f"{publisher.reconnects} and {consumer.reconnects} connections ended, {publisher.moved} and "
            f"{consumer.moved} followed their queue",
            flush=True,
        )
        wrong += publisher.errors + consumer.errors
        wrong += [repr(each.failure) for each in (publisher, consumer) if each.failure is not None]
    return wrong


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
