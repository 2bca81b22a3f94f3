"""What a replica set says to be committed, beside a count of the copies of each entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpd.peers.entry import START
from amqpd.peers.messages import Acknowledgement
from amqpd.replication.commit import majority
from amqpd.replication.leader import ReplicaSetLeader

SOURCES = (1, 2, 3)
PEERS = ("b", "c", "d", "e")

cuts = st.tuples(st.just("cut"), st.sets(st.sampled_from(SOURCES)))
stored = st.tuples(st.just("stored"), st.integers(1, 9))
answers = st.tuples(
    st.just("answer"), st.sampled_from(PEERS), st.integers(0, 9), st.sets(st.sampled_from(SOURCES), max_size=2)
)
connections = st.tuples(st.sampled_from(["open", "close"]), st.sampled_from(PEERS))


class Copies:
    """Of each entry, who has it: told by answers, and forgotten by nobody."""

    def __init__(self, peers: int) -> None:
        self.peers = PEERS[:peers]
        self.replica_set = ReplicaSetLeader(("a", *self.peers), 10, kept_bytes_max=40)
        for source in SOURCES:
            self.replica_set.begin(source, 1, START, [])
        self.entries: dict[tuple[int, int], set[str]] = {}
        self.numbers: dict[str, int] = {}
        """of the last answer over this connection"""

    def cut(self, sources: set[int]) -> None:
        number = self.replica_set.number + 1
        self.replica_set.cut(number, {source: bytes(10) for source in sources})
        self.entries |= {(source, number): set() for source in sources}

    def stored(self, steps: int) -> None:
        number = min(self.replica_set.stored + steps, self.replica_set.number)
        for (_, at), copies in self.entries.items():
            if at <= number:
                copies.add("a")
        self.replica_set.note_stored(number)

    def answer(self, peer: str, steps: int, apart: set[int]) -> None:
        if peer in self.numbers:
            number = self.numbers[peer] = min(max(self.numbers[peer], 10) + steps, self.replica_set.number)
            for (source, at), copies in self.entries.items():
                if at <= number and source not in apart:
                    copies.add(peer)
            self.replica_set.answered(peer, Acknowledgement(number, {}, {}, frozenset(), frozenset(apart)))

    def open(self, peer: str) -> None:
        if peer in self.peers:
            self.numbers[peer] = 0
            self.replica_set.open(peer)

    def close(self, peer: str) -> None:
        self.numbers.pop(peer, None)
        self.replica_set.close(peer)


@given(st.sampled_from([2, 3, 4]), st.lists(cuts | stored | answers | connections, max_size=60))
def test_nothing_is_committed_without_a_majority(peers: int, steps: list[tuple[str, ...]]) -> None:
    copies = Copies(peers)
    replica_set = copies.replica_set
    before: dict[int, int] = {}
    for peer in PEERS:
        copies.open(peer)
    for what, *arguments in steps:
        getattr(copies, what)(*arguments)
        for (source, number), have in copies.entries.items():
            if number <= replica_set.committed_of(source):
                assert "a" in have
                assert len(have) >= majority(peers + 1), (source, number, have)
        now = {source: replica_set.committed_of(source) for source in SOURCES} | {0: replica_set.committed}
        assert all(now[each] >= before.get(each, 0) for each in now)
        assert replica_set.committed == min(replica_set.passed, *(now[source] for source in SOURCES))
        before = now
    for peer in PEERS:
        copies.open(peer)
    copies.stored(1000)
    for peer in copies.peers:
        copies.answer(peer, 1000, set())
    assert (replica_set.committed, replica_set.passed, replica_set.left_out, replica_set.open_bytes) == (
        replica_set.number,
        replica_set.number,
        {},
        0,
    )
    assert [replica_set.open_bytes_of(source) for source in SOURCES] == [0, 0, 0]
