"""The pattern that traffic repeats: some thousand stretches, with each one's queue, size and fate.

What comes in: a `Plan`. What goes out: a row for each place of the cycle, with offsets: number `k` of the cycle gives
what is at `offset` the number k * (that figure's sum over a cycle) + offset.
Rules: plain Python, for the cycle is small; what is of each message is Spark's (`rows.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

EVENTS_EACH = 5
"""of most messages: published, routed, confirmed, delivered, acked"""
HOT = 0.4
"""share of the first queue, if nothing else is said"""
QUEUES_MAX = 10_000
STRETCH_MOST = 4_096
CYCLE_MIN = 1_000
DEAD = "dead letters"
DEAD_ID = 1

# Fate -> share of stretches. `unacked` and `dead_letter_waits` are there at the incarnation's end; the ack of
# `undone` was not on disk.
SHARES = {
    "acked": 0.900,
    "requeued": 0.025,
    "expired": 0.015,
    "dropped": 0.010,
    "rejected": 0.005,
    "dead_lettered": 0.015,
    "dead_letter_waits": 0.010,
    "purged": 0.005,
    "unacked": 0.010,
    "undone": 0.005,
}
TRANSIENT = 0.1
CROSSING = ("unacked", "undone", "dead_letter_waits")


@dataclass(frozen=True)
class Plan:
    """What is asked for. `stretch`: messages in one, on average; `hot`: share of the first queue."""

    events: int
    queues: int
    hours: float
    incarnations: int
    stretch: float
    seed: int
    start: datetime
    node: str = "n1"
    hot: float = HOT

    @property
    def per_incarnation(self) -> int:
        """Stretches."""
        return max(20, round(self.events / EVENTS_EACH / self.stretch / self.incarnations))

    @property
    def cycle(self) -> int:
        return min(self.per_incarnation, max(CYCLE_MIN, 10 * self.queues))

    @property
    def incarnation_us(self) -> int:
        return round(self.hours * 3_600_000_000 / self.incarnations)


@dataclass(frozen=True)
class Queue:
    name: str
    queue_id: int
    vhost: str
    user: str
    confirms: bool


@dataclass(frozen=True)
class Cycle:
    """`places`: a dictionary for each. `anchors`: queue -> (its header's number, stretches that follow, the next
    number to be given out), the same in each incarnation. `anchor_end`: the first number after all of them."""

    places: list[dict[str, Any]]
    anchors: dict[Queue, tuple[int, int, int]]
    anchor_end: int


def queues(plan: Plan) -> list[Queue]:
    vhosts = ("/", "shop", "metrics")
    return [
        Queue(f"queue {n:04}", 10 + n, vhosts[n % 3], f"service{n % 8}", confirms=n % 10 != 9)
        for n in range(plan.queues)
    ]


DEAD_QUEUE = Queue(DEAD, DEAD_ID, "/", "", confirms=False)


def cycle(plan: Plan) -> Cycle:
    chance = random.Random(plan.seed)
    every = queues(plan)
    others = [1 / rank for rank in range(1, plan.queues)]
    weights = [plan.hot, *(weight * (1 - plan.hot) / sum(others) for weight in others)]
    places: list[dict[str, Any]] = []
    for place in range(plan.cycle):
        queue = chance.choices(every, weights)[0]
        fate = chance.choices(list(SHARES), list(SHARES.values()))[0]
        many = _size(chance, plan.stretch)
        # So transient ones never stand in an anchor: their ranks in it would be another count.
        persistent = fate in CROSSING or chance.random() > TRANSIENT
        places.append({"place": place, "queue": queue, "fate": fate, "many": many, "persistent": persistent})
    _number(places)
    anchors, end = _anchor(plan, places, [DEAD_QUEUE, *every])
    for row in places:
        left_in: Queue = DEAD_QUEUE if row["fate"] == "dead_letter_waits" else row["queue"]
        row["header"] = anchors[left_in][0]
    return Cycle(places, anchors, end)


def _size(chance: random.Random, mean: float) -> int:
    """Many of 1, some long."""
    if mean <= 1 or chance.random() < 0.5:
        return 1
    return max(1, min(STRETCH_MOST, round(chance.expovariate(1 / (2 * mean - 1)))))


def _number(places: list[dict[str, Any]]) -> None:
    """Offsets of each place, and the sums over the cycle."""
    routed: dict[Queue, int] = {}
    crossing: dict[Queue, int] = {}
    published = dead_letters = 0
    for row in places:
        queue, dead_letter = row["queue"], row["fate"] in ("dead_lettered", "dead_letter_waits")
        row |= {"first_at": routed.get(queue, 0), "publication_at": published, "dead_letter_at": dead_letters}
        routed[queue] = row["first_at"] + row["many"]
        published += row["many"]
        dead_letters += row["many"] if dead_letter else 0
        of = DEAD_QUEUE if row["fate"] == "dead_letter_waits" else queue
        row["rank_at"] = crossing.get(of, 0)
        if row["fate"] in CROSSING:
            crossing[of] = row["rank_at"] + 1
    for row in places:
        of = DEAD_QUEUE if row["fate"] == "dead_letter_waits" else row["queue"]
        row |= {"first_sum": routed[row["queue"]], "published_sum": published, "dead_letter_sum": dead_letters}
        row["rank_sum"] = crossing.get(of, 0)


def _anchor(
    plan: Plan, places: list[dict[str, Any]], every: list[Queue]
) -> tuple[dict[Queue, tuple[int, int, int]], int]:
    """An anchor has the messages that all of an incarnation left."""
    whole, rest = divmod(plan.per_incarnation, len(places))
    left: dict[Queue, int] = {}
    routed: dict[Queue, int] = {}
    for row in places:
        times = whole + (row["place"] < rest)
        dead_letter = row["fate"] in ("dead_lettered", "dead_letter_waits")
        of = DEAD_QUEUE if row["fate"] == "dead_letter_waits" else row["queue"]
        if row["fate"] in CROSSING:
            left[of] = left.get(of, 0) + times
        routed[row["queue"]] = routed.get(row["queue"], 0) + times * row["many"]
        if dead_letter:
            routed[DEAD_QUEUE] = routed.get(DEAD_QUEUE, 0) + times * row["many"]
    anchors: dict[Queue, tuple[int, int, int]] = {}
    number = 10
    for queue in every:
        anchors[queue] = (number, left.get(queue, 0), routed.get(queue, 0))
        number += 1 + left.get(queue, 0)
    return anchors, number
