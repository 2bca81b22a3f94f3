"""What a process has heard of its cluster.

What is verified: where others are reached is not forgotten with a lease, and an address is one node's; who is reached
without a lease. Not verified
here: the records and events themselves (`test_directory.py`).
"""

from __future__ import annotations

from amqpd.cluster.records import KnownRecord, MemberRecord, encode, known_key, member_key
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import DeleteKey, Event, MetadataEntry, PutKey, Snapshot
from tests.cluster.directories import member_record

B = member_record("b")
KNOWN = KnownRecord("b", B.incarnation, B.generation)
COMES = Event(2, (PutKey(member_key("b"), encode(B)), PutKey(known_key("b"), encode(KNOWN))))


def test_one_whose_lease_ran_out_is_reached_where_it_was() -> None:
    roster = Roster()
    roster.apply(COMES)
    roster.apply(Event(3, (DeleteKey(member_key("b")),)))
    assert not roster.members
    assert roster.addresses == {"b": (B.host, B.port)}
    # Read again from the beginning: the store does not know it.
    roster.load(Snapshot(4, [MetadataEntry(known_key("b"), encode(KNOWN), 2)]))
    assert roster.addresses == {"b": (B.host, B.port)}


def test_one_that_is_not_known_any_more_is_not_reached() -> None:
    roster = Roster()
    roster.apply(COMES)
    roster.apply(Event(3, (DeleteKey(member_key("b")),)))
    roster.apply(Event(4, (DeleteKey(known_key("b")),)))
    assert roster.addresses == {}
    roster.apply(COMES)
    roster.load(Snapshot(5, []))
    assert roster.addresses == {}


def test_a_machine_that_took_the_place_of_another_is_alone_at_its_address() -> None:
    d = MemberRecord("d", 1, 9, B.host, B.port)
    heard = Roster()
    heard.apply(COMES)
    heard.apply(Event(3, (DeleteKey(member_key("b")),)))
    heard.apply(Event(4, (PutKey(member_key("d"), encode(d)), PutKey(known_key("d"), encode(KNOWN)))))
    assert heard.addresses == {"d": (B.host, B.port)}
    # Also when it is read again, and when the old name comes back elsewhere.
    read = Roster()
    read.apply(COMES)
    read.load(
        Snapshot(4, [MetadataEntry(known_key("b"), encode(KNOWN), 2), MetadataEntry(member_key("d"), encode(d), 4)]),
    )
    assert read.addresses == {"d": (B.host, B.port)}
    moved = MemberRecord("b", 2, 2, B.host, B.port + 1)
    heard.apply(Event(5, (PutKey(member_key("b"), encode(moved)),)))
    assert heard.addresses == {"d": (B.host, B.port), "b": (B.host, B.port + 1)}


def test_one_whose_lease_ran_out_and_that_is_reached_is_a_member_for_who_reaches_it() -> None:
    roster = Roster()
    roster.apply(COMES)
    roster.apply(Event(3, (DeleteKey(member_key("b")),)))
    for _ in ("told by the watch", "read again from the beginning"):
        assert roster.gone == ["b"]
        assert roster.with_linked({"b"}).members == {"b": B}
        assert roster.with_linked({"b"}).gone == []
        assert not roster.with_linked({"c"}).members
        assert not roster.members, "only for who reaches it"
        roster.load(Snapshot(4, [MetadataEntry(known_key("b"), encode(KNOWN), 2)]))
    # It ended in order: that is another incarnation.
    roster.apply(Event(5, (PutKey(known_key("b"), encode(KnownRecord("b", B.incarnation + 1, B.generation))),)))
    assert not roster.with_linked({"b"}).members


def test_what_was_read_is_not_said_to_have_been_heard() -> None:
    """etcd's revision of a reading counts other programs' keys, of which no other node's watch ever tells."""
    roster = Roster()
    roster.load(Snapshot(90, [MetadataEntry(known_key("b"), encode(KNOWN), 2)]))
    assert (roster.revision, roster.heard_revision) == (90, 0)
    roster.apply(Event(95, ()))
    assert (roster.revision, roster.heard_revision) == (95, 95)
    roster.load(Snapshot(120, []))
    assert (roster.revision, roster.heard_revision) == (120, 95)
