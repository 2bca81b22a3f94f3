"""Clients that ask at each forwarder, again and again, whether one message is confirmed there.

What comes in: a cluster, the history of a publisher for each forwarder. What goes out: when a message that was sent
after a given moment was first confirmed, and where; the histories, for the checker.
Rules: 1. One message at a time; the next one when the broker has answered it, or has ended the connection. 2. An
answer that does not come within `ANSWER_S` is a violation: a client must not wait for ever, at whichever side of a
cut it is. 3. What a forwarder confirms counts wherever it is: the checker looks for it in the queue.
Not here: publishers at full speed (`workload.py`), the judgement (`checker.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import NamedTuple

from pamqp import commands

from ..clients.wire import METHOD, ClosedByBroker, Wire, decode_method, described, publish_bytes
from .cluster import Cluster
from .history import CONFIRMED, REFUSED, PublisherHistory
from .rabbitmq_cluster import RabbitMQCluster
from .workload import PERSISTENT, content_of

QUEUE = "probes"
"""whose order is no matter: what one connection sent may be read after what a later one did"""
ANSWER_S = 60.0
"""longer than any fault and what follows it"""
PACE_S = 0.05


class Confirmed(NamedTuple):
    """A message at a forwarder."""

    sent_s: float
    confirmed_s: float
    forwarder: str


class Probe(threading.Thread):
    """At one forwarder."""

    def __init__(
        self, cluster: Cluster | RabbitMQCluster, forwarder: str, history: PublisherHistory, probes: Probes
    ) -> None:
        super().__init__(daemon=True, name=f"probe of {probes.queue} at {forwarder}")
        self._cluster, self._forwarder = cluster, forwarder
        self._history, self._probes = history, probes

    def run(self) -> None:
        with self._cluster.inside(self._forwarder):
            while not self._probes.ended.wait(PACE_S):
                try:
                    self._ask(self._cluster.brokers[self._forwarder].port)
                except TimeoutError:
                    self._history.violations.append(f"{self.name}: no answer within {ANSWER_S} s")
                except (ClosedByBroker, OSError):
                    pass  # it is killed, or the leader has moved: asked again over another connection
                except Exception as error:  # noqa: BLE001 - it is written down, and fails the test
                    self._history.violations.append(f"{self.name} ended with {error!r}")
                    return

    def _ask(self, port: int) -> None:
        """Over one connection, until the forwarder does not confirm."""
        with Wire(port, timeout_s=ANSWER_S) as wire:
            wire.open()
            wire.open_channel()
            wire.call(commands.Confirm.Select(), channel=1)
            while not self._probes.ended.wait(PACE_S):
                sequence = self._history.attempt(1, time.time_ns() // 1_000_000)
                sent_s = time.monotonic()
                content = content_of(self._history.name, sequence)
                wire.send_bytes(publish_bytes(1, "", self._probes.queue, content, PERSISTENT))
                method = self._answer(wire)
                if isinstance(method, commands.Basic.Ack):
                    self._history.resolve(sequence, sequence, CONFIRMED)
                    self._probes.note(Confirmed(sent_s, time.monotonic(), self._forwarder))
                elif isinstance(method, commands.Basic.Nack):
                    self._history.resolve(sequence, sequence, REFUSED)
                else:
                    raise ClosedByBroker(described(method))

    def _answer(self, wire: Wire) -> object:
        while True:
            kind, _, payload = wire.read_frame()
            if kind == METHOD:
                return decode_method(payload)


class Probes:
    """One at each forwarder, for this queue."""

    def __init__(self, cluster: Cluster | RabbitMQCluster, queue: str = QUEUE) -> None:
        self.queue = queue
        self.histories = {name: PublisherHistory(f"{queue}-{name}", (queue,)) for name in cluster.brokers}
        self.ended = threading.Event()
        self._confirmed: list[Confirmed] = []
        self._news = threading.Condition()
        self._threads = [Probe(cluster, name, history, self) for name, history in self.histories.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Returns when each has its last answer."""
        self.ended.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)
            assert not thread.is_alive(), thread.name

    def note(self, confirmed: Confirmed) -> None:
        with self._news:
            self._confirmed.append(confirmed)
            self._news.notify_all()

    def between(self, begin_s: float, end_s: float) -> list[Confirmed]:
        """Those that were sent and confirmed in this time."""
        with self._news:
            return [each for each in self._confirmed if begin_s < each.sent_s and each.confirmed_s < end_s]

    def first_after(self, moment_s: float, deadline_s: float, at: Collection[str] | None = None) -> Confirmed:
        """The first that was confirmed of those that were sent later, at one of these; waited for. Raises
        AssertionError."""

        def found() -> Confirmed | None:
            return next((each for each in self._confirmed if each.sent_s > moment_s and counts(each.forwarder)), None)

        def counts(forwarder: str) -> bool:
            return at is None or forwarder in at

        with self._news:
            self._news.wait_for(found, deadline_s)
            confirmed = found()
        assert confirmed is not None, f"nothing is confirmed anywhere within {deadline_s} s"
        return confirmed
