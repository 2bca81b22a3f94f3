"""The ledger of deliveries against a dictionary, however small its blocks are."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from amqpd.queues.queue import Queue
from amqpd.session import unacked
from amqpd.session.unacked import BLOCK_ENTRIES_MAX, Delivered, Unacked
from tests.harness.examples import EXAMPLES
from tests.harness.harness import Harness

steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "settle", "through", "part", "all", "rollback"]),
        st.integers(0, 40),
        st.integers(1, 4),
    ),
    max_size=60,
)


def two_queues() -> list[Queue]:
    """The compiled ledger takes nothing else."""
    client = Harness().client()
    client.declare("a")
    client.declare("b")
    return list(client.harness.node.queues.values())


QUEUES = two_queues()


def tags_of(entries: list[Delivered]) -> dict[int, tuple[object, int]]:
    return {entry.tag + i: (entry.queue, entry.seq + i) for entry in entries for i in range(entry.size)}


@settings(max_examples=5 * EXAMPLES, deadline=None)
@example([("add", 0, 1), ("add", 0, 4), ("settle", 1, 1), ("settle", 0, 1), ("settle", 1, 1)], 1, 0)
@given(steps, st.integers(1, 3), st.integers(0, 2))
def test_the_ledger_is_as_in_a_dictionary(steps: list[tuple[str, int, int]], block: int, settled: int) -> None:
    queues = QUEUES
    with patch.object(unacked, "BLOCK_ENTRIES_MAX", block), patch.object(unacked, "SETTLED_MAX", settled):
        ledger, plain, taken = Unacked(), dict[int, tuple[object, int]](), list[Delivered]()
        next_tag = next_seq = 1
        for step, at, count in steps:
            outstanding = sorted(plain)
            tag = outstanding[at % len(outstanding)] if outstanding and at < 38 else at
            if step == "add":
                queue = queues[at % 2]
                next_seq += at // 30  # a gap, now and then
                ledger.add(next_tag, count, next_seq, queue, None)
                plain |= {next_tag + i: (queue, next_seq + i) for i in range(count)}
                next_tag += count
                next_seq += count
                continue
            if step == "settle":
                found, unknown = ledger.settle(tag, tag + count - 1)
                wanted = next((each for each in range(tag, tag + count) if each not in plain), None)
                expected = list(range(tag, tag + count if wanted is None else wanted))
            elif step == "part":
                found, unknown = ledger.settle_through(0, count)
                wanted, expected = None, outstanding[: sum(entry.size for entry in found)]
                assert bool(found) == bool(outstanding)
            elif step == "rollback":
                ledger.restore(taken)
                plain |= tags_of(taken)
                taken, found, unknown, wanted, expected = [], [], None, None, []
            else:
                last = tag if step == "through" else 0
                found, unknown = ledger.settle_through(last)
                wanted = last if last and last not in plain else None
                expected = [each for each in outstanding if not last or each <= last] if wanted is None else []
            assert unknown == wanted
            assert sorted(tags_of(found)) == expected
            assert tags_of(found) == {each: plain.pop(each) for each in expected}
            taken += found
            assert tags_of(list(ledger)) == plain
            assert [entry.tag for entry in ledger] == sorted(entry.tag for entry in ledger)
            assert ledger.count == len(plain)
            oldest = ledger.oldest
            assert (oldest.tag if oldest is not None else None) == min(plain, default=None)


def test_a_block_whose_settled_half_would_be_cut_off_is_not_passed_for_the_oldest() -> None:
    """512 settled entries in front of as many that are not, and one of these is cut: the block was divided between
    the two, and its first half had no entry that is outstanding."""
    ledger, queues = Unacked(), QUEUES
    sizes = [3] * (BLOCK_ENTRIES_MAX - 1) + [9]
    tags = [1 + 3 * number for number in range(BLOCK_ENTRIES_MAX)]
    for number, (tag, size) in enumerate(zip(tags, sizes, strict=True)):
        ledger.add(tag, size, tag, queues[number % 2], None)
    for tag in tags:
        ledger.settle(tag + 1, tag + 1)
    first = [entry.tag for entry in ledger]
    assert len(first) == 2 * BLOCK_ENTRIES_MAX
    assert len(ledger._blocks) == 1
    for each in first[:BLOCK_ENTRIES_MAX]:
        assert ledger.settle(each, each)[1] is None
    ledger.settle(tags[-1] + 5, tags[-1] + 5)
    oldest = ledger.oldest
    assert oldest is not None
    assert oldest.tag == first[BLOCK_ENTRIES_MAX]
    assert ledger.settle_through(0)[1] is None
    assert not ledger.count


def test_a_settlement_out_of_the_middle_moves_one_block() -> None:
    """Clients choose the order: one entry stays, and the others are settled behind it."""
    ledger, queues = Unacked(), QUEUES
    entries = 20 * BLOCK_ENTRIES_MAX
    for tag in range(1, entries + 1):
        ledger.add(tag, 1, tag, queues[tag % 2], None)
    assert max(map(len, ledger._blocks)) <= 2 * BLOCK_ENTRIES_MAX
    for tag in range(2, entries + 1):
        assert ledger.settle(tag, tag)[1] is None
        assert all(ledger._blocks), "an empty block would be passed again and again"
    assert [entry.tag for entry in ledger] == [1]
