"""Histories with a hole of the log, and of messages that stand again after their end: a queue each, at a node of its
own, both named after the history.

What comes in: a queue of a log. What goes out: events of it, and numbers of rows that no file has.
Not here: what was there before holes (`conservation_stories.py`), the account (`test_conservation_holes.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.spark.conservation_stories import Queue, Story

HISTORIES: dict[str, tuple[Story, str, str]] = {}
"""name -> what happens, the books' columns that are not 0, the kinds of findings"""
LOST = "log_hole None"
ROWS = 10
"""in a file that is lost"""


def lose(queue: Queue, incarnation: int = 1) -> None:
    """The next rows were in a file that is not there: nobody says so, as when a disk lost it."""
    queue.log._numbers[queue.node, incarnation] += ROWS
    queue.log._reached[queue.node][incarnation] = queue.log._numbers[queue.node, incarnation]


def history(books: str, findings: str = LOST) -> Callable[[Story], Story]:
    def keep(function: Story) -> Story:
        HISTORIES[function.__name__] = (function, books, findings)
        return function

    return keep


@history("accepted 2, uncertain 2")
def gone_over_a_hole_is_uncertain(queue: Queue) -> None:
    queue.routed(2, tag=1)
    queue.confirmed(1, 2)
    lose(queue)
    queue.anchor()


@history("accepted 2, standing 1, uncertain 1")
def what_a_hole_comes_behind_may_have_ended_in_it(queue: Queue) -> None:
    queue.routed()
    lose(queue)
    queue.routed(first=1)


@history("accepted 1, standing 1")
def what_an_anchor_behind_the_hole_has_stands(queue: Queue) -> None:
    queue.routed()
    lose(queue)
    queue.anchor((1, 0, 1))


@history("accepted 1, uncertain 1")
def a_transient_one_may_have_ended_in_a_hole(queue: Queue) -> None:
    queue.routed(persistent=False)
    lose(queue)
    queue.anchor()


@history("accepted 1, transient 1")
def a_hole_of_a_later_incarnation_is_no_doubt_about_a_transient_one(queue: Queue) -> None:
    queue.routed(persistent=False)
    lose(queue, 2)
    queue.anchor()


@history("unseen 3, acked 3")
def it_entered_in_a_hole(queue: Queue) -> None:
    lose(queue)
    queue.add("acked", count=3)


@history("", f"{LOST}, never_routed 5")
def an_anchor_behind_the_hole_did_not_have_it(queue: Queue) -> None:
    lose(queue)
    queue.anchor(incarnation=1, reason="level")
    queue.add("acked", 5)


@history("unseen 1, standing 1")
def it_was_delivered_and_no_more(queue: Queue) -> None:
    lose(queue, 3)
    queue.add("delivered", incarnation=3)


@history("unseen 1, uncertain 1")
def whether_it_was_persistent_is_in_the_hole(queue: Queue) -> None:
    lose(queue)
    queue.add("delivered")
    queue.anchor()


