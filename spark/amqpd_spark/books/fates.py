"""Each message's fate, from its facts.

What comes in: the facts of intervals of messages that are not plain, as `facts.py` makes them; what is known of their
queues. What goes out: of each interval its fate, and why it is suspect, if it is.
Rules: 1. An end is void when the message stands in a later incarnation: its broker was killed before the end was on
disk. 2. What a hole of the log may have taken is uncertain; where all rows are there, a hole excuses nothing. 3. What
is not known of a message, as whether it is persistent, is NONE, and not the same as no.
Not here: what becomes of the suspects (`suspects.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from amqpd_spark.books.facts import INCARNATIONS_MAX
from amqpd_spark.books.gather import is_end
from amqpd_spark.books.lookup import ANCHORS, GAPS, Found, Lookup
from amqpd_spark.books.moments import INCARNATION_SHIFT, KINDS, LAST_KIND, NONE, NUMBER_MAX, NUMBER_SHIFT
from amqpd_spark.books.returned import Returned, returned
from amqpd_spark.stretches.chunk import Flags, Longs
from amqpd_spark.stretches.packed import Columns

ENDED = "ended"
"""no message's fate: how many ended in a window"""
FATE_NAMES = (*KINDS, "stranger", "uncertain", "transient", ENDED)
"""by their number; that of an end is the event's. The first one: it is not known yet"""
SUSPECTS = ("", "never_routed", "ended_twice", "ended_yet_standing", "absent", "returned_from_the_dead")
"""why, by its number; the first one is no suspect"""
_STANDING = KINDS.index("standing")


@dataclass(frozen=True)
class Fate:
    """Of each interval. `fate`, `suspect`: places in FATE_NAMES, SUSPECTS; `found`: first seen in an anchor;
    `unseen`: it may have entered in a hole of the log; `after`: the first anchor after all that is known of it, if it
    did not end."""

    fate: Longs
    suspect: Longs
    found: Flags
    unseen: Flags
    unrecorded: Flags
    after: Longs
    returned: dict[int, Returned]
    """of those that are"""


def fates(of: Columns, moments: Callable[[int], Longs], known: Lookup, cut: bool) -> Fate:
    """`moments`: of all rows of one interval. `cut`: the log was read from some time on, so messages may have entered
    before."""
    return _Fates(of, moments, known.of(of["slot"]), cut).judged()


