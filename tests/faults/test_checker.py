"""The checker finds what it is there for: every kind of fault is planted, and must be found, and only it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame, header

from .checker import Verdict, check
from .history import CONFIRMED, REFUSED, Delivery, History, PublisherHistory, QueueHistory, ranges
from .workload import note_arrival


def drained(confirmed: int = 10, attempted: int = 12) -> History:
    """One publisher, one queue, a kill after the confirms; then everything was drained, even the unknown."""
    publisher = PublisherHistory("p", ("q",))
    publisher.attempt(attempted)
    publisher.resolve(0, confirmed - 1, CONFIRMED)
    queue = QueueHistory("q")
    for sequence in range(attempted):
        deliver(queue, sequence, incarnation=1)
    return History({"p": publisher}, {"q": queue}, incarnation=1)


def deliver(
    queue: QueueHistory,
    sequence: int,
    *,
    publisher: str = "p",
    redelivered: bool = False,
    incarnation: int = 0,
    settle: str = "sure",
) -> None:
    index = len(queue.deliveries)
    queue.deliveries.append(Delivery(publisher, sequence, redelivered, incarnation))
    if settle in ("sent", "sure"):
        queue.settle_sent.add(index)
    if settle == "sure":
        queue.settle_sure.add(index)


def remove(queue: QueueHistory, sequence: int) -> None:
    """Take a delivery out (and its settlement)."""
    kept = [(i, d) for i, d in enumerate(queue.deliveries) if d.sequence != sequence]
    queue.settle_sent = {new for new, (old, _) in enumerate(kept) if old in queue.settle_sent}
    queue.settle_sure = {new for new, (old, _) in enumerate(kept) if old in queue.settle_sure}
    queue.deliveries = [delivery for _, delivery in kept]


def kinds(verdict: Verdict) -> set[str]:
    names = ("lost", "unexpected", "resurrected", "misordered", "unflagged", "moved_twice", "violations")
    return {name for name in names if getattr(verdict, name)}


def test_a_good_history_is_valid_and_counted() -> None:
    verdict = check(drained())
    assert verdict.valid
    assert verdict.counts["confirmed"] == 10
    assert verdict.counts["unknown"] == 2
    assert verdict.counts["recovered"] == 2
    assert verdict.counts["duplicated"] == 0


def test_an_unknown_publish_may_come_out_or_not() -> None:
    history = drained()
    remove(history.queues["q"], 11)
    assert check(history).valid
    assert check(history).counts["recovered"] == 1


@pytest.mark.parametrize("sequence", [0, 5, 9])
def test_a_confirmed_message_that_never_came_is_lost(sequence: int) -> None:
    history = drained()
    remove(history.queues["q"], sequence)
    verdict = check(history)
    assert kinds(verdict) == {"lost"}
    assert verdict.lost == {("q", "p"): [sequence]}


def test_a_message_that_was_seen_but_never_settled_is_lost() -> None:
    """Total-queue would call it dequeued; but it went back to the queue, and must come again."""
    history = drained()
    queue = history.queues["q"]
    remove(queue, 3)
    queue.deliveries.insert(0, Delivery("p", 3, False, 0))
    queue.settle_sent = {index + 1 for index in queue.settle_sent}
    queue.settle_sure = {index + 1 for index in queue.settle_sure}
    assert check(history).lost == {("q", "p"): [3]}


def test_each_queue_of_a_fanout_must_have_it() -> None:
    history = drained()
    history.publishers["p"].queues = ("q", "r")
    history.queues["r"] = QueueHistory("r")
    for sequence in range(9):
        deliver(history.queues["r"], sequence, incarnation=1)
    assert check(history).lost == {("r", "p"): [9]}


def test_an_acknowledgement_of_unknown_outcome_settles_and_may_come_again() -> None:
    history = drained()
    queue = history.queues["q"]
    again = queue.deliveries[4]
    queue.settle_sure.discard(4)
    queue.deliveries[4] = again._replace(incarnation=0)
    deliver(queue, 4, incarnation=1)
    verdict = check(history)
    assert kinds(verdict) <= {"misordered"}
    assert verdict.counts["duplicated"] == 1
    assert verdict.counts["duplicated_unflagged_after_kill"] == 1


def test_an_acknowledged_message_that_comes_again_is_resurrected() -> None:
    history = drained()
    deliver(history.queues["q"], 4, incarnation=1, redelivered=True)
    assert check(history).resurrected == {("q", "p"): [4]}
    tolerant = check(history, acks_are_durable=False)
    assert tolerant.valid
    assert tolerant.counts["resurrected"] == 1


@pytest.mark.parametrize(
    ("publisher", "sequence"),
    [("p", 12), ("p", -1), ("nobody", 0)],
    ids=["not yet published", "below the first", "unknown publisher"],
)
def test_what_was_never_published_is_unexpected(publisher: str, sequence: int) -> None:
    history = drained()
    deliver(history.queues["q"], sequence, publisher=publisher, incarnation=1)
    verdict = check(history)
    assert verdict.unexpected == {("q", publisher): [sequence]}


def test_a_message_of_another_queue_is_unexpected() -> None:
    history = drained()
    history.queues["r"] = QueueHistory("r")
    deliver(history.queues["r"], 0, incarnation=1)
    assert kinds(check(history)) == {"unexpected"}


def test_a_refused_publish_that_comes_out_is_unexpected() -> None:
    history = drained()
    history.publishers["p"].resolve(11, 11, REFUSED)
    assert check(history).unexpected == {("q", "p"): [11]}
    remove(history.queues["q"], 11)
    assert check(history).valid


def test_a_returned_publish_that_comes_out_is_unexpected() -> None:
    history = drained()
    history.publishers["p"].unroutable.add(7)
    history.publishers["p"].returned.add(7)
    assert kinds(check(history)) == {"unexpected"}
    remove(history.queues["q"], 7)
    assert check(history).valid


def test_first_deliveries_out_of_order_are_found_and_redeliveries_are_not() -> None:
    history = drained()
    queue = history.queues["q"]
    queue.deliveries[2], queue.deliveries[3] = queue.deliveries[3], queue.deliveries[2]
    assert check(history).misordered == {("q", "p"): [2]}

    history = drained()
    queue = history.queues["q"]
    queue.settle_sent.discard(2)
    queue.settle_sure.discard(2)
    deliver(queue, 2, incarnation=1, redelivered=True)
    assert check(history).valid


def test_order_is_per_publisher() -> None:
    history = drained()
    other = PublisherHistory("o", ("q",))
    other.attempt(2)
    history.publishers["o"] = other
    for sequence in range(2):
        deliver(history.queues["q"], sequence, publisher="o", incarnation=1)
    assert check(history).valid


def test_a_duplicate_without_the_flag_in_one_incarnation_is_found() -> None:
    history = drained()
    queue = history.queues["q"]
    queue.settle_sent.discard(11)
    queue.settle_sure.discard(11)
    deliver(queue, 11, incarnation=1, redelivered=False)
    assert kinds(check(history)) == {"unflagged"}


def test_a_second_confirm_and_a_confirm_before_its_return_are_found() -> None:
    history = drained()
    history.publishers["p"].resolve(3, 4, CONFIRMED)
    assert kinds(check(history)) == {"violations"}
    publisher = PublisherHistory("p", ("q",), unroutable={1})
    publisher.attempt(3)
    publisher.resolve(0, 2, CONFIRMED)
    assert "before the return" in publisher.violations[0]


def with_dead_letters() -> History:
    """As `drained`, but every third message came out of the dead letter queue."""
    history = drained()
    history.publishers["p"].dead = "q.dead"
    dead_letters = history.queues["q.dead"] = QueueHistory(
        "q.dead", dead_letters_of="q", reason="expired", counted_as="dead"
    )
    for sequence in range(0, 12, 3):
        remove(history.queues["q"], sequence)
        deliver(dead_letters, sequence, incarnation=1)
    return history


def test_a_message_may_come_out_as_a_dead_letter_instead() -> None:
    verdict = check(with_dead_letters())
    assert verdict.valid, verdict.text()
    assert verdict.counts["dead"] == 4


def test_a_message_that_comes_out_of_neither_is_lost() -> None:
    history = with_dead_letters()
    remove(history.queues["q.dead"], 6)
    assert check(history).lost == {("q", "p"): [6]}


def test_a_message_in_its_queue_and_among_the_dead_letters_was_moved_twice() -> None:
    history = with_dead_letters()
    deliver(history.queues["q.dead"], 4, incarnation=1)
    verdict = check(history)
    assert verdict.moved_twice == {("q", "p"): [4]}
    assert kinds(verdict) == {"moved_twice", "misordered"}


def test_a_dead_letter_of_unknown_outcome_may_be_in_its_queue_too() -> None:
    """It was given to a consumer before a kill that took back the move."""
    history = with_dead_letters()
    dead_letters = history.queues["q.dead"]
    dead_letters.deliveries.insert(0, Delivery("p", 1, False, 0))
    dead_letters.settle_sent = {0} | {index + 1 for index in dead_letters.settle_sent}
    dead_letters.settle_sure = {index + 1 for index in dead_letters.settle_sure}
    assert "moved_twice" not in kinds(check(history))


def test_a_dead_letter_that_was_never_published_is_unexpected() -> None:
    history = with_dead_letters()
    deliver(history.queues["q.dead"], 12, incarnation=1)
    assert check(history).unexpected == {("q.dead", "p"): [12]}


def test_what_expires_into_nothing_may_be_missing_and_nothing_else() -> None:
    history = drained()
    history.publishers["p"].may_vanish = lambda sequence: sequence % 2 == 0
    for sequence in (2, 3):
        remove(history.queues["q"], sequence)
    verdict = check(history)
    assert verdict.lost == {("q", "p"): [3]}
    assert verdict.counts["expired into nothing"] == 1


def test_order_is_per_lane() -> None:
    history = drained()
    queue = history.queues["q"]
    queue.deliveries.sort(key=lambda delivery: (delivery.sequence % 2, delivery.sequence))
    assert kinds(check(history)) == {"misordered"}
    queue.lane_of = lambda sequence: sequence % 2
    assert check(history).valid
    queue.deliveries.reverse()
    assert kinds(check(history)) == {"misordered"}
    queue.lane_of = None
    assert check(history).valid


def test_what_comes_too_early_or_without_its_death_is_a_violation() -> None:
    queue = QueueHistory("q", earliest_ms=lambda sequence: 1 << 60)
    note_arrival(queue, "p", 3, b"")
    assert "too early" in queue.violations[0]
    dead_letters = QueueHistory("q.dead", dead_letters_of="q", reason="expired")
    note_arrival(dead_letters, "p", 3, header_of({"x-death": [{"queue": "q", "reason": "expired", "count": 1}]}))
    assert not dead_letters.violations
    for deaths in ([], [{"queue": "r", "reason": "expired", "count": 1}]):
        note_arrival(dead_letters, "p", 3, header_of({"x-death": deaths}))
    assert len(dead_letters.violations) == 2


def header_of(headers: dict[str, Any]) -> bytes:
    """The payload of a content header frame."""
    properties = commands.Basic.Properties(headers=headers)
    return frame.marshal(header.ContentHeader(body_size=0, properties=properties), 1)[7:-1]


def test_the_texts_name_what_was_found() -> None:
    history = drained()
    for sequence in (3, 4, 5, 8):
        remove(history.queues["q"], sequence)
    assert "lost = 4\n  q from p: 3-5 8" in check(history).text()
    assert "confirmed 0-9" in history.text()
    assert "incarnation 1 from p: 0-2 6-7 9-11" in history.text()


def test_ranges() -> None:
    assert ranges([]) == "none"
    assert ranges([9, 1, 2, 3, 7]) == "1-3 7 9"
