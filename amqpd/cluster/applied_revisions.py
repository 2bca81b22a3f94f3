"""How far this node has applied the metadata, said to the other nodes; what they say of it; and what follows for
answers and publishes here.

What comes in: events of data links and what is said over them; the roster, when it changes; that more was applied;
answers that wait (`when_known`); the time. What goes out: questions and reports, over data links; reads of the store;
the answers whose sync point has come; whether this node is current, when that changes.
Rules: 1. Each node answers who asks it, whatever its settings; one with `cluster_remote_queues` asks, and waits. 2.
What was applied in one round of tasks is reported once (`flush`). 3. A node asks some times in a lease, and at once
when it finds that it is not current; the store, too, while it is not, or soon will not be. 4. For `KNOWN_LEASES`
after its start a node says that all may have asked it: it does not know what its last process answered. 5. What a
peer says of another generation of the store says nothing here. 6. A peer that lies loses its link.
Not here: the two machines (`sync_point.py`, `currency.py`), the links (`data_links.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from amqpd.cluster.currency import Currency
from amqpd.cluster.roster import Roster
from amqpd.cluster.sync_point import KNOWN_LEASES, Registered, SyncPoint
from amqpd.node.cluster import Knowledge
from amqpd.peers.formats import NAMES_MAX
from amqpd.peers.messages import AppliedRevision, AskRevision

QUESTIONS = 5
"""in a lease time: all of them are lost before a node is not current"""
READ_LEASES = 0.5
"""Before the end of its currency a node asks the store: more than two questions were not answered by a majority."""
AGAIN_LEASES = 0.05
"""Between two attempts of a node that is not current."""


class RevisionLink(Protocol):
    """A data link, as this knows it (`data_links.DataLink`)."""

    forwarder: str
    """the peer's name"""

    def send(self, message: AskRevision | AppliedRevision) -> None: ...

    def close(self, why: str) -> None: ...


class RevisionsHost(Protocol):
    """The node, as this asks it. Times are of the boot-time clock."""

    @property
    def now_s(self) -> float: ...

    @property
    def applied_revision(self) -> int:
        """Up to which the topology and the roster have everything."""
        ...

    @property
    def topology_revision(self) -> int:
        """Up to which the topology has everything."""
        ...

    def has_news(self) -> None:
        """Call `flush` soon, when all that is ready now has been done."""

    def read_store(self, ended: Callable[[int | None], None]) -> None:
        """Ask the store for its revision, linearizably. `ended` is told it; None: it does not answer."""

    def answer(self, answer: Callable[[], None]) -> None:
        """Carry out an answer that has waited."""

    def set_current(self, current: bool) -> None:
        """From now on publishes are taken, or wait."""


@dataclass(slots=True)
class RevisionCounters:
    """Counts of one process since it began."""

    not_current: int = 0
    """how often it was found not to be current"""
    liars: int = 0
    """peers that lost their links for what they said"""


