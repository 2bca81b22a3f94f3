"""What a process claims to be in its cluster, and whether its disk goes on from where the store knows that it was.

A *claim* is the disk's generation, an incarnation above all earlier ones, and a nonce: a random number that the
process's records in the store carry, so that it knows its own. It is on the disk before the store hears of it: a
process that is killed in between, or paused until its records are gone, finds on its disk what it may find in the
store.

What comes in: what the disk has kept, what the store knows. What goes out: whether the disk goes on, the next claim.
Rules: 1. A disk goes on when what the store knows is the claim that it made last, or the one that it made that upon,
or an older one. Then it keeps its generation, however often its processes were killed or paused meanwhile. 2. Any
other disk gets a new generation: an older copy, one that was emptied, one of two copies of which the other one made
the claim. 3. A disk draws another nonce only when the store had the last one: a claim whose put was still on its way
when the process died is known when it arrives. So two nonces, and no list of them, are kept. 4. Pure.
Not here: the store (`directory.py`), the disk (`incarnations.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amqpd.cluster.records import KnownRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """The last claim of a disk, as that disk has it; all fields are 0 if the disk made none."""

    generation: int = 0
    incarnation: int = 0
    """the incarnation"""
    nonce: int = 0
    """0 is one of a version that drew none, on the disk as in the store"""
    upon: tuple[int, int] = (0, 0)
    """incarnation and nonce that the store knew when it was made"""

    def goes_on(self, known: KnownRecord) -> bool:
        """Whether the disk has all that was acknowledged under what the store knows."""
        if known.generation != self.generation or known.incarnation > self.incarnation:
            return False
        seen = known.incarnation, known.nonce
        # Of an incarnation before `upon`, the store is the older copy.
        return known.nonce in (0, self.nonce) or seen == self.upon or known.incarnation < self.upon[0]

    def next(self, known: KnownRecord | None, draw: Callable[[], int], draw_nonce: Callable[[], int]) -> Claim:
        """Of a process that starts on the disk. `known`: None, the store has never heard of this node."""
        goes_on = known is None or self.goes_on(known)
        seen = (0, 0) if known is None else (known.incarnation, known.nonce)
        # The last one was not seen in the store: its put may still come.
        open_still = goes_on and self.nonce != 0 and seen == self.upon
        return Claim(
            self.generation if goes_on and self.generation else draw(),
            max(self.incarnation, seen[0]) + 1,
            self.nonce if open_still else draw_nonce(),
            seen,
        )
