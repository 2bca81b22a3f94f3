"""Records of the cluster as keys and values, and what a roster makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.records import (
    FORGOTTEN_MAX,
    INCARNATION_MAX,
    NUMBER_MAX,
    SOURCES,
    TEXT_MAX,
    ClusterRecord,
    DesiredSetRecord,
    ForgottenRecord,
    ForgottenStartRecord,
    KnownRecord,
    MemberRecord,
    decode,
    desired_set_key,
    encode,
    forgotten_key,
    key_of,
    known_key,
    member_key,
    source_key,
)
from amqpd.cluster.roster import Changed, Roster
from amqpd.peers.entry import EPOCH_MAX, Vote
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import DeleteKey, Event, MetadataEntry, PutKey, Snapshot, StoreDamaged

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}@[A-Za-z0-9_.-]{1,8}", fullmatch=True)
NUMBERS = st.integers(0, NUMBER_MAX)
LIVES, EPOCHS, TEXTS = st.integers(0, INCARNATION_MAX), st.integers(0, EPOCH_MAX), st.text(max_size=TEXT_MAX)
MEMBERS = st.builds(MemberRecord, NAMES, LIVES, NUMBERS, TEXTS, st.integers(0, 65535), TEXTS, TEXTS, TEXTS)
KNOWN = st.builds(KnownRecord, NAMES, LIVES, NUMBERS)


@st.composite
def sources(draw: st.DrawFn) -> SourceRecord:
    members = tuple(draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)))
    generations = tuple(draw(st.lists(NUMBERS, min_size=len(members), max_size=len(members))))
    leader = Vote(draw(EPOCHS), draw(NAMES), draw(LIVES))
    number, revision, given_up = draw(st.integers(1, SOURCES)), draw(st.integers(1, NUMBER_MAX)), draw(EPOCHS)
    return SourceRecord(number, leader, members, generations, revision, given_up)


DESIRED_SETS = st.builds(
    DesiredSetRecord,
    st.integers(1, SOURCES),
    st.lists(NAMES, max_size=5, unique=True).map(tuple),
    st.just("") | NAMES,
    st.text(),
    st.integers(1, NUMBER_MAX),
)
FORGOTTEN = st.builds(ForgottenRecord, NAMES, st.lists(NUMBERS, max_size=FORGOTTEN_MAX, unique=True).map(tuple))
ASKING = st.builds(
    ForgottenStartRecord, NAMES, st.text(max_size=TEXT_MAX), st.integers(0, 65535), NUMBERS, NUMBERS, NUMBERS
)
RECORDS = MEMBERS | KNOWN | sources() | DESIRED_SETS | FORGOTTEN | ASKING


def revision_of(record: ClusterRecord) -> int:
    return record.revision if isinstance(record, SourceRecord | DesiredSetRecord) else 7


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: ClusterRecord) -> None:
    assert decode(key_of(record), encode(record), revision_of(record)) == record


def test_a_newer_versions_field_is_left_alone() -> None:
    fields = json.loads(encode(KnownRecord("a", 1, 2)))
    assert decode(known_key("a"), json.dumps({**fields, "more": []}), 1) == KnownRecord("a", 1, 2)


def test_a_key_of_another_kind_is_no_record() -> None:
    assert decode("cluster/else/a", "no JSON", 1) is None
    assert decode("topology/vhost/a/", "{}", 1) is None


SOURCE = encode(SourceRecord(3, Vote(2, "a", 1), ("a", "b"), (4, 5)))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (known_key("a"), "no JSON"),
        (known_key("a"), "[]"),
        (known_key("a"), '{"incarnation": 1}'),
        (known_key("a"), '{"incarnation": true, "generation": 1}'),
        (known_key("a"), '{"incarnation": -1, "generation": 1}'),
        (known_key("a"), '{"incarnation": 1, "generation": 9223372036854775808}'),
        (member_key("a"), '{"incarnation": 1, "generation": 1, "host": 1, "port": 1}'),
        (member_key("a"), encode(MemberRecord("a", 1, 1, "h", 65536))),
        (source_key(0), SOURCE),
        (source_key(SOURCES + 1), SOURCE),
        ("cluster/source/03", SOURCE),
        ("cluster/source/x", SOURCE),
        (source_key(3), SOURCE.replace('"b"', '"a"')),
        (desired_set_key(0), encode(DesiredSetRecord(1))),
        (desired_set_key(3), encode(DesiredSetRecord(3, ("a", "a")))),
        (desired_set_key(3), '{"members": "ab", "leader": "", "reason": ""}'),
        (desired_set_key(3), '{"members": [], "leader": ""}'),
        (source_key(3), '{"leader": {"epoch": 1, "forwarder": "a", "incarnation": 1}, "members": []}'),
        (forgotten_key("a"), '{"generations": 7}'),
        (forgotten_key("a"), '{"generations": [true]}'),
        (forgotten_key("a"), json.dumps({"generations": list(range(FORGOTTEN_MAX + 1))})),
        (source_key(3), '{"leader": null, "members": [{"name": "a", "generation": 1}]}'),
    ],
)
def test_what_cannot_be_read_is_damage(key: str, text: str) -> None:
    with pytest.raises(StoreDamaged, match=key):
        decode(key, text, 1)


@pytest.mark.parametrize(
    ("text", "said"), [("{}", "it has no 'members'"), ("{", "it is no JSON"), ("", "it is no JSON")]
)
def test_why_a_record_cannot_be_read_is_said_in_words(text: str, said: str) -> None:
    with pytest.raises(StoreDamaged) as raised:
        decode(desired_set_key(3), text, 1)
    assert str(raised.value) == f"the metadata's record {desired_set_key(3)} cannot be read ({said})"


def test_labels_say_what_fails_together() -> None:
    a, b, c = (MemberRecord(name, 1, 1, "h", 1, label) for name, label in [("a", ""), ("b", ""), ("c", "a")])
    assert len({a.domain, b.domain, c.domain}) == 3
    assert MemberRecord("d", 1, 1, "h", 1, "a").domain == c.domain


def fields(changed: Changed) -> list[frozenset[Any]]:
    return [changed.members, changed.known, changed.sources, changed.desired_sets]


def put(record: ClusterRecord) -> PutKey:
    return PutKey(key_of(record), encode(record))


@given(st.lists(st.tuples(RECORDS, st.booleans()), max_size=12))
def test_a_roster_that_hears_everything_is_the_one_that_reads_everything(
    steps: list[tuple[ClusterRecord, bool]],
) -> None:
    heard, read, entries = Roster(), Roster(), dict[str, MetadataEntry]()
    told = Changed()
    for revision, (record, gone) in enumerate(steps, 1):
        key = key_of(record)
        entries.pop(key, None)
        if not gone:
            entries[key] = MetadataEntry(key, encode(record), revision)
        changed = heard.apply(Event(revision, (DeleteKey(key) if gone else put(record), PutKey("topology/x", "?"))))
        told = Changed(*(told_of | each for told_of, each in zip(fields(told), fields(changed), strict=True)))
    changed = read.load(Snapshot(len(steps), list(entries.values())))
    # Where one who is gone was reached last, what its record was, and who of two came last to one address is known to
    # those only who heard of it.
    at = {(each.host, each.port, each.name) for each, _ in steps if isinstance(each, MemberRecord)}
    if len({place[:2] for place in at}) == len(at):
        assert read.addresses.items() <= heard.addresses.items()
    assert read.lapsed == {}
    assert read.heard_revision == 0, "a reading hears nothing"
    assert heard.heard_revision == heard.revision
    of_hearing = {"addresses": 0, "lapsed": {}, "heard_revision": 0}
    assert vars(read) | of_hearing == vars(heard) | of_hearing
    # Reading tells of what is there; hearing told of what came and went, too.
    assert changed == Changed(
        frozenset(read.members),
        frozenset(read.known),
        frozenset(read.records),
        frozenset(read.desired_sets),
        forgotten_starts=frozenset(read.forgotten_starts),
    )
    assert all(each <= told_of for each, told_of in zip(fields(changed), fields(told), strict=True))
    assert not read.load(Snapshot(len(steps), list(entries.values())))


def test_a_roster_tells_of_what_went_while_it_was_not_told() -> None:
    roster = Roster()
    roster.load(Snapshot(1, [MetadataEntry(known_key("a"), encode(KnownRecord("a", 1, 1)), 1)]))
    assert roster.load(Snapshot(2, [])) == Changed(known=frozenset({"a"}))
    assert roster.revision == 2


def test_the_deletion_of_a_key_that_is_none_changes_nothing() -> None:
    roster = Roster()
    roster.apply(Event(1, (PutKey(source_key(3), SOURCE),)))
    for key in (
        "cluster/desired/3",
        "cluster/source/03",
        "cluster/source/",
        "cluster/source/x",
        "cluster/x",
        "cluster/",
    ):
        assert not roster.apply(Event(2, (DeleteKey(key),)))
    assert roster.apply(Event(3, (DeleteKey(source_key(3)),))).sources == {3}
