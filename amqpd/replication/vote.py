"""Whose entries a replica takes: a vote, which is a fence as well.

What comes in: votes that others ask for. What goes out: granted or not.
Rules: 1. A replica grants one vote for each epoch, and none for an epoch below the highest that it granted. 2. It
takes entries from the leader that its vote names, and from the leader of a higher epoch, which is then voted for by
that. 3. A vote counts when it is on the replica's disk.
Not here: when a replica may grant one, which is a question of time (`leader_lease.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from amqpd.replication.entry import EPOCH_MAX, EPOCH_STEP_MAX


class Vote(NamedTuple):
    """The right to append to a source in one epoch."""

    epoch: int
    forwarder: str
    incarnation: int
    """of the forwarder's process: another incarnation needs another epoch"""


NONE = Vote(0, "", 0)
"""of a source that has had no leader"""


def is_far(epoch: int, known: int) -> bool:
    """No forwarder asks for such an epoch while `known` is the highest one that was heard of: it would use up those
    that are left."""
    return epoch > min(known + EPOCH_STEP_MAX, EPOCH_MAX)


def grants(voted: Vote, asked: Vote) -> bool:
    """A replica whose highest vote is `voted` may grant this one. The same one twice: the first answer was lost."""
    return asked.epoch > voted.epoch or asked == voted
