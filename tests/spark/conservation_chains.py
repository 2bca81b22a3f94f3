"""Histories of more than one queue, or of a broker of their own: dead letters, priorities, gaps.

What comes in: a log. What goes out: events in it.
Not here: histories of one queue (`conservation_stories.py`), the account (`test_conservation.py`).
"""

from __future__ import annotations

import json
from itertools import count

from tests.spark.conservation_stories import Queue
from tests.spark.log import Log

_ids = count(500)


def special(log: Log) -> None:
    """Stories of more than one queue, or of a broker of their own."""
    dead_letters(log)
    chains(log)
    old_source(log)
    priorities(log)
    gap(log)
    full_at_the_start(log)
    untold(log)


def dead_letters(log: Log) -> None:
    """Three messages become dead letters; the kill undoes the first, the second's dead letter is lost, the third is
    safe. A fourth is released from its delay, and that is undone; a fifth is moved, and stays so."""
    source, target = Queue(log, "source", next(_ids)), Queue(log, "target", next(_ids))
    source.routed(5, tag=1)
    source.confirmed(1, 5)
    for first, event in enumerate(("dead_lettered", "dead_lettered", "dead_lettered", "released", "moved")):
        source.add(event, first, publication=9000 + first)
        target.routed(first=first, publication=9000 + first, connection=None, reason="dead_letter")
    source.anchor((1, 0, 1), (1, 3, 1))
    target.anchor((1, 2, 1), (1, 4, 1))


def chains(log: Log) -> None:
    """Dead letters that are absent, of sources that are absent too; some came over another queue. By number in the
    last queue: what they come from."""
    source, middle, end = (Queue(log, name, next(_ids)) for name in ("chain", "chain middle", "chain end"))
    source.routed(5, tag=1)
    source.routed(tag=6, first=5, publication=source.queue_id * 100 + 5, persistent=False)
    for tag in (2, 4, 5, 6):
        source.confirmed(tag)

    def dead_letter(queue: Queue, number: int, target: Queue, as_number: int) -> None:
        publication = target.queue_id * 100 + as_number
        queue.add("dead_lettered", number, publication=publication)
        target.routed(first=as_number, publication=publication, connection=None, reason="dead_letter")

    dead_letter(source, 0, end, 0)  # an unconfirmed publish
    dead_letter(source, 1, end, 1)  # a confirmed one
    for number in (0, 1, 2):
        dead_letter(source, number + 2, middle, number)
        dead_letter(middle, number, end, number + 2)  # an unconfirmed one, a confirmed one, one that is back
    dead_letter(source, 5, end, 5)  # a confirmed one that was not persistent
    end.routed(first=6, publication=end.queue_id * 100 + 6, connection=None)  # nothing that the log has
    source.anchor((1, 4, 1))
    middle.anchor()
    end.anchor()


def old_source(log: Log) -> None:
    """A message that was safe becomes a dead letter in the incarnation after, and both are gone."""
    source, target = Queue(log, "old source", next(_ids)), Queue(log, "dead letter of old", next(_ids))
    source.routed()
    source.anchor((1, 0, 1))
    source.add("dead_lettered", incarnation=2, epoch=1, publication=9500)
    target.routed(incarnation=2, publication=9500, connection=None, reason="dead_letter")
    source.anchor(incarnation=3)
    target.anchor(incarnation=3)


def priorities(log: Log) -> None:
    for level in (0, 1):
        queue = Queue(log, "priorities", 600 + level)
        queue.routed(2)
        queue.add("acked", count=1 + level)


def gap(log: Log) -> None:
    """What came of a message while nothing was recorded is not known; what is lost before or after, is."""
    log.add("started", node="n2")
    queues = [Queue(log, name, next(_ids), "n2") for name in ("over the gap", "lost before", "lost after")]
    for queue in queues:
        queue.routed(2)
    queues[1].anchor((1, 0, 1), incarnation=1, reason="level")
    log.add("gap", at=60, node="n2", reason="disk_full", detail=json.dumps({"from": "2026-11-22T05:00:30Z"}))
    for queue in queues:
        queue.anchor((1, 0, 1), incarnation=1, reason="gap", first=2)
    queues[2].anchor(incarnation=1, reason="stopped", first=2)


def full_at_the_start(log: Log) -> None:
    """The disk had no space when an incarnation began, so its first anchor is that behind the gap; the next
    incarnation is orderly. Of another broker's incarnation nothing was written: its numbers were given out again."""
    queue = Queue(log, "full at the start", next(_ids), "n4")
    log.add("started", node="n4")
    queue.anchor(incarnation=1)
    queue.routed(4)
    queue.confirmed(1, count=4)
    queue.add("acked", 0)
    log.add("started", incarnation=2, node="n4")
    _gap_of_space(log, "n4")
    # Two of incarnation 1 are gone, one stands, and two came in the gap.
    queue.anchor((1, 1, 1), (2, 4, 2), incarnation=2, reason="gap", first=6)
    queue.routed(2, first=6, incarnation=2, publication=900)
    queue.add("acked", 5, count=2, incarnation=2, epoch=2)
    queue.anchor((1, 1, 1), (2, 4, 1), (2, 7, 1), incarnation=2, reason="stopped", first=8)
    log.add("stopped", incarnation=2, node="n4")
    log.add("started", incarnation=3, node="n4")
    queue.anchor((1, 1, 1), (2, 4, 1), (2, 7, 1), incarnation=3, first=8)

    queue = Queue(log, "full from start to end", next(_ids), "n5")
    log.add("started", node="n5")
    queue.routed(3)
    queue.add("acked", 2)
    log.add("started", incarnation=2, node="n5")
    _gap_of_space(log, "n5")
    # Numbers 2 and 3 are those of messages of the incarnation between, of which no row was written.
    queue.anchor((1, 2, 2), first=4)
    queue.add("acked", 2, count=2, incarnation=2, epoch=1)


def _gap_of_space(log: Log, node: str) -> None:
    log.add(
        "gap",
        incarnation=2,
        at=60,
        node=node,
        reason="disk_full",
        detail=json.dumps({"from": "2026-11-22T05:00:30Z"}),
    )


def untold(log: Log) -> None:
    about = {"node": "n3", "connection": "c", "channel": 1}
    log.add("published", publication=1, confirm_tag=1, count=3, **about)
    log.add("confirmed", publication=1, confirm_tag=1, count=5, **about)
