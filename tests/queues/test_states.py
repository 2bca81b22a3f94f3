"""States of a queue: each (state, state) is tried, and what is not in the table raises and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from amqpd.queues.states import FOLLOWING, QueueState
from amqpd.remote.queue import RemoteQueue
from amqpd.vocabulary.records import QueueRecord
from tests.harness.harness import Harness


@pytest.mark.parametrize(("before", "after"), list(product(QueueState, QueueState)))
def test_what_follows_a_state_is_in_the_table(before: QueueState, after: QueueState) -> None:
    harness = Harness()
    harness.client().declare("q")
    queue = harness.node.queues["/", "q"]
    queue.state = before
    if after in FOLLOWING[before]:
        queue.enter(after)
        assert (queue.state, queue.is_served, queue.may_refuse) == (after, False, True)
        assert (queue.is_away, queue.is_deleted) == (
            after in (QueueState.MOVED, QueueState.UNREACHED),
            after is QueueState.DELETED,
        )
    else:
        with pytest.raises(ValueError, match=f"queue 'q' is {before.value} and cannot be {after.value}"):
            queue.enter(after)
        assert queue.state is before
    queue.state = QueueState.SERVED  # it is taken away with the rest


def test_nothing_is_served_again() -> None:
    assert not any(QueueState.SERVED in following for following in FOLLOWING.values())
    assert FOLLOWING.keys() == set(QueueState)


def test_a_queue_that_another_node_leads_is_away_and_one_that_is_served_is_not() -> None:
    harness = Harness()
    harness.client().declare("q")
    here = harness.node.queues["/", "q"]
    remote = RemoteQueue(QueueRecord("/", "far", 1 << 8), harness.node.journal.lane, harness.node.edges)
    assert (here.is_served, here.is_away, here.is_remote, here.may_refuse) == (True, False, False, False)
    assert (remote.is_served, remote.is_away, remote.is_remote, remote.may_refuse) == (False, True, True, True)
