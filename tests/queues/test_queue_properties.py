"""The small modules of a queue, each against the plainest thing that does the same: deadlines, arrivals, bytes of a
segment, levels, turns, returned stretches."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run, scan_publishes
from amqpd.kernel.rows import parse_row
from amqpd.queues.arrivals import ARRIVAL_MS, COARSE_MS, ArrivalTimes
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.levels import Levels
from amqpd.queues.segment import Segment
from amqpd.queues.store import SEQ_BITS
from amqpd.queues.stretches import Stretches
from tests.harness.harness import publish_bytes

BYTES_MAX = 1 << 20
times = st.integers(0, 60)


def run_of(size: int, count: int) -> Run:
    data = publish_bytes(bytes(size)) * count
    run = scan_publishes(data, 0, len(data), BYTES_MAX)
    assert run is not None
    assert run.count == count
    return run


@settings(max_examples=300)
@given(st.lists(st.one_of(st.tuples(times, st.integers(1, 3), st.integers(0, 2)), times), max_size=40))
def test_deadlines_are_told_once_and_in_their_order(steps: list[Any]) -> None:
    """A step is a publish (deadline, messages, messages without one before it), or the time that it is."""
    deadlines, waiting, next_seq = Deadlines(), [], 0
    for step in steps:
        if isinstance(step, tuple):
            deadline_ms, count, gap = step
            next_seq += gap
            deadlines.add(deadline_ms, next_seq, next_seq + count - 1)
            waiting += [(deadline_ms, seq) for seq in range(next_seq, next_seq + count)]
            next_seq += count
        else:
            told = [seq for first, last in deadlines.due(step) for seq in range(first, last + 1)]
            assert told == [seq for at, seq in sorted(waiting) if at <= step]
            waiting = [each for each in waiting if each[0] > step]
        assert deadlines.next_ms() == min((at for at, _ in waiting), default=None)
        again = Deadlines.unpack(deadlines.pack())
        assert sorted((at, seq) for at, low, high in again.by_deadline() for seq in range(low, high + 1)) == sorted(
            waiting
        )


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), min_size=1, max_size=30), st.data())
def test_arrivals_are_as_late_as_they_say(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    """(messages, ms since the ones before). Cut anywhere and put together again, and with more behind."""
    at, now_ms, true = None, 1000, []
    for count, passed in runs:
        now_ms += passed
        if at is None:
            at = ArrivalTimes(now_ms)
        else:
            at.add(len(true), now_ms)
        true += [now_ms] * count
    assert at is not None
    cut = data.draw(st.integers(1, len(true)))
    if cut < len(true):
        rest = at.cut_from(cut)
        check_arrivals(rest, true[cut:])
        at.extend(cut, rest)
    at.add(len(true), now_ms + 1000)
    # What was cut begins with an arrival that counts for earlier ones, and is told only coarsely now.
    check_arrivals(at, [*true, now_ms + 1000], ARRIVAL_MS + COARSE_MS)


def check_arrivals(at: ArrivalTimes, true: list[int], early_ms: int = ARRIVAL_MS) -> None:
    for offset, came in enumerate(true):
        assert 0 <= came - at.at(offset) < early_ms, (offset, came)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from([0, 10, 10, 200]), st.integers(1, 4)), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 6), st.sampled_from(["settle", "evict", "load"])), max_size=15
    ),
)
def test_a_segment_knows_what_is_left_and_how_large_it_is(
    runs: list[tuple[int, int]], steps: list[tuple[int, int, str]]
) -> None:
    segment = Segment(100, True)
    sizes: dict[int, int] = {}
    for size, count in runs:
        sizes |= {100 + len(sizes) + i: size for i in range(count)}
        segment.add(run_of(size, count), 0)
    raw, mixed = b"".join(run.raw() for run in segment.runs or ()), len(set(sizes.values())) > 1
    for low, count, what in steps:
        if what == "evict":
            segment.evict()
        elif what == "load" and segment.runs is None:
            segment.load(parse_row(raw))
        elif what == "settle":
            first, last = 100 + low, min(100 + low + count - 1, segment.last)
            for part in segment.live_in(first, last) if first <= last else ():
                told = segment.settle(*part)
                true = [sizes.pop(seq) for seq in range(part[0], part[1] + 1)]
                assert told[0] == len(true)
                assert segment.estimated or told[1] == sum(true)
        live = [seq for low, high in segment.live_ranges() for seq in range(100 + low, 100 + high)]
        assert live == sorted(sizes)
        gone = [seq for first, last in segment.settled_ranges() for seq in range(first, last + 1)]
        assert sorted(gone + live) == list(range(100, segment.last + 1))
        assert segment.left == len(sizes)
        if not (mixed and segment.runs is None):
            assert segment.body_bytes == sum(sizes.values())
        assert (segment.body_bytes == 0) >= (not sizes)


@settings(max_examples=150)
@given(st.lists(st.one_of(st.integers(0, 12), st.sampled_from(["take", "requeue", "settle", "purge"])), max_size=40))
def test_levels_give_the_highest_first_and_each_in_order(steps: list[Any]) -> None:
    """A step is a publish with this priority, or what happens to the first message that is ready or taken."""
    levels = Levels(0, JournalBuffer(), False, 5)
    ready: list[tuple[int, int]] = []
    taken: list[tuple[int, tuple[int, int]]] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            levels.publish(run_of(number, 1), False, 0, None, None, step)
            ready = sorted([*ready, (-min(step, 5), number)])
        elif step == "take":
            piece = levels.take(10)
            assert (piece is None) == (not ready)
            if piece is not None:
                run, low, high, seq, _ = piece
                assert (high - low, run.body_size, seq >> SEQ_BITS) == (1, ready[0][1], -ready[0][0])
                taken.append((seq, ready.pop(0)))
        elif step == "purge":
            assert sum(count for count, _ in levels.purging()) == len(ready)
            ready = []
        elif taken:
            seq, message = taken.pop(0)
            if step == "settle":
                assert levels.settle(seq, seq) == 1
            else:
                levels.requeue(seq, seq)
                ready = sorted([*ready, message])
        assert (levels.ready, levels.unacked) == (len(ready), len(taken))
        assert levels.ready_bytes == sum(size for _, size in ready)
        assert levels.unacked_bytes == sum(message[1] for _, message in taken)


@settings(max_examples=200)
@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "serve", "cut"]), st.integers(0, 30), st.integers(0, 3)), max_size=40
    ),
)
def test_what_came_back_is_served_in_its_order(fifo: bool, steps: list[tuple[str, int, int]]) -> None:
    returned, plain = Stretches(fifo), []
    for step, at, more in steps:
        if step == "add":
            free = [seq for seq in range(at, at + more + 1) if seq not in plain]
            if free == list(range(at, at + more + 1)):
                returned.add(at, at + more)
                plain = plain + free if fifo else sorted(plain + free)
        elif step == "serve" and plain:
            first, last = returned.first
            count = min(more + 1, last - first + 1)
            assert plain[:count] == list(range(first, first + count))
            returned.remove_first(count)
            del plain[:count]
        elif step == "cut":
            for first, last in returned.within(at, at + more):
                returned.cut(first, last)
                plain = [seq for seq in plain if not first <= seq <= last]
            assert not [seq for seq in plain if at <= seq <= at + more]
        assert [seq for first, last in returned for seq in range(first, last + 1)] == plain
        assert bool(returned) == bool(plain)
        if plain:
            assert returned.lowest() == min(plain)
