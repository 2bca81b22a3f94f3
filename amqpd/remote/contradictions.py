"""What the other end of a session says, and cannot be true after what was said before.

What comes in: a message that was read (`encoding.py`), and what this end knows of the session. What goes out: why the
session has to end, in one sentence for both ends' logs; nothing for what may be true.
Rules: 1. A peer that has sent what is in here is broken, or lies: it is found before anything of the message is done,
and costs that session, nothing else. The next Attach repairs it (rule 27 of docs/decisions/remote-protocol.md). 2.
What a peer can make this end keep is bounded. 3. An honest end never says it, in whatever order links break: the
simulator ends no session for it.
Not here: what cannot be true of any session (`formats.py`), ledgers that differ (`leader.py`, `edge.py`).
"""

from __future__ import annotations

from amqpd.journal.operation_marks import Purged
from amqpd.remote.formats import SUBSCRIPTIONS_MAX
from amqpd.remote.incarnation import RemoteIncarnation
from amqpd.remote.messages import (
    Attach,
    Attached,
    CountMessages,
    Decided,
    Deliver,
    FromEdge,
    Lowered,
    Operations,
    Publish,
    Purge,
    Subscribe,
)
from amqpd.remote.operations import UndecidedOperations
from amqpd.remote.subscription import EdgeSubscription

# Each is of a channel that waits for its answer.
QUESTIONS_MAX = 1 << 18


def in_attach(known: RemoteIncarnation, attach: Attach) -> str:
    """Against what the leader has of the incarnation."""
    for state in attach.subscriptions:
        subscriber = known.subscribers.get(state.subscription)
        if subscriber is not None and (subscriber.queue_id, subscriber.is_get) != (state.queue, state.get):
            return f"subscription {state.subscription} was another one"
    return ""


def from_edge(known: RemoteIncarnation, message: FromEdge) -> str:
    """In a session that is attached."""
    if isinstance(message, Operations):
        if message.first > known.mark + 1:
            return f"operation {message.first} follows {known.mark}"
        if message.decided > known.decided:
            return f"operation {message.decided} is said to be decided, and {known.decided} is the last one"
    elif isinstance(message, Subscribe):
        if message.subscription.subscription in known.subscribers:
            return f"subscription {message.subscription.subscription} is there"
        if len(known.subscribers) >= SUBSCRIPTIONS_MAX:
            return f"there are {SUBSCRIPTIONS_MAX} subscriptions"
    elif isinstance(message, CountMessages) and len(known.questions) >= QUESTIONS_MAX:
        return f"{QUESTIONS_MAX} questions are open"
    return ""


def in_attached(attached: Attached, operations: UndecidedOperations) -> str:
    """Against what the edge knows of its operations."""
    if not operations.decided <= attached.mark <= operations.last:
        return f"the mark {attached.mark} is of no operation from {operations.decided} to {operations.last}"
    return ""


def in_decided(decided: Decided, operations: UndecidedOperations, sent: int) -> str:
    """`sent`: the last operation that this session, or an older one, was sent."""
    if decided.number > sent:
        return f"operation {decided.number} is decided, and {sent} was sent last"
    before = operations.decided
    outcomes = [each for each in decided.outcomes if each.number > before]
    if not outcomes:
        return ""
    of = {number: each.operation for number, each in operations.above(before) if number <= decided.number}
    for outcome in outcomes:
        operation = of.get(outcome.number)
        if isinstance(outcome, Purged):
            is_true = isinstance(operation, Purge)
        else:
            # One that was given up has no run any more, and may have been refused in part before.
            run = operation.run if isinstance(operation, Publish) else None
            is_true = isinstance(operation, Publish) and (run is None or outcome.high <= run.count)
        if not is_true:
            return f"the outcome of operation {outcome.number} is none of its kind"
    return ""


def in_deliver(deliver: Deliver, subscription: EdgeSubscription, is_new: bool) -> str:
    """`is_new`: the leader was not told of the subscription."""
    last = subscription.received + deliver.high - deliver.low
    if deliver.number != subscription.received + 1:
        return f"delivery {deliver.number} of subscription {subscription.number} follows {subscription.received}"
    if is_new or last > subscription.allowed:
        return f"delivery {last} of subscription {subscription.number}, which may get {subscription.allowed}"
    return ""


def in_lowered(lowered: Lowered, subscription: EdgeSubscription) -> str:
    """Of the question that is open."""
    if not subscription.received <= lowered.messages <= subscription.allowed:
        return f"subscription {subscription.number} may get {lowered.messages}, of {subscription.allowed}"
    return ""
