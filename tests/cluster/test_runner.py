"""The runner's own decisions: when something is on the disk, which sources it makes, what it still serves.

What is verified: each with the least that it needs around it. Not verified here: all of it together
(`tests/faults/test_cluster_kill.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.cluster import choosing
from amqpd.cluster.data_links import DataLinks
from amqpd.cluster.linkage import Linkage
from amqpd.cluster.own_disk import OwnDisk
from amqpd.cluster.placement import bound_of, ranked
from amqpd.cluster.records import KnownRecord, encode, known_key, member_key
from amqpd.cluster.roster import Roster
from amqpd.cluster.runner import BEATS, ClusterRunner
from amqpd.cluster.search import LOOKS_MAX, SEARCH_S, TAKEN_BACK_S, UNSERVED_MAX, WANT_S, SourceSearch
from amqpd.cluster.shell import LeaderLink
from amqpd.cluster.succession import successors
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Recovered
from amqpd.node.cluster import HERE, Cluster, WantedSource
from amqpd.node.sources import ServedSources
from amqpd.peers.entry import NO_VOTE, Vote
from amqpd.peers.links.link import PeerLink
from amqpd.peers.messages import Heartbeat
from amqpd.replication.replica import StatePart
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import DeleteKey, Event, MetadataEntry, Snapshot
from tests.cluster.directories import member_record


class Runner(ClusterRunner):
    """Of `a`, with `living` and `known` members."""

    def __init__(self, living: str = "a", known: str = "a") -> None:
        self.at_s = 100.0
        self.journal = self._journal = JournalBuffer()
        self.served_with: list[Recovered] = []
        node = SimpleNamespace(
            registry=SimpleNamespace(other_nodes=dict),
            source_begins=lambda source, found, handed: self.served_with.append(found),
        )
        self._node: Any = node
        self._writer: Any = SimpleNamespace(want_commit=lambda: None)
        self.data_links = DataLinks(self._do, lambda: False, lambda peer, why: None, BEATS)
        directory: Any = SimpleNamespace(
            me=member_record("a"),
            roster=SimpleNamespace(
                members={name: member_record(name) for name in living},
                known={name: KnownRecord(name, 1, ord(name)) for name in known},
                records={},
                unreadable={},
            ),
            swaps=SimpleNamespace(swap=self._swap, drop=self._drop_source),
        )
        self._directory = directory
        self.records: dict[int, SourceRecord] = directory.roster.records
        self.forwarder: Any = SimpleNamespace(
            led_sources=SimpleNamespace(sources={}),
            record_is=lambda record: None,
            take_over=lambda record: None,
            asked=lambda incoming, message: self.journal.write([StatePart(5, bytes(40 << 20))]),
            stored=lambda index: None,
        )
        self.made: list[SourceRecord] = []
        self.taken = False
        """by others, whatever is asked for"""
        self.sources = ServedSources(Cluster())
        self.linkage = Linkage()
        self.linked = set(living)
        self.search = SourceSearch(
            directory,
            3,
            lambda: self.at_s,
            lambda task: self._nursery.start_soon(task),
            lambda source: False,
            lambda record: None,
            self.sources,
            lambda: self.linkage,
            lambda name: name in self.linked,
        )
        self._paused, self._incoming = set(), {}
        self._own = OwnDisk(SimpleNamespace(), self.journal, self._writer)  # type: ignore[arg-type]
        self._news = None
        self._run_effects = lambda: None

    @property
    def now_s(self) -> float:
        return self.at_s

    async def _swap(self, record: SourceRecord) -> SourceRecord | None:
        self.made.append(record)
        if self.taken:
            return None
        self.records[record.source] = record
        return record

    async def _drop_source(self, record: SourceRecord) -> bool:
        assert self.records.pop(record.source) == record
        return True

    def commit(self) -> None:
        self.journal.stored(self.journal.take().index)
        self.stored(self.journal.stored_index)


def test_what_is_handed_in_is_on_the_disk_also_while_others_go_on_handing_in() -> None:
    """Publishers that never pause held up every take-over."""
    runner = Runner()
    runner.journal.force()

    async def main() -> None:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runner._own._all_on_disk)
                await trio.testing.wait_all_tasks_blocked()
                runner.commit()
                runner.journal.force()  # there is always more

    trio.run(main)


def test_something_is_waited_for_after_a_wait_that_was_given_up() -> None:
    """The end of a node that waited a second time for its sources to be handed over failed."""
    runner = Runner()

    async def main() -> None:
        with trio.move_on_after(0):
            await runner._something()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(runner._something)
            await trio.testing.wait_all_tasks_blocked()
            runner._do(lambda: None)

    trio.run(main)


def test_what_was_read_for_an_epoch_that_has_ended_is_not_served() -> None:
    runner = Runner()
    before: Any = object()
    runner.forwarder.led_sources.sources[5] = object()
    runner._serve(5, before, Recovered(1, {}))
    assert runner.served_with == []


@pytest.mark.parametrize("leaves", [True, False])
def test_what_was_won_just_before_the_end_is_not_served(leaves: bool) -> None:
    """The queues of all sources stand still by then: what would come into these is in no copy when the node goes."""
    runner = Runner()
    own: Any = SimpleNamespace(begun_s=0.0, vote=NO_VOTE, take_handed=lambda: b"")
    runner.forwarder.led_sources.sources[5] = own
    runner.forwarder.stops = lambda source: leaves
    runner._node.sources = SimpleNamespace(queues={5: 0})
    runner._events = SimpleNamespace(log=lambda event, fields: None)  # type: ignore[assignment]
    runner._serve(5, own, Recovered(1, {}))
    assert len(runner.served_with) == (0 if leaves else 1)


def test_a_source_is_looked_for_again_while_somebody_waits() -> None:
    runner = Runner("abc", "abc")
    runner.taken = True

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            for _ in range(3):
                runner.search.want(HERE, lambda found: None)
                runner.at_s += SEARCH_S

    trio.run(main)
    assert len(runner.made) == 3
    assert runner.made[0].generations == (97, 98, 99)


def test_sources_without_a_leader_are_bounded() -> None:
    runner = Runner("abc", "abc")
    for _ in range(2 * UNSERVED_MAX):
        trio.run(runner.search.make, "a", 3)
    assert len(runner.made) == UNSERVED_MAX
    assert {record.leader for record in runner.made} == {NO_VOTE}


def test_leaders_are_not_heard_while_more_gathers_than_the_disk_takes() -> None:
    runner, calls = Runner(), list[str]()
    link: Any = PeerLink.__new__(PeerLink)
    link.pause, link.resume = partial(calls.append, "pause"), partial(calls.append, "resume")
    runner._incoming = {link: LeaderLink("b", 1, lambda message: None, lambda why: None)}
    runner.received(link, Heartbeat(1, 1, 1))
    assert calls == []
    runner.received(link, Heartbeat(1, 2, 1))
    assert calls == ["pause"]
    runner.commit()
    assert calls == ["pause", "resume"]


def test_a_source_for_another_node_is_that_nodes_to_take() -> None:
    runner = Runner("abc", "abc")
    trio.run(runner.search.make, "b", 3)
    [record] = runner.made
    assert successors(record.source, record.members)[0] == "b"


def test_sources_for_others_are_bounded_too() -> None:
    """Also those that this node keeps no copy of."""
    runner = Runner("abc", "abc")
    for _ in range(2 * UNSERVED_MAX):
        trio.run(runner.search.make, "b", 1)
    assert [record.members for record in runner.made] == [("b",)] * UNSERVED_MAX


def test_each_desired_set_is_answered_when_there_is_a_source_for_it() -> None:
    runner, answers = Runner("ab", "ab"), list[str]()
    one, two = WantedSource(copies=1), HERE
    name = next(name for name in "abcdefgh" if runner.search._choices.leader_for(WantedSource(balanced=name)) == "b")
    elsewhere = WantedSource(balanced=name)

    def note(said: str, found: bool) -> None:
        answers.append(said)

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            for wanted, said in ((one, "one"), (two, "two"), (elsewhere, "elsewhere")):
                runner.search.want(wanted, partial(note, said))
            runner.taken = True  # nothing is made meanwhile

    trio.run(main)
    runner.records.clear()

    def heard(record: SourceRecord) -> list[str]:
        runner.records[record.source] = record
        for answer in runner.search.look():
            answer(True)
        said = answers.copy()
        answers.clear()
        return said

    assert heard(SourceRecord(4, NO_VOTE, ("a", "b"), (97, 98))) == []
    assert heard(SourceRecord(5, Vote(1, "b", 1), ("a", "b"), (97, 98))) == ["elsewhere"]
    runner.sources.serving.update(dict.fromkeys((6, 7)))
    assert heard(SourceRecord(6, Vote(1, "a", 1), ("a",), (97,))) == ["one"]
    assert heard(SourceRecord(7, Vote(1, "a", 1), ("a", "b"), (97, 98))) == ["two"]


def test_who_waits_for_too_long_is_told_that_there_is_none() -> None:
    runner, answers = Runner("a", "abc"), list[bool]()

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            runner.search.want(HERE, answers.append)

    trio.run(main)
    assert runner.search.late() == []
    runner.at_s += WANT_S
    for answer in runner.search.late():
        answer(False)
    assert (answers, runner.made) == ([False], [])


def test_what_waiting_declarations_cost_does_not_grow_with_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One client with many channels, each of which declares a balanced queue, held up the node for minutes."""
    runner, answers, count = Runner("ab", "ab"), list[bool](), 2 * LOOKS_MAX + 10
    runner.taken = True
    ranks, walks = list[str](), list[int]()

    def ranks_of(source: int | str, names: Iterable[str]) -> list[str]:
        ranks.append(str(source))
        return ranked(source, names)

    def bounds(total: int, among: int) -> int:
        walks.append(total)
        return bound_of(total, among)

    def looks() -> tuple[int, int, int]:
        ranks.clear(), walks.clear()
        for answer in runner.search.look():
            answer(True)
        return len(answers), len(ranks), len(walks)

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            monkeypatch.setattr(choosing, "ranked", ranks_of)
            for number in range(count):
                runner.search.want(WantedSource(balanced=f"q{number}"), answers.append)
            assert len(ranks) == count
            monkeypatch.setattr(choosing, "bound_of", bounds)
            assert looks() == (0, LOOKS_MAX, 1)

    trio.run(main)
    runner.sources.serving.update(dict.fromkeys((6,)))
    runner.records[6] = SourceRecord(6, Vote(1, "a", 1), ("a", "b"), (97, 98))
    runner.records[7] = SourceRecord(7, Vote(1, "b", 1), ("a", "b"), (97, 98))
    # Those that have not been looked at come first.
    assert [looks() for _ in range(3)] == [(LOOKS_MAX, LOOKS_MAX, 1), (2 * LOOKS_MAX, LOOKS_MAX, 1), (count, 10, 1)]
    assert len(answers) == count


