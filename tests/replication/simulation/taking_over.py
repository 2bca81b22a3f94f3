"""How a simulated forwarder becomes a home, and what it answers others that want to.

Not here: what it does as a home (`node.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amqpd.replication import seal as seals
from amqpd.replication.entry import LogEntry, Position
from amqpd.replication.receiver import State
from amqpd.replication.replica import Contradiction, Fenced, Write
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import (
    Ask,
    Ballot,
    Fetch,
    FetchState,
    Phase,
    Request,
    SourceRecord,
    Step,
    Swap,
    TakeOver,
)

if TYPE_CHECKING:
    from tests.replication.simulation.node import Node

ATTEMPT_MS = 400
"""how long a take-over is waited for"""
FETCHED_MAX = 3
"""entries of one answer"""


class TakeOvers:
    """Of one life of a forwarder. What it answers to others is here, too."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._cluster = node.cluster
        self._name = node.name
        self.attempts: dict[int, TakeOver] = {}

    def begin(self, source: int) -> None:
        """One attempt."""
        record = self._cluster.store.records[source]
        if self._name not in record.members or source in self.attempts:
            return
        self._cluster.clock.counts["take-over begun"] += 1
        attempt = self.attempts[source] = TakeOver(self._name, self._node.life, self._node.replicas, record)
        self._cluster.clock.after(ATTEMPT_MS, ATTEMPT_MS, self._node.of_this_life(lambda: self._give_up(attempt)))
        self._go_on(attempt, attempt.begin())

    def _goes_on(self, attempt: TakeOver) -> bool:
        """An answer may come to a question of an earlier life."""
        return self._node.take_overs is self and self.attempts.get(attempt.source) is attempt

    def _give_up(self, attempt: TakeOver) -> None:
        if self._goes_on(attempt):
            attempt.failed()
            self._go_on(attempt, None)

    def _go_on(self, attempt: TakeOver, step: Step | None) -> None:
        if not self._goes_on(attempt):
            return
        cluster, source = self._cluster, attempt.source
        if isinstance(step, Ask):
            for member in attempt.record.members:
                self._ask(attempt, cluster.nodes[member])
        elif isinstance(step, Swap):
            back = self._node.of_this_life
            cluster.store.swap(step.record, lambda record: back(lambda: self._swapped(attempt, record))())
        elif isinstance(step, Request):
            for member in attempt.record.members:
                if member != self._name:
                    self._request(attempt, cluster.nodes[member], step.seal)
        elif isinstance(step, Fetch):
            self._fetch(attempt, cluster.nodes[step.member], step.after)
        elif isinstance(step, FetchState):
            self._fetch_state(attempt, cluster.nodes[step.member], step.after)
        if attempt.phase is Phase.LOST:
            cluster.clock.counts["take-over lost"] += 1
            del self.attempts[source]
        elif attempt.phase is Phase.WON:
            del self.attempts[source]
            if self._node.replicas[source].seal == attempt.seal:
                cluster.clock.counts["take-over won"] += 1
                self._node.reign(attempt.record)

    def _swapped(self, attempt: TakeOver, record: SourceRecord | None) -> None:
        if not self._goes_on(attempt):
            return
        # It may have answered the old home again since it was asked whether it would seal.
        left_ms = self._cluster.bugs.own_seal_waits(self._node, attempt.source) - self._cluster.clock.now_ms
        if record is not None and left_ms > 0:
            self._cluster.clock.counts["own seal put off"] += 1
            later = self._node.of_this_life(lambda: self._swapped(attempt, record))
            self._cluster.clock.after(left_ms, left_ms, later)
            return
        writes: list[Write] = []
        step = attempt.swapped(record, writes)
        replica, seal = self._node.replicas[attempt.source], attempt.seal
        ballot = Ballot(
            step is not None, replica.seal, replica.log.last, self._node.disk.generation, replica.log.base
        )
        self._node.write(
            writes, self._node.of_this_life(lambda: self._go_on(attempt, attempt.sealed(self._name, seal, ballot)))
        )
        self._go_on(attempt, step)

    def _ask(self, attempt: TakeOver, member: Node) -> None:
        def come() -> None:
            if member.up:
                granted = member.take_overs.waits_until(attempt.source, self._name) <= self._cluster.clock.now_ms
                ballot = _ballot(member, attempt.source, granted)
                back(lambda: self._go_on(attempt, attempt.would(member.name, ballot)))

        back = self._way_back(member)
        self._cluster.network.message(self._name, member.name, lambda: member.run(come))

    def _request(self, attempt: TakeOver, member: Node, seal: Seal) -> None:
        def come() -> None:
            if not member.up:
                return
            left_ms = member.take_overs.waits_until(attempt.source, self._name) - self._cluster.clock.now_ms
            if left_ms > 0:
                self._cluster.clock.counts["seal put off"] += 1
                self._cluster.clock.after(left_ms, left_ms, lambda: member.run(come))
                return
            writes: list[Write] = []
            granted = member.cluster.bugs.votes(member, attempt.source, seal, writes)
            ballot = _ballot(member, attempt.source, granted)
            if not granted:
                self._cluster.clock.counts["seal refused"] += 1
            ballot = self._cluster.bugs.ballot(member, attempt.source, ballot)
            member.write(
                writes, lambda: back(lambda: self._go_on(attempt, attempt.sealed(member.name, seal, ballot)))
            )

        back = self._way_back(member)
        self._cluster.network.message(self._name, member.name, lambda: member.run(come))

    def waits_until(self, source: int, asks: str) -> float:
        """Until when it seals no other epoch of the source. A home that asks itself knows that its reign ends."""
        seal = self._node.replicas[source].seal
        if seal == seals.NONE or seal.forwarder in (self._name, asks):
            return 0.0
        if self._cluster.fast_takeover or seal.life <= self._node.gone.get(seal.forwarder, 0):
            return 0.0
        links = [
            link
            for link in self._node.incoming
            if any(each.follows(source, seal) for each in link.receivers.values())
        ]
        return self._node.seal_delay.ends_s(source, seal, links)

    def _fetch(self, attempt: TakeOver, member: Node, after: Position) -> None:
        def come() -> None:
            if member.up:
                entries = member.memory[attempt.source].entries_after(after)[:FETCHED_MAX]
                member.write([], lambda: back(lambda: self._fetched(attempt, member.name, entries)))

        back = self._way_back(member)
        self._cluster.network.message(self._name, member.name, lambda: member.run(come))

    def _fetch_state(self, attempt: TakeOver, member: Node, after: Position) -> None:
        def come() -> None:
            if member.up:
                member.write([], lambda: None)
                kept = member.memory[attempt.source]
                parts = kept.state_parts(after)
                states = [
                    State(attempt.source, 1, kept.base, part, at == 0, at == len(parts) - 1, after)
                    for at, part in enumerate(parts)
                ]
                back(lambda: self._fetched_state(attempt, member.name, states))

        back = self._way_back(member)
        self._cluster.network.message(self._name, member.name, lambda: member.run(come))

    def _fetched_state(self, attempt: TakeOver, member: str, states: list[State]) -> None:
        if not self._goes_on(attempt):
            return
        self._cluster.clock.counts["state fetched"] += 1
        writes: list[Write] = []
        step = None
        try:
            for state in states:
                step = attempt.fetched_state(member, state, writes) or step
        except Fenced as fenced:
            attempt.failed(str(fenced))
        self._node.write(writes, lambda: None)
        self._go_on(attempt, step)

    def _fetched(self, attempt: TakeOver, member: str, entries: list[LogEntry]) -> None:
        if not self._goes_on(attempt):
            return
        self._cluster.clock.counts["entries fetched"] += 1
        writes: list[Write] = []
        try:
            step = attempt.fetched(member, entries, writes)
        except (Fenced, Contradiction) as error:
            if isinstance(error, Contradiction):
                self._cluster.contradicted(self._name, [attempt.source])
            attempt.failed(str(error))
            step = None
        self._node.write(writes, lambda: None)
        self._go_on(attempt, step)

    def _way_back(self, member: Node) -> Callable[[Callable[[], None]], None]:
        """What a member answers, when and if it comes."""
        mine = self._node.of_this_life
        return lambda what: self._cluster.network.message(member.name, self._name, mine(what))


def _ballot(member: Node, source: int, granted: bool) -> Ballot:
    """What it says when all that it handed to its disk is there."""
    replica = member.replicas[source]
    return Ballot(granted, replica.seal, replica.log.last, member.disk.generation, replica.log.base)
