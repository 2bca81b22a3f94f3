"""A node that is decommissioned: leaders keep nothing of it, and its name may be another node's.

What is verified: that its last ended incarnation is forgotten, in memory and in the log; that the next node of the
name attaches, at whatever number its incarnations begin; that one that lives is not forgotten; the bound of how many
nodes a source keeps something of. Not verified: who is decommissioned (`tests/cluster`).
"""

from __future__ import annotations

from unittest.mock import patch

from amqpd.journal.operation_marks import ForwarderGone, IncarnationEnded, MarkRecord, Marks
from amqpd.remote import leader
from amqpd.remote.edge import EdgeState
from amqpd.remote.messages import Attach, Attached, Sender, SessionEnded, Unknown
from tests.remote.simulation.queue import make_run
from tests.remote.test_lies import Leading, Pair, assert_serves

FIRST = 5 << 20


def noted(leading: Leading) -> list[MarkRecord]:
    """What the leader writes from now on."""
    found: list[MarkRecord] = []
    note = leading.log.note

    def noting(record: MarkRecord) -> None:
        found.append(record)
        note(record)

    leading.log.note = noting  # type: ignore[method-assign]
    return found


def marks(leading: Leading) -> Marks:
    """As a new leader would find them."""
    return leading.log.log.contents([1, 2]).marks


def lost(leading: Leading, pair: Pair) -> None:
    """Its link, and its membership."""
    leading.leader.lost(pair.sender, leading.now_ms)
    leading.leader.membership(("b",))


def test_another_node_of_the_name_of_one_that_is_forgotten_attaches() -> None:
    leading = Leading()
    pair = Pair(leading, incarnation=FIRST)
    pair.consume(1, 5)
    pair.edge.publish(1, make_run([1, 2]))
    pair.exchange()
    lost(leading, pair)
    found = noted(leading)
    late = Pair(leading, incarnation=1)
    assert late.heard == [Unknown(1)]
    leading.leader.forget(("a", "c"))
    assert found == [ForwarderGone("a")]
    assert not leading.leader.ended
    leading.leader.membership(("a", "b"))
    after = Pair(leading, incarnation=1)
    assert_serves(after)
    leading.leader.forget(("c",))
    assert found.count(ForwarderGone("c")) == 0


def test_what_the_log_has_of_it_is_gone_for_the_next_leader_too() -> None:
    leading = Leading()
    pair = Pair(leading, incarnation=FIRST)
    pair.edge.publish(1, make_run([1]))
    pair.exchange()
    lost(leading, pair)
    leading.take()
    assert marks(leading).ended == {"a": FIRST}
    leading.leader.forget(("a",))
    leading.take()
    assert marks(leading) == Marks()


def test_one_that_has_a_session_is_not_forgotten() -> None:
    """Its link ends when it is known to be no member: then it is."""
    leading = Leading()
    pair = Pair(leading, incarnation=FIRST)
    leading.leader.membership(("b",))
    found = noted(leading)
    leading.leader.forget(("a",))
    assert found == []
    assert_serves(pair)
    found.clear()
    leading.leader.lost(pair.sender, leading.now_ms)
    leading.leader.forget(("a",))
    assert found == [IncarnationEnded("a", FIRST), ForwarderGone("a")]


def test_more_nodes_than_the_copies_of_a_source_keep_are_not_served() -> None:
    leading = Leading()
    with patch.object(leader, "FORWARDERS_MAX", 2):
        pairs = [Pair(leading, name) for name in "ab"]
        leading.tell(Sender("c", 1, 1), Attach(0, ()))
        assert [type(answer) for _, answer in leading.take()] == [SessionEnded]
        lost(leading, pairs[0])
        leading.leader.forget(("a",))
        leading.tell(Sender("c", 1, 2), Attach(0, ()))
        assert isinstance(leading.take()[0][1], Attached)
    assert pairs[1].edge.state is EdgeState.ATTACHED
