"""The queue of one source at its leader, and clients that use it: they publish, consume, and wait for confirms.

What comes in: what the leader has of the queue; what clients do. What goes out: what the journal is handed, by the
queue's own modules; what the law hears.
Rules: 1. Messages and segments are the shipped ones (`amqpd.queues.messages`), handed to the shipped journal. 2. A
confirm waits for the lane, as `session/durability.py` does.
Not here: channels and connections, which the simulation has not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amqpd.audit.kinds import ACKED, DEAD_REJECTED
from amqpd.journal.lane import Lane
from amqpd.journal.records import RecoveredQueue
from amqpd.queues.messages import Messages
from tests.replication.simulation.contents import run_of, values_of

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process


class SimulatedQueue:
    """Of one source, while it is led here."""

    def __init__(self, process: Process, source: int, epoch: int, found: RecoveredQueue | None) -> None:
        self._process = process
        self._law = process.cluster.law
        self.source = source
        self.epoch = epoch
        process.journal.assign(source, source)
        self.messages = Messages(source, process.journal, durable=True)
        self.values: dict[int, bytes] = {}
        """of what is not settled, by number"""
        if found is not None:
            self._recover(found)

    def _recover(self, found: RecoveredQueue) -> None:
        self.messages.recover(found)
        self.messages.store.next_seq = self._process.cluster.bugs.begins_at(self._process, found)
        for row in found.rows:
            # As when it is read: what is settled from now on is told by rows.
            self.messages.store.cut_at(row.first_seq, row.last_seq)
            settled = {seq for first, last in row.settled for seq in range(first, last + 1)}
            values = [
                value
                for each in self._process.disk.read(self.source, row.first_seq, row.last_seq, 1 << 30)
                for value in values_of(each)
            ]
            for seq, value in enumerate(values, row.first_seq):
                if seq not in settled:
                    self.values[seq] = value

    def publish(self, number: int) -> bytes:
        """The value of the message."""
        process, store = self._process, self.messages.store
        store.append(run_of(number), True, int(process.cluster.clock.now_ms))
        seq, value = store.next_seq - 1, b"%08d" % number
        self.values[seq] = value
        self._law.gives(self.source, seq, value)
        return value

    def consume(self, count: int) -> None:
        """Some of the messages are delivered and settled, mostly in order."""
        chance = self._process.cluster.clock.chance
        seqs = list(self.values)[: count + 3]
        for seq in chance.sample(seqs, min(count, len(seqs))):
            self._law.settles(self.source, seq, self.values.pop(seq))
            self.messages.store.settle(seq, seq, cause=ACKED)
        if chance.random() < 0.2:
            self._process.journal.delivered(self.source, self.messages.store.next_seq)

    def let_go(self, target: SimulatedQueue, number: int) -> None:
        """The oldest message is rejected, and goes on to the target as a dead letter."""
        seq = next(iter(self.values), None)
        if seq is not None:
            dead_letter = target.publish(number)
            del self.values[seq]
            self._law.goes_on(self.source, seq, self.epoch, target.source, dead_letter)
            self._process.cluster.clock.counts["dead letter to another source"] += 1
            self.messages.store.settle(
                seq, seq, cause=self._process.cluster.bugs.cause_of_a_dead_letter(DEAD_REJECTED)
            )


class Confirms:
    """What the clients of one process wait for."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: dict[Lane, deque[tuple[int, int, bytes]]] = {}
        """lane -> number that it has to report, source, value"""

    def wait(self, source: int, value: bytes) -> None:
        lane = self._process.journal.lane_of(source)
        self._waiting.setdefault(lane, deque()).append((lane.gathering, source, value))

    def reported(self, lane: Lane) -> None:
        """See `Node.reported`."""
        waiting, cluster = self._waiting.get(lane, ()), self._process.cluster
        while waiting and waiting[0][0] <= lane.reported:
            _, source, value = waiting.popleft()
            cluster.clock.counts["confirmed"] += 1
            cluster.clock.counts["refused, then confirmed by a resend"] += value in cluster.law.sent_again
            cluster.law.confirm(source, value)

    def abandon(self, lane: Lane) -> None:
        """Their connections are closed: nobody knows what became of that."""
        abandoned, cluster = self._waiting.pop(lane, ()), self._process.cluster
        cluster.clock.counts["outcome unknown"] += len(abandoned)
        if cluster.bugs.refuses_what_is_unknown:
            for _, source, value in abandoned:
                cluster.refuse(source, int(value))
