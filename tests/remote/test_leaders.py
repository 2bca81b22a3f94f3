"""The leaders of a node: what comes before its time waits, up to a bound."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from amqpd.journal.operation_marks import MarkRecord, Marks
from amqpd.remote import leaders
from amqpd.remote.leaders import LeadersHost, RemoteLeaders
from amqpd.remote.messages import Attach, Attached, Counted, CountMessages, FromEdge, FromLeader, Sender, SessionEnded
from amqpd.remote.source import LedQueue, SourceLog

SENDER = Sender("a", 1 << 20, 1)
SOURCE = 5


class NoLog(SourceLog):
    @property
    def position(self) -> int:
        return 1

    def note(self, record: MarkRecord) -> None:
        pass

    def force(self) -> None:
        pass


class HostByHand(LeadersHost):
    """Each attribute is an answer."""

    def __init__(self) -> None:
        self.applied = 0
        self.living = frozenset({"a", "b"})
        self.delivers: dict[int, bool] = {}
        self.sent: list[FromLeader] = []

    @property
    def now_ms(self) -> int:
        return 0

    @property
    def revision(self) -> int:
        return self.applied

    def log_of(self, source: int) -> SourceLog:
        return NoLog()

    def led_queues(self, source: int) -> Mapping[int, LedQueue]:
        return {}

    def members(self, source: int) -> frozenset[str]:
        return self.living

    def forgotten(self) -> frozenset[str]:
        return frozenset()

    def holds_lease(self, source: int) -> bool:
        return True

    def may_deliver(self, source: int, delivers: bool) -> None:
        self.delivers[source] = delivers

    def to_own_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        raise AssertionError("no edge is here")

    # SessionLinks

    is_on = True

    @property
    def incarnation(self) -> int | None:
        return 1

    def leader_of(self, source: int) -> str:
        return "b"

    def epoch_of(self, source: int, node: str) -> int:
        return 3

    def is_linked(self, node: str) -> bool:
        return True

    def has_capacity(self, node: str, source: int) -> bool:
        return True

    def edge_has_capacity(self, node: str, source: int) -> bool:
        return True

    def to_leader(self, node: str, source: int, incarnation: int, session: int, message: FromEdge) -> None:
        raise AssertionError("no edge is here")

    def to_edge(self, sender: Sender, source: int, message: FromLeader) -> None:
        self.sent.append(message)


@pytest.fixture
def host() -> HostByHand:
    return HostByHand()


@pytest.fixture
def made(host: HostByHand) -> RemoteLeaders:
    return RemoteLeaders("b", host, host)


def test_an_edge_that_attaches_before_the_source_begins_is_answered_when_it_does(
    host: HostByHand, made: RemoteLeaders
) -> None:
    made.receive(SENDER, SOURCE, 0, Attach(0, ()))
    made.receive(SENDER, SOURCE, 0, CountMessages(1, 7, 0))
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    made.flush()
    assert [type(each) for each in host.sent if not isinstance(each, Counted)][:1] == [Attached]
    assert Counted(1, -1, 0) in host.sent


def test_what_names_metadata_that_is_not_applied_here_waits_for_it_and_all_behind_it(
    host: HostByHand, made: RemoteLeaders
) -> None:
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    made.receive(SENDER, SOURCE, 0, Attach(0, ()))
    made.receive(SENDER, SOURCE, 9, CountMessages(1, 7, 0))
    made.receive(SENDER, SOURCE, 0, CountMessages(2, 7, 0))
    made.go_on()
    made.flush()
    assert not any(isinstance(each, Counted) for each in host.sent)
    host.applied = 9
    made.go_on()
    made.flush()
    assert [each.question for each in host.sent if isinstance(each, Counted)] == [1, 2]


def test_a_session_of_which_too_much_waits_is_ended(
    host: HostByHand, made: RemoteLeaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaders, "EARLY_MAX", 3)
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    made.receive(SENDER, SOURCE, 0, Attach(0, ()))
    for question in range(4):
        made.receive(SENDER, SOURCE, 9, CountMessages(question, 7, 0))
    made.flush()
    assert [type(each) for each in host.sent if isinstance(each, SessionEnded)] == [SessionEnded]


def test_queues_give_nothing_until_each_member_has_attached_or_said_that_it_has_nothing(
    host: HostByHand, made: RemoteLeaders
) -> None:
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    assert host.delivers == {SOURCE: False}
    made.has_nothing("a", [(SOURCE, 2)])
    assert host.delivers == {SOURCE: False}, "of an older epoch"
    made.has_nothing("a", [(SOURCE, 3)])
    assert host.delivers == {SOURCE: True}


def test_who_said_that_it_has_nothing_before_the_source_began_is_not_waited_for(
    host: HostByHand, made: RemoteLeaders
) -> None:
    made.has_nothing("a", [(SOURCE, 3)])
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    assert host.delivers == {SOURCE: True}


def test_what_a_lost_connection_had_said_early_is_forgotten(host: HostByHand, made: RemoteLeaders) -> None:
    made.has_nothing("a", [(SOURCE, 3)])
    made.receive(SENDER, SOURCE, 0, Attach(0, ()))
    made.lost("a")
    made.begins(SOURCE, 3, Marks(), has_edge=False)
    made.flush()
    assert host.delivers == {SOURCE: False}
    assert host.sent == []
