"""Which incarnation a queue's messages are from, over many starts."""

from __future__ import annotations

from amqpd.audit.book import Book
from amqpd.audit.epochs import Epochs
from amqpd.audit.recorder import Recorder
from amqpd.vocabulary.audit_levels import SHARE_FULL


def book(incarnation: int, epochs: Epochs, since: int) -> Book:
    recorder = Recorder(lambda: 1)
    recorder.incarnation = incarnation
    return Book(recorder, "/", "q", 256, since, epochs.of(256), SHARE_FULL)


def test_a_queue_that_the_last_incarnation_made_has_its_messages_from_there() -> None:
    epochs = Epochs(2)
    assert epochs.recovered([(256, 10, 3)]) == {256: [(1, 0), (2, 10)]}
    assert book(2, epochs, 10).stretches(3, 12) == [(1, 3, 9), (2, 10, 12)]


def test_incarnations_of_which_nothing_is_left_are_forgotten() -> None:
    known = {256: [(1, 0), (2, 10), (3, 20)]}
    assert Epochs(4, dict(known)).recovered([(256, 30, 5)])[256] == [(1, 0), (2, 10), (3, 20), (4, 30)]
    assert Epochs(4, dict(known)).recovered([(256, 30, 10)])[256] == [(2, 10), (3, 20), (4, 30)]
    assert Epochs(4, dict(known)).recovered([(256, 30, None)])[256] == [(4, 30)]


def test_numbers_that_are_given_out_again_are_of_the_incarnation_that_does_so() -> None:
    """Incarnation 3 began at 20, and nothing that came in it reached the disk."""
    epochs = Epochs(4, {256: [(1, 0), (3, 20)]})
    assert epochs.recovered([(256, 20, 5)]) == {256: [(1, 0), (4, 20)]}
    assert book(4, epochs, 20).stretches(18, 22) == [(1, 18, 19), (4, 20, 22)]


def test_a_queue_that_is_gone_is_forgotten() -> None:
    assert Epochs(3, {256: [(1, 0)], 512: [(2, 0)]}).recovered([(512, 4, 0)]) == {512: [(2, 0), (3, 4)]}


def test_a_queue_of_this_incarnation_has_no_other() -> None:
    epochs = Epochs(5)
    epochs.recovered([])
    assert epochs.of(256) == []
    assert book(5, epochs, 0).stretches(0, 1) == [(5, 0, 1)]


def test_messages_from_before_the_first_incarnation_are_of_incarnation_0() -> None:
    epochs = Epochs(1)
    epochs.recovered([(256, 10, 0)])
    assert book(1, epochs, 10).stretches(0, 10) == [(0, 0, 9), (1, 10, 10)]
