"""The runner's own decisions: when something is on the disk, which sources it makes, what it still serves.

What is verified: each with the least that it needs around it. Not verified here: all of it together
(`tests/faults/test_cluster_kill.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.cluster.copies import HomeLink
from amqpd.cluster.links.link import Link
from amqpd.cluster.own_disk import OwnDisk
from amqpd.cluster.records import KnownRecord
from amqpd.cluster.runner import ClusterRunner
from amqpd.cluster.search import SEARCH_S, UNSERVED_MAX, SourceSearch
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Recovered
from amqpd.node.sources import LOCAL, Sources
from amqpd.replication import seal as seals
from amqpd.replication.messages import Told
from amqpd.replication.replica import StatePart
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record


class Runner(ClusterRunner):
    """Of `a`, with `living` and `known` members."""

    def __init__(self, living: str = "a", known: str = "a") -> None:
        self.at_s = 100.0
        self.journal = JournalBuffer()
        self.served_with: list[Recovered] = []
        node = SimpleNamespace(
            journal=self.journal, source_begins=lambda source, found: self.served_with.append(found)
        )
        self._node: Any = node
        self._writer: Any = SimpleNamespace(want_commit=lambda: None)
        directory: Any = SimpleNamespace(
            me=member_record("a"),
            members={name: member_record(name) for name in living},
            known={name: KnownRecord(name, 1, ord(name)) for name in known},
            records={},
            swap=self._swap,
        )
        self._directory = directory
        self.records: dict[int, SourceRecord] = directory.records
        self.forwarder: Any = SimpleNamespace(
            homes=SimpleNamespace(sources={}),
            record_is=lambda record: None,
            take_over=lambda record: None,
            asked=lambda incoming, message: self.journal.write([StatePart(5, bytes(40 << 20))]),
            stored=lambda index: None,
        )
        self.made: list[SourceRecord] = []
        self.taken = False
        """by others, whatever is asked for"""
        self.search = SourceSearch(
            directory,
            3,
            lambda: self.at_s,
            lambda task: self._nursery.start_soon(task),
            lambda source: False,
            lambda record: None,
        )
        self._paused, self._incoming = set(), {}
        self._own = OwnDisk(SimpleNamespace(), self.journal, self._writer)  # type: ignore[arg-type]
        self._news = None
        self._settle = lambda: None

    @property
    def now_s(self) -> float:
        return self.at_s

    async def _swap(self, record: SourceRecord) -> SourceRecord | None:
        self.made.append(record)
        if self.taken:
            return None
        self.records[record.source] = record
        return record

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


def test_what_was_read_for_an_epoch_that_has_ended_is_not_served() -> None:
    runner = Runner()
    before: Any = object()
    runner.forwarder.homes.sources[5] = object()
    runner._serve(5, before, Recovered(1, {}))
    assert runner.served_with == []


@pytest.mark.parametrize(
    ("living", "known", "members"),
    [
        ("a", "a", ("a",)),
        ("ab", "abc", ("a", "b", "c")),
        ("abc", "abc", ("a", "b", "c")),
        ("abc", "abcd", ("a", "b", "c")),
        ("a", "abc", ()),
    ],
)
def test_a_set_counts_on_those_that_are_away_for_some_time(living: str, known: str, members: tuple[str, ...]) -> None:
    assert Runner(living, known).search.new_set() == members


def test_a_source_is_looked_for_again_while_somebody_waits() -> None:
    runner = Runner("abc", "abc")
    runner.taken = True

    async def main() -> None:
        async with trio.open_nursery() as runner._nursery:
            for _ in range(3):
                runner.search.want(lambda found: None)
                runner.at_s += SEARCH_S

    trio.run(main)
    assert len(runner.made) == 3
    assert runner.made[0].generations == (97, 98, 99)


def test_sources_without_a_home_are_bounded() -> None:
    runner = Runner("abc", "abc")
    for _ in range(2 * UNSERVED_MAX):
        trio.run(runner.search.run)
    assert len(runner.made) == UNSERVED_MAX
    assert {record.home for record in runner.made} == {seals.NONE}


def test_new_queues_are_not_put_where_there_are_fewer_copies_than_there_may_be() -> None:
    runner, sources = Runner("abc", "abc"), Sources()
    sources.is_full = runner.search.is_full
    runner.records[1] = SourceRecord(1, seals.NONE, ("a",), (1,))
    runner.records[2] = SourceRecord(2, seals.NONE, ("a", "b", "c"), (1, 2, 3))
    sources.serving[1] = None
    assert sources.choose() == LOCAL
    sources.serving[2] = None
    assert sources.choose() == 2


def test_homes_are_not_heard_while_more_gathers_than_the_disk_takes() -> None:
    runner, calls = Runner(), list[str]()
    link: Any = Link.__new__(Link)
    link.pause, link.resume = partial(calls.append, "pause"), partial(calls.append, "resume")
    runner._incoming = {link: HomeLink("b", 1, lambda message: None, lambda why: None)}
    runner.received(link, Told(1, 1, 1))
    assert calls == []
    runner.received(link, Told(1, 2, 1))
    assert calls == ["pause"]
    runner.commit()
    assert calls == ["pause", "resume"]


def test_a_set_is_of_nodes_that_do_not_fail_together() -> None:
    runner = Runner("abcd", "abcd")
    racks = {"a": "one", "b": "one", "c": "two", "d": "three"}
    directory: Any = runner._directory
    directory.members = {name: replace(member_record(name), cluster=rack) for name, rack in racks.items()}
    assert {runner.search.new_set() for _ in range(20)} == {("a", "c", "d")}
