"""Messages that stand again after an end that was on disk.

What comes in: all ends of a message that stood in a later incarnation, all anchors that have it, and the queue's
`proofs`.
What goes out: where the log proves it, the end, the anchor that proves it, and where the message stood again.
Rules: 1. A kill undoes ends, so a message that stands in the next incarnation is nothing wrong. 2. It is, where a
whole anchor between the two does not have it, and says what was on disk: that of an orderly stop, or that of a start.
3. Such an anchor of the same incarnation is one only if it ended the incarnation: `level` and `gap` say what was in
memory. 4. A hole of the log excuses nothing: all three rows are there.
Not here: finding those who came back (`fates.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from amqpd_spark.books.moments import INCARNATION_SHIFT


class Proof(NamedTuple):
    """A whole anchor, from its first moment to its last one; `stopped`: it ended its incarnation."""

    begin: int
    end: int
    stopped: bool


class Returned(NamedTuple):
    """A message that stood again after its end: the moments of the end, of its proof, and when it stood."""

    end: int
    proof: int
    stood: int


def returned(ends: Sequence[int], stands: Sequence[int], proofs: Sequence[Proof]) -> Returned | None:
    """The first time. All are sorted."""
    begins = [proof.begin for proof in proofs]
    for end in ends:
        again = bisect_right(stands, end)
        if again == len(stands):
            return None
        for proof in proofs[bisect_right(begins, end) :]:
            if proof.end >= stands[again]:
                break
            incarnation = proof.begin >> INCARNATION_SHIFT
            if incarnation > end >> INCARNATION_SHIFT or (proof.stopped and incarnation == end >> INCARNATION_SHIFT):
                return Returned(end, proof.begin, stands[again])
    return None