class _Fates:
    def __init__(self, of: Columns, moments: Callable[[int], Longs], queue: Found, cut: bool) -> None:
        self.of, self.moments, self.queue, self.cut = of, moments, queue, cut
        self.stranger = (of["routed"] == NONE) & (of["stood"] == NONE)
        self.stood_incarnation = np.where(of["stood"] == NONE, 0, _incarnation(of["stood"]))
        self.ended = (of["end_last"] != NONE) & (_incarnation(of["end_last"]) >= self.stood_incarnation)
        self.after = np.where(self.ended, NONE, queue.next(ANCHORS, of["last"]))
        self.gone = self.after != NONE
        self.unseen = (of["routed"] == NONE) & (not cut) & self._entered_in_hole()
        self.in_gap = self.gone & queue.between(GAPS, of["last"], self.after)

    def judged(self) -> Fate:
        found = (self.of["routed"] == NONE) & ~self.unseen
        away = found & (self.of["stood"] != NONE) & (self.of["of_own_epoch"] == 0) & self.queue.recorded
        unrecorded = away & (not self.cut)
        suspect = self._suspect()
        returned = self._returned(suspect == 0)
        suspect[list(returned)] = SUSPECTS.index("returned_from_the_dead")
        return Fate(self._fate(), suspect, found, self.unseen, unrecorded, self.after, returned)

    def _fate(self) -> Longs:
        last_incarnation = _incarnation(self.of["last"])
        behind = last_incarnation < np.where(self.gone, _incarnation(self.after), self.queue.last_incarnation)
        over = (self.of["persistent"] != 1) & behind
        # Of one that entered in a hole, it is not known whether it was persistent.
        in_doubt = self._in_hole(over & ~self.stranger) | (self.stranger & (self.gone | behind))
        return np.select(
            [self.stranger & ~self.unseen, self.ended, in_doubt, over, ~self.gone, self.in_gap],
            [
                np.full(len(over), FATE_NAMES.index("stranger")),
                self.of["end_last"] & LAST_KIND,
                np.full(len(over), FATE_NAMES.index("uncertain")),
                np.full(len(over), FATE_NAMES.index("transient")),
                np.full(len(over), FATE_NAMES.index("standing")),
                np.full(len(over), FATE_NAMES.index("uncertain")),
            ],
            0,
        )

    def _suspect(self) -> Longs:
        of = self.of
        never_routed = self.stranger & self.queue.begun & (not self.cut) & ~self._entered_in_gap() & ~self.unseen
        yet_standing = self.ended & (of["stood"] != NONE) & (of["end_last"] < of["stood"])
        # One that may be transient is not looked for.
        lasting = (of["persistent"] == 1) | (_incarnation(self.after) <= _incarnation(of["last"]))
        absent = ~self.stranger & self.gone & lasting & ~self.in_gap & ~self._in_hole()
        conditions = [never_routed, self.ended & self._twice(), yet_standing, absent]
        return np.select(conditions, list(range(1, len(conditions) + 1)), 0)

    def _returned(self, open_yet: Flags) -> dict[int, Returned]:
        """Of those that came back; few, for most have no proof between their end and where they stand."""
        of = self.of
        came_back = open_yet & (of["end_first"] != NONE) & (self.stood_incarnation > _incarnation(of["end_first"]))
        found = {}
        for row in np.flatnonzero(came_back & self.queue.proven(of["end_first"], of["stood"])).tolist():
            moments = np.sort(self.moments(row))
            ends, stands = moments[is_end(moments & LAST_KIND)], moments[(moments & LAST_KIND) == _STANDING]
            back = returned(ends.tolist(), stands.tolist(), self.queue.proofs(row))
            if back is not None:
                found[row] = back
        return found

    def _twice(self) -> Flags:
        of = self.of
        since = np.minimum(np.maximum(self.stood_incarnation - self.queue.epoch, 0), INCARNATIONS_MAX)
        incarnations = of["end_incarnations"] >> since
        several = (incarnations & (incarnations - 1)) != 0
        first_backwards = NUMBER_MAX - _number(of["end_back"])
        in_one = (of["end_last"] != NONE) & (_number(of["end_last"]) != first_backwards)
        return np.asarray((several & ~self._undone_in_hole()) | in_one)

    def _in_hole(self, over: Flags | None = None) -> Flags:
        """What ended it may have been in a hole of the log. `over`: no later incarnation has it, whatever is written
        there."""
        found = np.zeros(len(self.gone), np.bool_)
        for begin, end, rows, _ in self.queue.holes():
            last, after = self.of["last"][rows], self.after[rows]
            meets = (end > last) & ((after == NONE) | (begin < after))
            found[rows] |= (
                meets if over is None else meets & (~over[rows] | (_incarnation(last) == begin >> INCARNATION_SHIFT))
            )
        return found

    def _entered_in_hole(self) -> Flags:
        """A hole of the log, in an incarnation in which it may have entered, and no whole anchor of the queue between
        the hole and what is known of the message first (its own anchor is none)."""
        seen = self.of["seen_first"]
        own = (seen & LAST_KIND) == _STANDING
        before = self.queue.below(ANCHORS, seen)
        found = np.zeros(len(seen), np.bool_)
        for begin, end, rows, anchors in self.queue.holes():
            between = before[rows] - int(np.searchsorted(anchors, end, "right"))
            in_its_incarnations = begin >> INCARNATION_SHIFT >= self.queue.epoch[rows]
            found[rows] |= (begin < seen[rows]) & in_its_incarnations & (between <= own[rows])
        return found

    def _undone_in_hole(self) -> Flags:
        """Of ends in two incarnations: the anchor that has the message between them may be in a hole."""
        first, last = self.of["end_first"], self.of["end_last"]
        meets = np.zeros(len(first), np.bool_)
        for begin, end, rows, _ in self.queue.holes():
            meets[rows] |= (end > first[rows]) & (begin < last[rows])
        return meets & ~self.queue.between(ANCHORS, first, last)

    def _entered_in_gap(self) -> Flags:
        """A gap, and no anchor of the queue between it and the message's last event."""
        gap, anchor = (self.queue.previous(name, self.of["last"]) for name in (GAPS, ANCHORS))
        return np.asarray((gap != NONE) & (anchor <= gap))


def _incarnation(moment: Longs) -> Longs:
    return moment >> INCARNATION_SHIFT


def _number(moment: Longs) -> Longs:
    return (moment >> NUMBER_SHIFT) & NUMBER_MAX
