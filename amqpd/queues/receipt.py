"""A receipt: what is told of a run that was taken, if some of it is refused after all.

What comes in: ranges of the messages of a run that a queue did not take. What goes out: a base class.
Rules: a refusal is said before the queue's lane reports the number that the run waits for.
Not here: who waits for that number (`session/durability.py`, `transit.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Receipt(ABC):
    """The receipt of a run, by which a queue may refuse some of its messages after all."""

    @abstractmethod
    def refuse(self, low: int, high: int) -> None:
        """Messages low..high-1 of the run were not taken: to be said before the lane reports the number that they
        wait for. What was refused before, by another queue, may be in it."""

    def give_up(self, low: int, high: int) -> None:
        """As `refuse`, of what may have been taken all the same: nobody will say any more whether it was."""
        self.refuse(low, high)