def test_no_source_is_made_before_there_are_links_to_a_majority_of_its_set() -> None:
    """A node that all others refused left one behind for each declaration, with itself in the set."""
    runner, answers = Runner("abc", "abc"), list[bool]()
    runner.linked.clear()

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            runner.search.want(HERE, answers.append)
            await trio.testing.wait_all_tasks_blocked()
            assert runner.search.look() == runner.made == []
            # One is a majority, with this node; the next beat sees it: a start is no slower by that.
            runner.linked.add("b")
            runner.search.look()
            await trio.testing.wait_all_tasks_blocked()
            assert len(runner.made) == 1

    trio.run(main)


def test_who_waits_at_a_node_that_is_isolated_is_told_at_once() -> None:
    runner, answers = Runner("abc", "abc"), list[bool]()
    runner.linked.clear()

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            for _ in range(3):
                runner.search.want(HERE, answers.append)
            assert runner.search.late() == []
            runner.linkage = Linkage(isolated=frozenset("a"))
            for answer in runner.search.late():
                answer(False)

    trio.run(main)
    assert (answers, runner.made, runner.search.late()) == ([False] * 3, [], [])


@pytest.mark.parametrize("leader", ["a", "b"])
def test_a_source_that_nobody_became_the_leader_of_is_taken_back(leader: str) -> None:
    runner = Runner("abc", "abc")

    async def beat(seconds: float) -> None:
        runner.at_s += seconds
        async with trio.open_nursery() as runner._nursery:
            runner.search.late()

    trio.run(runner.search.make, leader, 3)
    trio.run(runner.search.make, leader, 3)
    first, second = runner.made
    runner.records[second.source] = SourceRecord(second.source, Vote(1, "b", 1), second.members, (1, 2, 3), 7)
    trio.run(beat, TAKEN_BACK_S - 1)
    assert first.source in runner.records
    trio.run(beat, 1)
    assert list(runner.records) == [second.source]
    trio.run(beat, TAKEN_BACK_S)
    assert list(runner.records) == [second.source], "it has a leader"