@history("accepted 1, acked 1", f"ended_twice 0, {LOST}")
def an_end_cannot_be_undone_within_an_incarnation(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    lose(queue)
    queue.add("acked")


@history("accepted 1, acked 1")
def the_anchor_between_two_ends_is_in_the_hole(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    lose(queue, 2)
    queue.add("acked", incarnation=2, epoch=1)


@history("accepted 1, acked 1", f"ended_twice 0, {LOST}")
def the_anchor_between_two_ends_is_there_and_has_it_not(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor()
    lose(queue, 2)
    queue.add("acked", incarnation=2, epoch=1)


@history("accepted 1, uncertain 1")
def its_confirm_may_be_in_the_hole(queue: Queue) -> None:
    queue.routed(tag=1)
    lose(queue)
    queue.add("delivered")
    queue.anchor()


@history("accepted 1, unconfirmed 1")
def a_hole_before_the_publish_has_no_confirm_of_it(queue: Queue) -> None:
    lose(queue)
    queue.routed(tag=1)
    queue.anchor()


@history("accepted 1, missing 1", f"{LOST}, missing 0")
def a_hole_before_it_was_seen_last_excuses_nothing(queue: Queue) -> None:
    queue.routed(tag=1)
    queue.confirmed(1)
    lose(queue)
    queue.add("delivered")
    queue.anchor()


@history("accepted 1, uncertain 1")
def the_source_of_a_dead_letter_may_be_in_the_hole(queue: Queue) -> None:
    lose(queue)
    queue.routed(connection=None)
    queue.anchor()


@history("accepted 4, unseen 4, standing 2, uncertain 6")
def numbers_that_were_given_out_in_the_hole(queue: Queue) -> None:
    queue.routed(2)
    lose(queue)
    queue.routed(2, first=6)


@history("accepted 2, standing 2", f"hole 1, {LOST}")
def numbers_between_two_behind_the_hole_are_still_missed(queue: Queue) -> None:
    lose(queue)
    queue.routed()
    queue.routed(first=3)


@history("accepted 2, unseen 3, acked 1, standing 1, uncertain 3")
def of_some_of_those_numbers_the_end_is_known(queue: Queue) -> None:
    queue.routed()
    lose(queue)
    queue.routed(first=4)
    queue.add("acked", 2)


@history("accepted 1, unseen 2, standing 3")
def an_anchor_behind_the_hole_has_more(queue: Queue) -> None:
    queue.routed(first=5)
    lose(queue)
    queue.anchor((1, 0, 2), (1, 5, 1))


@history("accepted 1, found 1, standing 2", f"{LOST}, unrecorded 0")
def an_anchor_has_what_the_one_behind_the_hole_had_not(queue: Queue) -> None:
    lose(queue)
    queue.anchor(incarnation=1, reason="level")
    queue.routed(first=5)
    queue.anchor((1, 0, 1), (1, 5, 1))


@history("")
def what_was_confirmed_may_be_in_the_hole(queue: Queue) -> None:
    lose(queue)
    queue.confirmed(1, 3)
    queue.log._rows[-2]["event"] = "counted"


@history("accepted 3, standing 1, uncertain 2")
def half_of_an_anchor_says_nothing(queue: Queue) -> None:
    queue.routed(2, tag=1)
    queue.confirmed(1, 2)
    queue.anchor((1, 0, 1), follow=2)
    lose(queue, 2)
    queue.routed(incarnation=2)


@history("accepted 1, standing 1", "returned_from_the_dead 0")
def an_ack_before_an_orderly_stop_is_for_ever(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor(incarnation=1, reason="stopped")
    queue.anchor((1, 0, 1))


@history("accepted 1, acked 1", "returned_from_the_dead 0")
def it_comes_back_and_is_acked_again(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor(incarnation=1, reason="stopped")
    queue.anchor((1, 0, 1))
    queue.add("acked", incarnation=2, epoch=1)


@history("accepted 1, standing 1", "")
def an_ack_before_a_kill_may_be_undone(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1))


@history("accepted 1, standing 1", "")
def a_level_anchor_proves_nothing(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor(incarnation=1, reason="level")
    queue.anchor((1, 0, 1))


@history("accepted 1, standing 1", "returned_from_the_dead 0")
def absent_at_one_start_and_there_at_the_next(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor()
    queue.anchor((1, 0, 1), incarnation=3)


@history("accepted 1, standing 1", "")
def the_stop_was_not_flushed(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor(incarnation=1, reason="stopped")
    queue.log.add("stopped", node=queue.node, detail=json.dumps({"flushed": False}))
    queue.anchor((1, 0, 1))


@history("accepted 1, standing 1", "")
def half_of_a_stops_anchor_proves_nothing(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor(incarnation=1, reason="stopped", follow=1)
    queue.anchor((1, 0, 1))


@history("accepted 1, standing 1", f"{LOST}, returned_from_the_dead 0")
def a_hole_does_not_excuse_what_came_back(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    lose(queue)
    queue.anchor(incarnation=1, reason="stopped")
    queue.anchor((1, 0, 1))
