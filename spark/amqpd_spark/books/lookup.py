"""What is known of each queue and incarnation, as arrays that every task has.

What comes in: `Slot`s and `Moments`. What goes out: of the slots of some messages, single figures; and where a moment
lies among the moments of their queue.
Rules: 1. A queue's moments are there once, and looked up by bisection, all of a queue's messages at once. 2. A slot
that is not known (its rows were taken away between two looks at the log) has nothing.
Not here: where it all comes from (`queues.py`), what follows (`fates.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from amqpd_spark.books.moments import NONE
from amqpd_spark.books.queues import Moments, Slot
from amqpd_spark.books.returned import Proof
from amqpd_spark.stretches.chunk import Flags, Longs, combined

ANCHORS, GAPS = "anchors", "gaps"
_PROOFS = "proofs"


class Lookup:
    def __init__(self, slots: Sequence[Slot], moments: Sequence[Moments]) -> None:
        order = sorted(slots, key=lambda each: each.slot)
        place = {each.of: number for number, each in enumerate(moments)}
        self.slot = np.array([each.slot for each in order], np.int64)
        # Behind all others that of an unknown slot.
        self.queue = np.array([*(place[each.of] for each in order), len(moments)], np.int64)
        self.epoch = np.array([*(each.epoch for each in order), 0], np.int64)
        self.last_incarnation = np.array([*(each.last_incarnation for each in order), 0], np.int64)
        self.begun = np.array([*(each.begun for each in order), False], np.bool_)
        self.recorded = np.array([*(each.recorded for each in order), False], np.bool_)
        self.lists = {
            name: [*(np.array(getattr(each, name), np.int64) for each in moments), np.zeros(0, np.int64)]
            for name in (ANCHORS, GAPS)
        }
        self.proofs = [*(of.proofs for of in moments), []]
        self.lists[_PROOFS] = [np.array([proof.begin for proof in each], np.int64) for each in self.proofs]
        self.holes = [*([(each["from"], each["to"]) for each in of.log_holes] for of in moments), []]

    def of(self, slot: Longs) -> Found:
        at = np.searchsorted(self.slot, slot)
        known = at < len(self.slot)
        known[known] = self.slot[at[known]] == slot[known]
        return Found(self, np.where(known, at, len(self.slot)))


class Found:
    """Of the slots that were asked for, one after the other."""

    def __init__(self, known: Lookup, at: Longs) -> None:
        self.epoch, self.last_incarnation = known.epoch[at], known.last_incarnation[at]
        self.begun, self.recorded = known.begun[at], known.recorded[at]
        self._known = known
        self._queue = queue = known.queue[at]
        codes, heads = combined([queue])
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(heads) + 1))
        self._of_queue = [
            (int(queue[head]), order[edges[code] : edges[code + 1]]) for code, head in enumerate(heads.tolist())
        ]

    def below(self, name: str, moment: Longs) -> Longs:
        """How many of the queue's moments are before it."""
        found = np.zeros(len(moment), np.int64)
        for values, rows in self._lists(name):
            found[rows] = np.searchsorted(values, moment[rows], "left")
        return found

    def next(self, name: str, moment: Longs) -> Longs:
        """The first one after it; NONE."""
        return self._beside(name, moment, "right", 0)

    def previous(self, name: str, moment: Longs) -> Longs:
        """The last one before it; NONE."""
        return self._beside(name, moment, "left", -1)

    def holes(self) -> Iterator[tuple[int, int, Longs, Longs]]:
        """Each of the log: from and to, which of the slots it may be about, and their queue's anchors."""
        for queue, rows in self._of_queue:
            for begin, end in self._known.holes[queue]:
                yield begin, end, rows, self._known.lists[ANCHORS][queue]

    def between(self, name: str, begin: Longs, end: Longs) -> Flags:
        """Whether one is: after `begin`, and before `end`."""
        after = self.next(name, begin)
        return np.asarray((after != NONE) & (after < end))

    def proofs(self, row: int) -> list[Proof]:
        """Of the queue of one of the slots."""
        return self._known.proofs[int(self._queue[row])]

    def proven(self, begin: Longs, end: Longs) -> Flags:
        """Whether there may be a proof: after `begin`, and before `end`."""
        return self.between(_PROOFS, begin, end)

    def _beside(self, name: str, moment: Longs, side: Literal["left", "right"], step: int) -> Longs:
        """The queue's moment that many places from where each belongs; NONE."""
        found = np.full(len(moment), NONE)
        for values, rows in self._lists(name):
            at = np.searchsorted(values, moment[rows], side) + step
            # Behind the last one and before the first one (place -1) is the same one more.
            found[rows] = np.append(values, NONE)[at]
        return found

    def _lists(self, name: str) -> Iterator[tuple[Longs, Longs]]:
        for queue, rows in self._of_queue:
            values = self._known.lists[name][queue]
            if len(values):
                yield values, rows