# What it says while the store is silent


class Seen(Runner):
    """Of `a`, which has links to b and c; the store has let the leases of all three run out."""

    def __init__(self, *, linked: str, doubtful: bool) -> None:
        super().__init__()
        roster = Roster()
        roster.load(Snapshot(1, [entry for name in "abc" for entry in _entries(name)]))
        source = SourceRecord(7, Vote(3, "a", 1), tuple("abc"), (1, 1, 1))
        roster.records[7] = source
        roster.apply(Event(2, tuple(DeleteKey(member_key(name)) for name in "abc")))
        self._directory.roster = roster
        self._directory.is_doubtful, self._directory.silent_s = doubtful, 0.0  # type: ignore[misc]
        self._directory.store_replaced = ""
        self._settings: Any = SimpleNamespace(cluster_copies=3)
        self._link_reports: Any = SimpleNamespace(linkage=Linkage())
        self._dialed: Any = dict.fromkeys(linked)
        facts = SimpleNamespace(facts=dict)
        self._sessions: Any = SimpleNamespace(figures=dict, sentences=list)
        self.forwarder = SimpleNamespace(
            name="a", led_sources=SimpleNamespace(sources={}), replicas={}, statistics=lambda: facts
        )

    def says(self) -> tuple[str, list[str]]:
        """Of the source; of the cluster."""
        view = self.view()
        [found] = view.source_statuses({})
        assert found is not None
        return found.sentence, view.rows([found], {})["says"]


