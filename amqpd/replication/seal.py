"""Whose entries a replica takes: a seal, which is a vote and a fence in one.

What comes in: seals that others ask for. What goes out: granted or not.
Rules: 1. A replica grants one seal for each epoch, and none for an epoch below the highest that it granted. 2. It
takes entries from the home that its seal names, and from the home of a higher epoch, which is then sealed by that. 3.
A seal counts when it is on the replica's disk.
Not here: when a replica may grant one, which is a question of time (`reign.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from amqpd.replication.entry import EPOCH_MAX, EPOCH_STEP_MAX


class Seal(NamedTuple):
    """The right to append to a source in one epoch."""

    epoch: int
    forwarder: str
    life: int
    """of the forwarder's process: another life needs another epoch"""


NONE = Seal(0, "", 0)
"""of a source that has had no home"""


def is_far(epoch: int, known: int) -> bool:
    """No forwarder asks for such an epoch while `known` is the highest one that was heard of: it would use up those
    that are left."""
    return epoch > min(known + EPOCH_STEP_MAX, EPOCH_MAX)


def grants(sealed: Seal, asked: Seal) -> bool:
    """A replica whose highest seal is `sealed` may grant this one. The same one twice: the first answer was lost."""
    return asked.epoch > sealed.epoch or asked == sealed
