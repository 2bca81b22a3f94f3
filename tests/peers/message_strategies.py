"""Messages between forwarders, drawn: every kind, with numbers up to the widest and payloads of all sizes."""

from __future__ import annotations

from hypothesis import strategies as st

from amqpd.peers.encoding import PROOF_BYTES_MAX, REFUSAL_BYTES_MAX
from amqpd.peers.entry import EPOCH_MAX, NUMBER_MAX, Frame, LogEntry, Position, Vote, new_entry
from amqpd.peers.messages import (
    NONCE_BYTES,
    Acknowledgement,
    Answered,
    AppliedRevision,
    AskRevision,
    Ballot,
    Cut,
    DataHeartbeat,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    Greeting,
    HandedSessions,
    Heartbeat,
    Hello,
    HoldsNothing,
    Lacked,
    Message,
    OpenedSource,
    Opening,
    OpenReplicaSet,
    Page,
    Proof,
    Purpose,
    Query,
    Refusal,
    RequestPreVote,
    RequestVote,
    SnapshotPart,
    SourceEpoch,
    ToEdge,
    ToLeader,
    Voted,
    Would,
)
from amqpd.peers.versions import HIGHEST

numbers = st.integers(0, NUMBER_MAX)
epochs = st.integers(0, EPOCH_MAX)
drawn = st.integers(0, 2**63 - 1)
sources = st.integers(1, 256)
led_sources = st.integers(0, 256)
"""with the local one of the node that leads it"""
replica_sets = st.integers(0, 2**32 - 1)
checksums = st.integers(0, 2**32 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=30)
texts = names | st.integers(0, 60_000).map(lambda length: "x" * length)
positions = st.tuples(epochs, numbers)
ranges = st.tuples(positions, positions).map(sorted)
payloads = st.binary(max_size=300) | st.integers(0, 100_000).map(bytes)
votes = st.builds(Vote, epochs, names, numbers)


@st.composite
def log_entries(draw: st.DrawFn) -> LogEntry:
    before, position = sorted(draw(st.lists(positions, min_size=2, max_size=2, unique=True)))
    return new_entry(draw(sources), position, before, draw(payloads))


entries = st.lists(log_entries(), max_size=5).map(tuple)
openings = st.builds(
    Opening,
    numbers,
    st.lists(st.builds(OpenedSource, sources, epochs, positions, st.none() | checksums, numbers), max_size=5).map(
        tuple
    ),
    numbers,
)
states = st.builds(
    lambda source, number, ends, part, first, last: SnapshotPart(source, number, ends[1], part, first, last, ends[0]),
    *(sources, numbers, ranges, payloads, st.booleans(), st.booleans()),
)
answers = st.builds(
    Acknowledgement,
    numbers,
    st.dictionaries(sources, positions, max_size=4),
    st.dictionaries(sources, votes, max_size=4),
    st.frozensets(sources, max_size=4),
    st.frozensets(sources, max_size=4),
    st.dictionaries(sources, positions, max_size=4),
)
frames = st.builds(
    Frame, numbers, numbers, entries, numbers, numbers, st.lists(sources, max_size=4).map(tuple), numbers
)
ballots = st.builds(
    lambda granted, vote, ends, generation: Ballot(granted, vote, ends[1], generation, ends[0]),
    *(st.booleans(), votes, ranges, drawn),
)
hellos = st.builds(Hello, st.just(HIGHEST), names, names, numbers, drawn, st.integers(1, HIGHEST))
bodies = payloads.filter(bool).map(lambda body: (body,))
"""as they are read: one piece"""
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)

BY_KIND: dict[type, st.SearchStrategy[Message]] = {
    Greeting: st.builds(Greeting, hellos, names, nonces, st.booleans(), purpose=st.sampled_from(Purpose)),
    Proof: st.builds(Proof, st.binary(max_size=PROOF_BYTES_MAX)),
    Refusal: st.builds(Refusal, st.text(st.characters(codec="utf-8"), max_size=REFUSAL_BYTES_MAX // 4)),
    OpenReplicaSet: st.builds(OpenReplicaSet, replica_sets, numbers, openings),
    Cut: st.builds(Cut, replica_sets, numbers, frames),
    Lacked: st.builds(Lacked, replica_sets, numbers, entries),
    Filled: st.builds(Filled, replica_sets, numbers, states),
    Heartbeat: st.builds(Heartbeat, replica_sets, numbers, numbers, numbers),
    Ended: st.builds(Ended, replica_sets, sources, epochs),
    Answered: st.builds(Answered, replica_sets, numbers, answers, numbers),
    RequestPreVote: st.builds(RequestPreVote, numbers, sources),
    Would: st.builds(Would, numbers, ballots),
    RequestVote: st.builds(RequestVote, numbers, sources, votes),
    Voted: st.builds(Voted, numbers, votes, ballots),
    FetchEntries: st.builds(FetchEntries, numbers, sources, positions),
    Entries: st.builds(Entries, numbers, entries),
    FetchParts: st.builds(FetchParts, numbers, sources, positions),
    Fetched: st.builds(Fetched, numbers, states),
    Query: st.builds(Query, numbers, texts),
    Page: st.builds(Page, numbers, texts),
    ToLeader: st.builds(ToLeader, led_sources, numbers, numbers, numbers, bodies),
    ToEdge: st.builds(ToEdge, led_sources, numbers, numbers, bodies),
    HandedSessions: st.builds(HandedSessions, sources, positions, bodies),
    HoldsNothing: st.builds(
        HoldsNothing, st.lists(st.builds(SourceEpoch, led_sources, epochs), max_size=5).map(tuple)
    ),
    DataHeartbeat: st.just(DataHeartbeat()),
    AskRevision: st.builds(AskRevision, numbers),
    AppliedRevision: st.builds(AppliedRevision, numbers, numbers, names, st.lists(names, max_size=5).map(tuple)),
}
messages: st.SearchStrategy[Message] = st.one_of(list(BY_KIND.values()))

START: Position = (0, 0)
EXAMPLES: list[Message] = [
    Greeting(Hello(HIGHEST, "shop", "a", 7, 2**62 + 1), "b", bytes(NONCE_BYTES), secret=True),
    Cut(3, 41, Frame(9, 8, (new_entry(5, (2, 9), (1, 4), b"payload"), new_entry(6, (2, 9), START, b"")), 7)),
    OpenReplicaSet(3, 1, Opening(8, (OpenedSource(5, 2, (1, 4), 12345, 9), OpenedSource(6, 2, START, None)), 6)),
    Answered(3, 41, Acknowledgement(9, {5: (1, 4)}, {6: Vote(3, "b", 2)}, frozenset({5}), frozenset({7}))),
    Entries(4, (new_entry(5, (2, 9), (1, 4), b"payload"),)),
    Page(7, '{"rows":[]}'),
    ToLeader(5, 7, 41, 9, (b"body",)),
    HoldsNothing((SourceEpoch(5, 2), SourceEpoch(6, 3))),
    HandedSessions(5, (2, 41), (b"body",)),
    AppliedRevision(4, 9, "generation", ("b", "c")),
]
"""some with all their parts"""
