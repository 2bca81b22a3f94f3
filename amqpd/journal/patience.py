"""Whether a commit begins at once, or after a moment in which what it would write may be settled.

What comes in: how often that was worth it. What goes out: whether to try it again.
Rules: 1. A consumer that acknowledges at once spares the commit of the message, of the acknowledgement and of the
deletion; where none does, each try costs its time. 2. So it is tried as long as one of some tries succeeds, and else
only now and then.
Not here: how long a moment is (`commit_timing.py`), what is settled (`unwritten.py`).
"""

from __future__ import annotations

from typing import Final

# A success is worth some three commits, and a try costs a third of one.
SUCCESS: Final = 4
CREDIT_MAX: Final = 32
# Without credit one commit of this many is waited with: that costs them one part in two hundred.
TRY_EACH: Final = 64


class Patience:
    """Decides whether a commit waits for a moment, by how often that was worth it."""

    def __init__(self) -> None:
        self._credit = CREDIT_MAX
        self._refused = 0

    def tries_next(self) -> bool:
        """Whether to wait with the next commit; it counts as asked for that one."""
        if self._credit > 0:
            return True
        self._refused += 1
        if self._refused < TRY_EACH:
            return False
        self._refused = 0
        return True

    def tried(self, worth_it: bool) -> None:
        """What was waited with is not needed any more, or it is."""
        self._credit = min(self._credit + SUCCESS, CREDIT_MAX) if worth_it else max(self._credit - 1, 0)
