"""Sessions of one data link take turns: what is verified is order within each, and that shares of bytes are even.

Not verified here: when a message is taken (`test_data_links.py`).
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.session_turns import TURN_BYTES, SessionTurns
from amqpd.peers.messages import ToEdge


def message(source: int, number: int) -> ToEdge:
    return ToEdge(source, 1, number, (b"x",))


def filled(*backlogs: tuple[int, int, int]) -> SessionTurns:
    """`backlogs`: source, how many messages, bytes of each."""
    turns = SessionTurns()
    for source, count, nbytes in backlogs:
        for number in range(count):
            turns.add(source, message(source, number), nbytes)
    return turns


def shares(turns: SessionTurns, nbytes: int) -> Counter[int]:
    """Bytes that each source has of the next ones."""
    had: Counter[int] = Counter()
    while had.total() < nbytes:
        weight = turns.next_bytes()
        taken = turns.take()
        assert isinstance(taken, ToEdge)
        had[taken.source] += weight
    return had


def test_sources_with_large_and_with_small_messages_have_the_same_share() -> None:
    turns = filled((1, 10_000, 1_000), (2, 100, 100_000), (3, 3_000, 3_333))
    had = shares(turns, 6_000_000)
    assert max(had.values()) - min(had.values()) <= 100_000 + TURN_BYTES


def test_who_comes_with_little_waits_for_no_backlog() -> None:
    turns = filled((1, 10_000, 1_000), (2, 10_000, 1_000))
    shares(turns, 1_000_000)
    turns.add(3, message(3, 0), 50)
    had = shares(turns, 2 * TURN_BYTES + 1_000)
    assert had[3] == 50


def test_a_message_larger_than_many_turns_holds_up_nobody_and_comes_in_the_end() -> None:
    turns = filled((1, 1, 20 * TURN_BYTES), (2, 1_000, 1_000))
    had = shares(turns, 900_000)
    assert 1 not in had
    assert shares(turns, 20 * TURN_BYTES)[1] == 20 * TURN_BYTES


def test_who_was_idle_has_saved_nothing() -> None:
    turns = SessionTurns()
    for number in range(1000):
        turns.add(1, message(1, number), 100)
        turns.take()
    turns = filled((1, 1_000, 1_000), (2, 1_000, 1_000))
    had = shares(turns, 500_000)
    assert abs(had[1] - had[2]) <= TURN_BYTES


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4 * TURN_BYTES)) | st.none(), max_size=60))
def test_each_message_comes_once_and_in_the_order_of_its_source(steps: list[tuple[int, int] | None]) -> None:
    """None: one is taken."""
    turns, waiting = SessionTurns(), dict[int, list[tuple[ToEdge, int]]]()
    for number, step in enumerate(steps):
        if step is not None:
            source, nbytes = step
            waiting.setdefault(source, []).append((message(source, number), nbytes))
            turns.add(source, message(source, number), nbytes)
        elif turns.nbytes:
            weight, taken = turns.next_bytes(), turns.take()
            assert isinstance(taken, ToEdge)
            assert waiting[taken.source].pop(0) == (taken, weight)
        for source in range(5):
            assert turns.nbytes_of(source) == sum(nbytes for _, nbytes in waiting.get(source, []))
        assert turns.nbytes == sum(map(turns.nbytes_of, range(5)))
