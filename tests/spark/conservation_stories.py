"""Histories of one queue each, which is named after its history: what happens, and what the account says of it.

What comes in: a queue of a log. What goes out: events of it.
Not here: histories of several queues (`conservation_chains.py`), the account (`test_conservation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.spark.log import Log

Story = Callable[["Queue"], None]
STORIES: dict[str, tuple[Story, str, str]] = {}
"""name -> what happens, the books' columns that are not 0, the kinds of findings"""


class Queue:
    """A queue of a log, at node `n1` with two incarnations, or at a node of its own."""

    def __init__(self, log: Log, name: str, queue_id: int, node: str = "n1") -> None:
        self.log, self.name, self.queue_id, self.node = log, name, queue_id, node
        self.publisher = f"to {name}"

    def add(self, event: str, first: int = 0, **columns: Any) -> None:
        given = {"queue": self.name, "queue_id": self.queue_id, "first": first, "node": self.node, **columns}
        self.log.add(event, **given)

    def routed(self, count: int = 1, tag: int = 0, **columns: Any) -> None:
        given = {"persistent": True, "connection": self.publisher, "channel": 1, "publication": self.queue_id * 100}
        self.add("routed", count=count, confirm_tag=tag, **(given | columns))

    def confirmed(self, tag: int, count: int = 1) -> None:
        about = {"confirm_tag": tag, "count": count, "connection": self.publisher, "channel": 1, "node": self.node}
        about["publication"] = self.queue_id * 100 + tag - 1
        self.log.add("published", **about)
        self.log.add("confirmed", **about)

    def anchor(
        self, *stretches: tuple[int, int, int], incarnation: int = 2, follow: int | None = None, **head: Any
    ) -> None:
        """`stretches`: epoch, first, count."""
        told = str(len(stretches) if follow is None else follow)
        head = {"reason": "recovered", "first": 0, **head}
        self.add("standing", count=0, incarnation=incarnation, detail=told, **head)
        for epoch, first, many in stretches:
            self.add("standing", first, epoch=epoch, count=many, incarnation=incarnation, persistent=True)


def story(books: str, findings: str = "") -> Callable[[Story], Story]:
    def keep(function: Story) -> Story:
        STORIES[function.__name__] = (function, books, findings)
        return function

    return keep


@story("accepted 3, acked 3")
def each_is_acked_once(queue: Queue) -> None:
    queue.routed(3)
    queue.add("delivered", count=2)
    queue.add("acked", 0, count=3)


@story("accepted 8, acked 1, expired 1, dropped 1, rejected 1, dead_lettered 1, purged 1, moved 1, released 1")
def each_end_has_its_column(queue: Queue) -> None:
    queue.routed(8)
    for first, event in enumerate(
        ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")
    ):
        queue.add(event, first, publication=queue.queue_id * 100 + 50 + first)


@story("accepted 2, standing 2")
def without_an_anchor_after_it_a_message_stands(queue: Queue) -> None:
    queue.anchor(incarnation=1)
    queue.routed(2)
    queue.add("delivered")
    queue.add("requeued")


@story("accepted 3, acked 1, standing 2")
def what_is_in_the_last_anchor_stands(queue: Queue) -> None:
    queue.routed(3)
    queue.anchor((1, 1, 2))
    queue.add("acked", epoch=1)


@story("accepted 2, acked 1, missing 1", "missing 1")
def confirmed_and_not_in_the_anchor_is_missing(queue: Queue) -> None:
    queue.routed(2, tag=1, message_id="order-1")
    queue.confirmed(1, 2)
    queue.add("acked", 0)
    queue.anchor()


@story("accepted 3, unconfirmed 2, missing 1", "missing 2")
def killed_before_the_commit_is_not_missing(queue: Queue) -> None:
    queue.routed(3, tag=1)
    queue.confirmed(3)
    queue.anchor()


@story("accepted 2, unconfirmed 1, missing 1", "missing 0")
def tags_that_come_again_confirm_only_their_own_publication(queue: Queue) -> None:
    queue.routed(tag=1)
    queue.confirmed(1)
    queue.routed(tag=1, first=1, publication=queue.queue_id * 100 + 1)
    queue.anchor()


@story("accepted 1, unconfirmed 1")
def without_confirms_nobody_was_promised_anything(queue: Queue) -> None:
    queue.routed()
    queue.anchor()


