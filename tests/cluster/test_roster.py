"""What a process has heard of its cluster.

What is verified: where others are reached is not forgotten with a lease. Not verified here: the records and events
themselves (`test_directory.py`).
"""

from __future__ import annotations

from amqpd.cluster.records import KnownRecord, encode, known_key, member_key
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import DeleteKey, Entry, Event, PutKey, Snapshot
from tests.cluster.directories import member_record

B = member_record("b")
KNOWN = KnownRecord("b", B.life, B.generation)
COMES = Event(2, (PutKey(member_key("b"), encode(B)), PutKey(known_key("b"), encode(KNOWN))))


def test_one_whose_lease_ran_out_is_reached_where_it_was() -> None:
    roster = Roster()
    roster.apply(COMES)
    roster.apply(Event(3, (DeleteKey(member_key("b")),)))
    assert not roster.members
    assert roster.addresses == {"b": (B.host, B.port)}
    # Read again from the beginning: the store does not know it.
    roster.load(Snapshot(4, [Entry(known_key("b"), encode(KNOWN), 2)]))
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