def _entries(name: str) -> list[MetadataEntry]:
    member, known = member_record(name), KnownRecord(name, 1, 1)
    return [MetadataEntry(member_key(name), encode(member), 1), MetadataEntry(known_key(name), encode(known), 1)]


def test_nodes_with_links_are_not_said_to_be_gone_for_a_silent_store() -> None:
    seen = Seen(linked="bc", doubtful=True)
    assert seen.says() == (
        "leader a; 3 copies",
        [
            "3 nodes live.",
            "No leases in etcd, which was silent: a, b, c; this node has links to them, so they live, and renew "
            "their leases.",
        ],
    )
    assert seen.facts()["members"] == ["a", "b", "c"]
    assert all(seen.view().lives(name) for name in "abc")


def test_a_node_without_a_lease_and_a_link_is_gone() -> None:
    assert Seen(linked="b", doubtful=True).says()[0] == "leader a; 3 copies; c is gone"
    assert Seen(linked="bc", doubtful=False).says()[0].startswith("stopped: a, b and c are gone")


def test_a_silent_store_is_told_of_and_nothing_is_called_well() -> None:
    seen = Seen(linked="bc", doubtful=True)
    seen._directory.roster.members = seen._directory.roster.with_linked("abc").members
    seen._directory.silent_s = 4.2  # type: ignore[misc]
    assert seen.facts()["store_silent"]
    assert seen.says()[1] == [
        "3 nodes live.",
        "The metadata store (etcd) has not answered this node for 4 s: what is said of nodes and leaders is as it "
        "was before, and a lost leader has no successor until etcd answers.",
    ]


def test_a_data_connection_that_is_wanted_and_missing_is_said_beside_how_the_sources_are() -> None:
    seen = Seen(linked="bc", doubtful=True)
    seen._directory.roster.members = seen._directory.roster.with_linked("abc").members
    seen._directory.is_doubtful = False  # type: ignore[misc]
    says = "This node has no data connection to b, whose queues its clients use: Connection refused."
    data: Any = SimpleNamespace(sentences=lambda: [says], facts=lambda: {"data_links_missing": [says]})
    seen.data_links = data
    assert seen.says()[1] == ["3 nodes live.", says, "1 source is well."]
    assert seen.facts()["data_links_missing"] == [says]


def test_a_store_that_was_replaced_is_not_called_silent_and_nobody_is_advised_to_forget_or_force() -> None:
    seen = Seen(linked="", doubtful=False)
    seen._directory.silent_s = 4.2  # type: ignore[misc]
    seen._directory.store_replaced = "the metadata store is not what it was: it was emptied; put it back"
    assert seen.facts()["store_replaced"] == [seen._directory.store_replaced]
    assert not seen.facts(store_silent=True)["store_silent"]
    of_cluster = seen.says()[1]
    assert of_cluster[:2] == [
        "0 nodes live, gone: a, b, c.",
        "The metadata store is not what it was: it was emptied; put it back. What is said of nodes and leaders is as "
        "it was before.",
    ]
    assert not any("forget" in each or "force" in each or "grow" in each for each in of_cluster)