@story("accepted 1, missing 1", "missing 0")
def absent_in_the_incarnation_it_was_seen_in_is_missing(queue: Queue) -> None:
    queue.routed(persistent=False)
    queue.anchor(incarnation=1, reason="stopped")


@story("accepted 1, missing 1", "missing 0")
def recovered_once_and_absent_later_is_missing(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1))
    queue.anchor(incarnation=3)


@story("accepted 1, missing 1", "missing 0")
def stopped_in_order_and_not_recovered_is_missing(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1), incarnation=1, reason="stopped")
    queue.anchor()


@story("accepted 2, transient 2")
def a_transient_message_ends_with_the_incarnation(queue: Queue) -> None:
    queue.routed(2, persistent=False)
    queue.add("delivered")
    queue.anchor()


@story("accepted 2, transient 2")
def a_transient_queue_ends_with_the_incarnation_without_an_anchor(queue: Queue) -> None:
    queue.routed(2, persistent=False)


@story("accepted 1, standing 1")
def half_an_anchor_proves_nothing(queue: Queue) -> None:
    queue.routed()
    queue.anchor(follow=1)


@story("accepted 2, acked 2", "ended_twice 1")
def acked_twice(queue: Queue) -> None:
    queue.routed(2)
    queue.add("acked", count=2)
    queue.add("acked", 1)


@story("accepted 1, acked 1", "ended_twice 0")
def expired_and_then_acked(queue: Queue) -> None:
    queue.routed()
    queue.add("expired")
    queue.add("acked")


@story("accepted 1, acked 1", "ended_twice 0")
def acked_in_two_incarnations_and_not_recovered_between(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor()
    queue.add("acked", incarnation=2, epoch=1)


@story("accepted 1, acked 1")
def an_ack_that_a_kill_undid_is_no_end(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1))
    queue.add("delivered", incarnation=2, epoch=1, redelivered=True)
    queue.add("acked", incarnation=2, epoch=1)


@story("accepted 1, acked 1", "ended_twice 0")
def two_acks_after_the_one_that_a_kill_undid(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1))
    queue.add("acked", incarnation=2, epoch=1)
    queue.anchor(incarnation=3)
    queue.add("acked", incarnation=3, epoch=1)


@story("accepted 1, acked 1", "ended_yet_standing 0")
def ended_and_in_an_anchor_of_the_same_incarnation(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1), incarnation=1, reason="stopped")


@story("", "never_routed 4")
def delivered_and_never_routed(queue: Queue) -> None:
    queue.add("delivered", 4)


@story("found 2, acked 1, standing 1")
def what_was_there_when_recording_began_is_found(queue: Queue) -> None:
    queue.anchor((1, 0, 2), incarnation=1, reason="level", first=2)
    queue.add("acked")


@story("accepted 5, standing 5", "hole 2")
def numbers_that_were_never_used_are_a_hole(queue: Queue) -> None:
    queue.routed(2)
    queue.routed(3, first=6)


@story("accepted 1, standing 1", "hole 1")
def a_hole_at_the_end_is_told_by_the_next_number(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1), incarnation=1, reason="stopped", first=4)


@story("accepted 4, acked 2, standing 2")
def a_level_that_was_off_between_is_no_hole(queue: Queue) -> None:
    queue.routed(2)
    queue.add("acked", 0, count=2)
    queue.anchor(incarnation=1, reason="level", first=6)
    queue.routed(2, first=6)


@story("accepted 1, found 2, standing 3", "unrecorded 1")
def in_an_anchor_and_never_routed_is_a_gap_of_the_log(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 3))


@story("accepted 3, moved 2, standing 1")
def parked_without_a_name_and_partly_adopted(queue: Queue) -> None:
    """The metadata lost its queue: the broker knows no more than the number."""
    nameless: dict[str, Any] = {"queue": None, "vhost": None, "incarnation": 2}
    queue.routed(3)
    queue.add("standing", count=0, reason="recovered", detail="1", **nameless)
    queue.add("standing", count=3, persistent=True, epoch=1, **nameless)
    queue.add("moved", count=2, epoch=1, publication=queue.queue_id * 100 + 50, **nameless)
    queue.add("standing", count=0, reason="stopped", detail="1", **nameless)
    queue.add("standing", 2, persistent=True, epoch=1, **nameless)
