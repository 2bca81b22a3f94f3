"""When a change to the topology is answered, and who may publish meanwhile: rule by rule, and in any order of events.

What is verified: each rule of `cluster/sync_point.py` and `cluster/currency.py` by a case of its own; in random
worlds the law: after the answer every publish that starts later, at any node, is routed with the change; and that
worlds find mistakes that are planted. Not verified here: real nodes (`tests/faults/test_sync_point.py`), bytes
(`tests/peers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import pytest

from amqpd.cluster.applied_revisions import AppliedRevisions
from amqpd.cluster.currency import QUESTIONS_MAX, Currency
from amqpd.cluster.sync_point import GIVEN_UP_LEASES, KNOWN_LEASES, Registered, SyncPoint, blocking
from amqpd.peers.messages import AppliedRevision, AskRevision
from amqpd.replication.commit import majority

from .revision_world import World

LEASE_S, NOW_S = 2.0, 1_000.0
KNOWN_S, GIVEN_UP_S = KNOWN_LEASES * LEASE_S, GIVEN_UP_LEASES * LEASE_S
SEEDS, STEPS = 12, 1_000


class Declarer:
    """The sync point of node a, of which a test tells what it hears."""

    def __init__(self, voters: str = "abc", members: str = "", ended: str = "") -> None:
        self.machine = SyncPoint("a", LEASE_S, NOW_S)
        self.answered: list[int] = []
        self.nodes_are(voters, members or voters, ended)
        for name in (members or voters).replace("a", ""):
            self.machine.linked(name)

    def nodes_are(self, voters: str, members: str, ended: str = "", revision: int = 1, now_s: float = NOW_S) -> None:
        registered = Registered(frozenset(voters), frozenset(members), frozenset(ended))
        self.machine.nodes_are(registered, revision, now_s)

    def report(self, revision: int, *names: str, asked_by: str = "") -> None:
        for name in names:
            self.machine.reported(name, revision, frozenset(asked_by))

    def wait(self, *revisions: int) -> None:
        for revision in revisions:
            self.machine.wait(revision, partial(self.answered.append, revision))

    def due(self, now_s: float = NOW_S) -> list[int]:
        """Revisions that were answered by now."""
        for answer in self.machine.due(now_s):
            answer()
        return self.answered


def test_each_majority_has_one_of_those_that_block() -> None:
    for count in range(1, 20):
        assert count - blocking(count) < majority(count)
        assert count - (blocking(count) - 1) >= majority(count)


def test_the_answer_goes_out_when_all_have_reported() -> None:
    made = Declarer()
    made.wait(5, 6)
    made.report(5, "a", "b")
    assert made.due() == []
    assert made.machine.missing(NOW_S) == ["c"]
    made.report(5, "c")
    assert made.due() == [5]
    made.report(6, "a", "b", "c")
    assert (made.due(), made.machine.known, len(made.machine)) == ([5, 6], 6, 0)


def test_the_answer_goes_out_some_time_after_those_that_block_have_reported() -> None:
    made = Declarer()
    made.wait(5)
    made.report(5, "a")
    made.due()
    assert made.due(NOW_S + KNOWN_S) == [], "one of three blocks nothing"
    made.report(5, "b")
    assert made.due(NOW_S + KNOWN_S) == []
    assert made.due(NOW_S + 2 * KNOWN_S - 0.01) == []
    assert made.due(NOW_S + 2 * KNOWN_S + 0.01) == [5]


def test_a_later_revision_is_no_sooner_known() -> None:
    made = Declarer()
    made.wait(5, 7)
    made.report(6, "a", "b")
    assert made.due() == []
    assert made.due(NOW_S + KNOWN_S + 0.01) == [5]
    made.report(7, "b", "c")
    assert made.due(NOW_S + 2 * KNOWN_S) == [5], "this node has not applied it, and cannot know who the voters are"
    made.report(7, "a")
    assert made.due(NOW_S + 2 * KNOWN_S) == [5, 7]


def test_a_node_that_lives_and_has_no_link_is_waited_for() -> None:
    made = Declarer()
    made.machine.unlinked("c", NOW_S)
    made.wait(5)
    made.report(5, "a", "b")
    assert made.due(NOW_S + 0.1) == []
    assert made.due(NOW_S + 0.2 + KNOWN_S) == [5]


def test_a_node_that_is_gone_is_waited_for_until_it_cannot_be_current() -> None:
    """Neither by what it has asked of the store before its lease ran out, nor by what it has asked of others."""
    made = Declarer()
    made.machine.unlinked("c", NOW_S)
    made.nodes_are("abc", "ab", now_s=NOW_S)
    made.wait(5)
    made.report(5, "a", "b")
    assert made.due(NOW_S + KNOWN_S - 0.01) == []
    later_s = NOW_S + 10 * KNOWN_S
    made.due(later_s)
    made.wait(6)
    made.report(6, "a")
    made.report(6, "b", asked_by="c")
    assert 6 not in made.due(later_s), "b may have answered c before it had applied this"
    made.report(6, "b")
    assert 6 in made.due(later_s)


def test_a_node_that_is_gone_and_has_a_link_is_waited_for() -> None:
    """The store was silent for it alone."""
    made = Declarer()
    made.nodes_are("abc", "ab")
    made.wait(5)
    made.report(5, "a", "b")
    assert made.due(NOW_S + KNOWN_S - 0.01) == []


def test_a_node_that_has_ended_in_order_is_not_waited_for() -> None:
    made = Declarer()
    made.machine.unlinked("c", NOW_S)
    made.nodes_are("abc", "ab", ended="c")
    made.wait(5)
    made.report(5, "a", "b", asked_by="c")
    assert made.due() == [5]


def test_nodes_that_are_given_up_are_not_counted() -> None:
    made = Declarer()
    for name in "bc":
        made.machine.unlinked(name, NOW_S)
    made.nodes_are("abc", "a")
    made.wait(5)
    made.report(5, "a")
    assert made.due(NOW_S + GIVEN_UP_S - 0.01) == []
    assert made.due(NOW_S + GIVEN_UP_S + 0.01) == [5]


def test_a_node_that_joins_does_not_block_alone() -> None:
    """The node that was there before may not have heard of it, and then finds a majority of one: itself."""
    made = Declarer("ab")
    made.wait(5)
    made.report(5, "a")
    made.due()
    assert made.due(NOW_S + KNOWN_S) == []
    made.report(5, "b")
    assert made.due() == [5]
    made.report(6, "a")
    made.wait(6)
    made.due()
    assert made.due(NOW_S + KNOWN_S + 0.01) == [5, 6], "this one is known to be there by now: half of two blocks"


def test_voters_of_a_later_revision_are_not_known_with_an_earlier_one() -> None:
    made = Declarer("ab")
    made.nodes_are("abcd", "abcd", revision=9)
    made.machine.linked("c")
    made.machine.linked("d")
    made.report(8, "b")
    made.wait(8)
    made.report(9, "a", "c", "d")
    made.report(8, "b")
    assert made.due() == [8]
    made.wait(9)
    assert made.due() == [8], "of a and b only a has revision 9, and a has joined since"
    made.report(9, "b")
    assert made.due() == [8, 9]


def test_what_all_have_reported_is_known_without_an_answer_that_waits() -> None:
    made = Declarer()
    made.report(5, "a", "b", "c")
    assert made.machine.is_known(5, NOW_S)
    made.report(6, "a", "b")
    assert not made.machine.is_known(6, NOW_S)
    made.report(6, "c")
    assert made.machine.is_known(6, NOW_S)


class Publisher:
    """The currency of node a."""

    def __init__(self, voters: str = "abc") -> None:
        self.machine = Currency("a", LEASE_S)
        self.machine.voters_are(frozenset(voters))

    def ask(self, now_s: float, *names: str, revision: int = 1) -> None:
        """A question then, answered late by these."""
        question = self.machine.ask(now_s)
        for name in names:
            assert self.machine.answered(name, question, revision, now_s + LEASE_S / 2)

    def current(self, now_s: float, applied: int = 1) -> bool:
        return self.machine.is_current(applied, now_s)


def test_a_node_is_current_for_a_lease_time_after_a_majority_was_asked() -> None:
    made = Publisher()
    assert not made.current(NOW_S)
    made.ask(NOW_S)
    assert not made.current(NOW_S)
    made.ask(NOW_S, "b")
    assert made.current(NOW_S + LEASE_S - 0.01)
    assert not made.current(NOW_S + LEASE_S), "by when it was asked, and not by when the answer came"
    five = Publisher("abcde")
    five.ask(NOW_S, "b")
    five.ask(NOW_S + 1, "c")
    assert five.current(NOW_S + LEASE_S - 0.01)
    assert not five.current(NOW_S + LEASE_S)


def test_a_node_is_not_current_before_it_has_applied_what_it_was_told() -> None:
    made = Publisher()
    made.ask(NOW_S, "b", revision=7)
    assert not made.current(NOW_S, applied=6)
    assert made.current(NOW_S, applied=7)
    made.machine.answered("c", 0, 8, NOW_S)  # said without a question
    assert not made.current(NOW_S, applied=7)


def test_others_than_registered_nodes_do_not_count() -> None:
    made = Publisher()
    made.ask(NOW_S, "x")
    assert not made.current(NOW_S)
    made.machine.voters_are(frozenset("ax"))
    assert made.current(NOW_S)


def test_the_store_counts_as_a_majority_from_the_begin_of_the_read() -> None:
    made = Publisher()
    assert made.machine.store_read(NOW_S, 7) == []
    assert not made.current(NOW_S, applied=6)
    assert made.current(NOW_S + LEASE_S - 0.01, applied=7)
    assert not made.current(NOW_S + LEASE_S, applied=7)


def test_a_node_that_is_alone_answers_itself_but_not_after_a_gap() -> None:
    made = Publisher("a")
    made.ask(NOW_S)
    assert not made.current(NOW_S), "it may have been stopped before: others may have joined"
    made.machine.store_read(NOW_S, 1)
    made.ask(NOW_S + 1)
    assert made.current(NOW_S + LEASE_S)
    made.ask(NOW_S + 10 * LEASE_S)
    assert not made.current(NOW_S + 10 * LEASE_S)


def test_a_revision_that_the_store_has_not_reached_is_a_lie() -> None:
    made = Publisher()
    made.ask(NOW_S, "b", revision=1 << 60)
    assert not made.current(NOW_S, applied=7)
    assert made.machine.store_read(NOW_S + LEASE_S / 2, 7) == [], "it had not come when the read began"
    assert made.machine.store_read(NOW_S + LEASE_S, 7) == ["b"]
    assert made.current(NOW_S + LEASE_S, applied=7)


def test_a_question_that_was_not_sent_is_not_answered() -> None:
    made = Publisher()
    made.ask(NOW_S)
    assert not made.machine.answered("b", 2, 1, NOW_S)
    for _ in range(QUESTIONS_MAX):
        made.ask(NOW_S + 1)
    assert made.machine.answered("b", 1, 1, NOW_S + 1)
    assert not made.current(NOW_S), "it is too long ago to be known"


class Host:
    """A node, for `AppliedRevisions`."""

    def __init__(self) -> None:
        self.now_s, self.applied_revision, self.topology_revision = NOW_S, 5, 5
        self.currents: list[bool] = []
        self.reads: list[Callable[[int | None], None]] = []

    def has_news(self) -> None:
        pass

    def read_store(self, ended: Callable[[int | None], None]) -> None:
        self.reads.append(ended)

    def answer(self, answer: Callable[[], None]) -> None:
        answer()

    def set_current(self, current: bool) -> None:
        self.currents.append(current)


class SentOver:
    """A data link."""

    def __init__(self, forwarder: str) -> None:
        self.forwarder = forwarder
        self.sent: list[Any] = []
        self.closed: list[str] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def close(self, why: str) -> None:
        self.closed.append(why)


def revisions(host: Host, is_on: bool = True) -> AppliedRevisions:
    made = AppliedRevisions("a", LEASE_S, host, is_on)
    made.generation = "one"
    made.currency.voters_are(frozenset("abc"))
    made.sync_point.nodes_are(Registered(frozenset("abc"), frozenset("abc")), 1, NOW_S)
    return made


def test_a_question_is_answered_and_what_is_applied_is_reported_once() -> None:
    host = Host()
    made, link = revisions(host, is_on=False), SentOver("b")
    made.accepted(link)
    made.flush()
    host.now_s += 1
    made.asked(link, AskRevision(3))
    made.flush()
    asked_by = ("a", "b", "c")  # this process has just begun, and the one before may have answered anybody
    assert link.sent == [AppliedRevision(0, 5, "one", asked_by), AppliedRevision(3, 5, "one", asked_by)]
    host.applied_revision, host.now_s = 6, NOW_S + KNOWN_S
    made.flush()
    assert link.sent[2:] == [AppliedRevision(0, 6, "one", ("b",))]
    host.applied_revision, host.now_s = 7, NOW_S + 2 * KNOWN_S + 0.01
    made.flush()
    assert link.sent[3:] == [AppliedRevision(0, 7, "one", ())]


def test_an_answer_that_changes_nothing_waits_while_others_do_not_know_all() -> None:
    host = Host()
    made, links = revisions(host), [SentOver("b"), SentOver("c")]
    for link in links:
        made.dialed(link)
    answered: list[str] = []
    made.flush()
    assert made.matters
    assert not made.has_all
    made.when_known(partial(answered.append, "bound"))
    made.heard(links[0], AppliedRevision(0, 5, "one"))
    made.flush()
    assert (answered, made.facts()["changes_unknown_to"]) == ([], ["c"])
    made.heard(links[1], AppliedRevision(0, 6, "one"))
    made.flush()
    assert answered == ["bound"]
    assert made.has_all


def test_a_node_without_remote_queues_asks_nobody_and_waits_for_nothing() -> None:
    host = Host()
    made, link = revisions(host, is_on=False), SentOver("b")
    made.dialed(link)
    made.beat()
    made.look()
    assert (link.sent, host.currents, host.reads) == ([], [], [])
    assert made.has_all
    assert not made.matters


def test_what_is_said_of_another_generation_of_the_store_is_not_heard() -> None:
    host = Host()
    made, link = revisions(host), SentOver("b")
    made.dialed(link)
    made.heard(link, AppliedRevision(1, 100, "two"))
    assert (made.currency.told, host.currents) == (0, [])
    made.heard(link, AppliedRevision(1, 5, "one"))
    assert host.currents == [True]


def test_a_node_that_is_not_current_asks_peers_and_the_store_at_once() -> None:
    host = Host()
    made, link = revisions(host), SentOver("b")
    made.dialed(link)
    made.heard(link, AppliedRevision(1, 5, "one"))
    host.now_s += 10 * LEASE_S  # it was stopped
    made.look()
    assert (host.currents, link.sent, len(host.reads)) == ([True, False], [AskRevision(1), AskRevision(2)], 1)
    made.look()
    assert len(link.sent) == 2, "not at each publish"
    made.heard(link, AppliedRevision(2, 5, "one"))
    assert host.currents == [True, False, True]


def test_a_peer_that_lies_loses_its_link() -> None:
    host = Host()
    made, link, other = revisions(host), SentOver("b"), SentOver("c")
    made.dialed(link)
    made.dialed(other)
    made.heard(other, AppliedRevision(99, 5, "one"))
    assert len(other.closed) == 1
    made.heard(link, AppliedRevision(1, 1 << 60, "one"))
    host.now_s += LEASE_S
    made.beat()
    host.reads[-1](5)
    assert len(link.closed) == 1
    assert made.facts()["current"]


# In any order


def ran(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, nodes_max=2 + seed % 4)
        world.run(STEPS)
        counts += world.counts
    return counts


def test_a_publish_that_starts_after_the_answer_is_routed_with_the_change() -> None:
    counts = ran(range(SEEDS))
    happened = {
        *("changes", "answers", "publishes", "publishes that waited", "pauses", "cuts", "cuts from the store"),
        *("lapsed", "killed", "ended in order", "starts"),
    }
    assert counts.keys() == happened


MISTAKES: dict[str, tuple[type, str, Any]] = {
    "the answer waits for a majority only": (SyncPoint, "_lacking", lambda *_: []),
    "a node is current for ever": (
        Currency,
        "is_current",
        lambda self, applied, _: self.until_s > -inf and applied >= self.told,
    ),
    "a node is current before it has applied what it was told": (
        Currency,
        "is_current",
        lambda self, _, now_s: now_s < self.until_s,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, attribute, mistake = MISTAKES[name]
    monkeypatch.setattr(of, attribute, mistake)
    with pytest.raises(AssertionError, match="seed"):
        ran(range(100))