class AppliedRevisions(Knowledge):
    """The revisions of the metadata that the nodes of a cluster have applied, as one of them knows them."""

    def __init__(self, name: str, lease_s: float, host: RevisionsHost, is_on: bool) -> None:
        """`is_on`: clients of this node use queues of others (`cluster_remote_queues`): its answers wait for these,
        and its publishes until it is current."""
        self._name, self._lease_s, self._host, self.is_on = name, lease_s, host, is_on
        self.generation = ""
        """of the metadata store, once it is known"""
        self._began_s = now_s = host.now_s
        self.counters = RevisionCounters()
        self.sync_point = SyncPoint(name, lease_s, now_s)
        self.currency = Currency(name, lease_s)
        self._is_current = not is_on
        self._to: dict[str, RevisionLink] = {}
        """by peer, links that this node has dialed: it asks over them"""
        self._reported: dict[RevisionLink, int] = {}
        """links that were accepted, and the revision that was reported over them last"""
        self._asked_s: dict[str, float] = {}
        """by peer, when it has asked last"""
        self._next_s = self._tried_s = now_s
        self._reads = False

    # `Knowledge`

    @property
    def matters(self) -> bool:
        return self.is_on

    @property
    def has_all(self) -> bool:
        return not self.is_on or self.sync_point.is_known(self._host.topology_revision, self._host.now_s)

    def when_known(self, answer: Callable[[], None]) -> None:
        self.sync_point.wait(self._host.topology_revision, answer)
        self._host.has_news()

    # The roster

    def roster_changed(self, roster: Roster, reports: Callable[[str], bool]) -> None:
        """`reports`: whether the node of this name may report, as far as its version was heard."""
        voters = frozenset([name for name in roster.known if reports(name)])
        members = frozenset([name for name in roster.members if reports(name)])
        ended = frozenset(
            [
                name
                for name, known in roster.known.items()
                if name in roster.lapsed and roster.lapsed[name].incarnation < known.incarnation
            ]
        )
        self.sync_point.nodes_are(Registered(voters, members, ended), roster.revision, self._host.now_s)
        self.currency.voters_are(voters)
        self._host.has_news()

    # Data links

    def dialed(self, link: RevisionLink) -> None:
        self._to[link.forwarder] = link
        self.sync_point.linked(link.forwarder)
        if self.is_on:
            self._ask()

    def lost(self, peer: str) -> None:
        self._to.pop(peer, None)
        self.sync_point.unlinked(peer, self._host.now_s)
        self._host.has_news()

    def accepted(self, link: RevisionLink) -> None:
        self._reported[link] = 0
        self._host.has_news()

    def left(self, link: RevisionLink) -> None:
        self._reported.pop(link, None)

    def asked(self, link: RevisionLink, message: AskRevision) -> None:
        """A peer asks."""
        self._asked_s[link.forwarder] = self._host.now_s
        self._report(link, message.question)

    def heard(self, link: RevisionLink, message: AppliedRevision) -> None:
        """A peer that this node has dialed says how far it is."""
        if message.generation != self.generation:
            return
        name, now_s = link.forwarder, self._host.now_s
        if not self.currency.answered(name, message.question, message.revision, now_s):
            self.counters.liars += 1
            link.close(f"it answers question {message.question}, which was not asked")
            return
        self.sync_point.reported(name, message.revision, message.asked_by)
        self._host.has_news()
        self.look()

    def _report(self, link: RevisionLink, question: int = 0) -> None:
        revision, now_s = self._host.applied_revision, self._host.now_s
        self._reported[link] = revision
        link.send(AppliedRevision(question, revision, self.generation, self._asked_by(now_s)))

    def _asked_by(self, now_s: float) -> tuple[str, ...]:
        known_s = KNOWN_LEASES * self._lease_s
        if now_s - self._began_s < known_s:
            names = {*self.sync_point.registered.voters, *self._asked_s}
        else:
            self._asked_s = {name: at_s for name, at_s in self._asked_s.items() if now_s - at_s <= known_s}
            names = {*self._asked_s}
        return tuple(sorted(names)[:NAMES_MAX])

    def _ask(self) -> None:
        self._next_s = (now_s := self._host.now_s) + self._lease_s / QUESTIONS
        question = AskRevision(self.currency.ask(now_s))
        for link in self._to.values():
            link.send(question)

    # The time, and what was applied

    def flush(self) -> None:
        """Report what was applied, and let answers go out."""
        revision, now_s = self._host.applied_revision, self._host.now_s
        for link, reported in self._reported.items():
            if reported < revision:
                self._report(link)
        self.sync_point.reported(self._name, revision, self._asked_by(now_s))
        for answer in self.sync_point.due(now_s):
            self._host.answer(answer)
        self.look()

    def beat(self) -> None:
        """Some times in a lease."""
        if self.is_on:
            now_s = self._host.now_s
            if now_s >= self._next_s:
                self._ask()
            if not self._look(now_s) or self.currency.until_s - now_s < READ_LEASES * self._lease_s:
                self._read(now_s)
        self.flush()

    def look(self) -> None:
        """Tell the node whether it is current, if that has changed; called before each publish that was read."""
        if self.is_on:
            self._look(self._host.now_s)

    def _look(self, now_s: float) -> bool:
        current = self.currency.is_current(self._host.applied_revision, now_s)
        if current is not self._is_current:
            self._is_current = current
            self._host.set_current(current)
            self.counters.not_current += not current
        if not current and now_s - self._tried_s >= AGAIN_LEASES * self._lease_s:
            self._tried_s = now_s
            self._ask()
            self._read(now_s)
        return current

    def _read(self, began_s: float) -> None:
        if self._reads:
            return
        self._reads = True

        def ended(revision: int | None) -> None:
            self._reads = False
            if revision is not None:
                for peer in self.currency.store_read(began_s, revision):
                    self.counters.liars += 1
                    if peer in self._to:
                        self._to[peer].close("it says that it has applied a revision that the store has not reached")
                self.look()

        self._host.read_store(ended)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "current": self._is_current,
            "not_current_total": self.counters.not_current,
            "changes_unknown_to": self.sync_point.missing(self._host.now_s),
            "changes_unknown": len(self.sync_point),
        }
