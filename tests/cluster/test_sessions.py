"""What a node says over data links by itself: of which sources it has nothing, when their leaders have begun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amqpd.cluster.roster import Roster
from amqpd.cluster.sessions import Sessions
from amqpd.journal.records import LOCAL
from amqpd.peers.entry import Vote
from amqpd.peers.messages import HoldsNothing, SourceEpoch
from amqpd.remote.links import RemoteSource


class Links:
    """Data links to every node that is wanted."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.sent: list[tuple[str, Any]] = []

    def tell(self, events: Any) -> None:
        pass

    def want(self, peer: str) -> None:
        self.wanted.add(peer)

    def drop(self, peer: str) -> None:
        self.wanted.discard(peer)

    def incarnation_of(self, peer: str) -> int | None:
        return 1 if peer in self.wanted else None

    def send(self, peer: str, message: Any) -> None:
        self.sent.append((peer, message))


class Edges(set[RemoteSource]):
    """Sources that this node has edges of."""

    def leaders_changed(self) -> None:
        pass

    def links_changed(self, peer: str) -> None:
        pass


def started(edges: Edges, lost: list[str], knows: bool = True) -> tuple[Sessions, Links, Roster]:
    links = Links()
    runner: Any = SimpleNamespace(incarnation=1, knows_sessions=lambda name: knows, may_mark=lambda source: True)
    sessions = Sessions("a", links, runner, True)  # type: ignore[arg-type]
    leaders = SimpleNamespace(lost=lost.append)
    node: Any = SimpleNamespace(edges=edges, remote_sessions=SimpleNamespace(leaders=leaders))
    sessions.start(node)
    roster = Roster()
    roster.members.update(dict.fromkeys(("a", "b", "c")))  # type: ignore[arg-type]
    return sessions, links, roster


def led(roster: Roster, source: int, leader: str, epoch: int) -> None:
    record: Any = SimpleNamespace(leader=Vote(epoch, leader, 1))
    roster.records[source] = record


def test_a_new_leader_is_told_of_which_of_its_sources_there_is_nothing() -> None:
    sessions, links, roster = started(Edges({RemoteSource(7)}), [])
    for source in (5, 6, 7):
        led(roster, source, "b", 1)
    sessions.roster_changed(roster)
    assert links.sent == [("b", HoldsNothing((SourceEpoch(5, 1), SourceEpoch(6, 1))))]
    links.sent.clear()
    led(roster, 6, "c", 2)  # in the same roster, as the store's watch changes it
    sessions.roster_changed(roster)
    assert links.sent == [("c", HoldsNothing((SourceEpoch(6, 2),)))]
    sessions.edge_linked("b", 3)
    assert links.sent[1:] == [
        ("b", HoldsNothing((SourceEpoch(5, 1),))),
        ("b", HoldsNothing((SourceEpoch(LOCAL, 3),))),
    ]


def test_a_node_whose_classic_queues_are_used_here_is_not_told_that_there_is_nothing_of_them() -> None:
    sessions, links, roster = started(Edges({RemoteSource(LOCAL, "b")}), [])
    sessions.roster_changed(roster)
    sessions.edge_linked("b", 1)
    sessions.edge_linked("c", 1)
    assert links.sent == [("c", HoldsNothing((SourceEpoch(LOCAL, 1),)))]


def test_the_local_source_waits_for_all_members_also_for_those_that_were_not_heard_yet() -> None:
    sessions, _, roster = started(Edges(), [], knows=False)
    sessions.roster_changed(roster)
    assert sessions.members(5) == {"a"}
    assert sessions.members(LOCAL) == {"a", "b", "c"}


def test_who_is_decommissioned_is_known_until_the_name_is_given_again() -> None:
    sessions, _, roster = started(Edges(), [])
    some: Any = None
    roster.known.update(dict.fromkeys(("a", "b", "c", "d"), some))
    del roster.members["c"]
    sessions.roster_changed(roster)
    assert sessions.forgotten() == frozenset()
    del roster.known["c"], roster.known["d"]
    roster.forgotten["c"] = some
    sessions.roster_changed(roster)
    assert sessions.forgotten() == {"c"}, "nobody has decommissioned d: the store may have gone back"
    roster.members["c"] = some
    sessions.roster_changed(roster)
    assert sessions.forgotten() == frozenset()


def test_a_link_to_each_member_is_wanted_and_to_nobody_else() -> None:
    sessions, links, roster = started(Edges(), [])
    sessions.roster_changed(roster)
    assert links.wanted == {"b", "c"}
    del roster.members["c"]
    sessions.roster_changed(roster)
    assert links.wanted == {"b"}


def test_the_end_of_an_older_link_does_not_end_the_sessions_of_a_newer_one() -> None:
    lost: list[str] = []
    sessions = started(Edges(), lost)[0]
    older: Any = SimpleNamespace(forwarder="b")
    newer: Any = SimpleNamespace(forwarder="b")
    sessions.accepted(older)
    sessions.accepted(newer)
    sessions.left(older)
    assert lost == []
    sessions.left(newer)
    assert lost == ["b"]
