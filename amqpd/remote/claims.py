"""Claims: what an edge says that its clients hold, when it attaches, against what its leader has.

What comes in: the subscriptions of an Attach; what the leader has of that incarnation, and of others. What goes out:
the claims that could not be given, the subscriptions that have ended.
Rules (16 of docs/decisions/remote-protocol.md): 1. A claim of an operation at or below the mark is left out: it is
done. 2. What the leader had delivered in an older session and is not claimed was never seen by a client: it goes back
before anything is given. 3. Every claim is given that can be: what is ready, or held by a claim that gives way. 4. A
settle acts on what is held by a claim of this session or was delivered in it, so nothing else stays (rule 21).
Not here: how long a new leader waits for claims (`leader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pamqp.exceptions import AMQPSoftError

from amqpd.queues.port import unheard
from amqpd.remote.endings import ended_by
from amqpd.remote.formats import CLAIMS_MAX
from amqpd.remote.held import Held, Range
from amqpd.remote.incarnation import RemoteIncarnation
from amqpd.remote.messages import DeliveryClaim, DeliveryRange, EndReason, SubscriptionEnded, SubscriptionState
from amqpd.remote.source import LedQueue
from amqpd.remote.subscriber import RemoteSubscriber


def give_back(subscriber: RemoteSubscriber, ranges: Iterable[Range]) -> None:
    """These go back to their places: no client has seen them."""
    for each in ranges:
        subscriber.queue.give_back(each.seq, each.last_seq)


def leave(subscriber: RemoteSubscriber) -> None:
    """It gets nothing more."""
    subscriber.asks = False
    if subscriber.consuming:
        subscriber.consuming = False
        subscriber.queue.cancel(subscriber, unheard)


def attach_subscriptions(
    incarnation: RemoteIncarnation,
    states: Iterable[SubscriptionState],
    queues: Mapping[int, LedQueue],
    others: Iterable[RemoteSubscriber],
) -> tuple[list[DeliveryRange], list[SubscriptionEnded]]:
    """Take what an edge says of all its subscriptions: (claims that were not given, subscriptions that have ended).
    `others`: all subscribers of the source."""
    before, incarnation.subscribers = incarnation.subscribers, {}
    kept: list[tuple[RemoteSubscriber, list[DeliveryClaim]]] = []
    ended = list[SubscriptionEnded]()
    for state in states:
        queue = queues.get(state.queue)
        if queue is None:
            ended.append(SubscriptionEnded(state.subscription, EndReason.QUEUE_GONE))
            continue
        subscriber = before.pop(state.subscription, None)
        if subscriber is None:
            subscriber = incarnation.subscriber(state.subscription, state.queue, queue, state.get)
        incarnation.subscribers[state.subscription] = subscriber
        kept.append((subscriber, _keep(subscriber, state, incarnation.mark)))
        subscriber.apply(state)
    for gone in before.values():
        give_back(gone, gone.take_all())
        leave(gone)
    _give_way(kept, [each for each in others if each.gives_way])
    refused = [
        part
        for gives_way in (False, True)  # what a client holds goes first
        for subscriber, claims in kept
        for claim in claims
        if claim.gives_way is gives_way
        for part in _claim(subscriber, claim)
    ]
    if len(refused) > CLAIMS_MAX:
        refused = [part for subscriber, _ in kept for part in _refuse_all(subscriber)]
    for subscriber, _ in kept:
        refusal = join(subscriber)
        if refusal is not None:
            ended.append(ended_by(subscriber.number, refusal))
            del incarnation.subscribers[subscriber.number]
            for each in subscriber.take_all():  # what its edge says of that is swallowed there
                subscriber.queue.requeue(each.seq, each.last_seq)
        elif subscriber.is_done:
            del incarnation.subscribers[subscriber.number]
    return refused, ended


def join(subscriber: RemoteSubscriber) -> AMQPSoftError | None:
    """It is a consumer of its queue, if it is to be one; why the queue refuses that."""
    if subscriber.cancelled_by_client:
        leave(subscriber)
    elif subscriber.consuming:
        subscriber.queue.credited(subscriber)
    elif not subscriber.is_get:
        answers = list[AMQPSoftError | None]()
        subscriber.queue.consume(subscriber, answers.append)
        refusal = answers[-1]
        subscriber.consuming = refusal is None
        return refusal
    return None


def _keep(subscriber: RemoteSubscriber, state: SubscriptionState, mark: int) -> list[DeliveryClaim]:
    """What it holds and is claimed stays; the rest goes back. The claims for what it does not hold."""
    before = subscriber.held
    for each in subscriber.gives_way:
        before.add(*each)
    subscriber.held, subscriber.gives_way = Held(), Held()
    open_claims = []
    for claim in state.claims:
        if claim.operation and claim.operation <= mark:
            continue
        held = subscriber.gives_way if claim.gives_way else subscriber.held
        number, last = claim.number, claim.number + claim.size - 1
        for each in before.take(number, last):
            if each.seq - each.number != claim.seq - claim.number:
                before.add(*each)  # another message under the number
                continue
            if each.number > number:
                open_claims.append(_cut(claim, number, each.number - 1))
            held.add(*each)
            number = each.last + 1
        if number <= last:
            open_claims.append(_cut(claim, number, last))
    give_back(subscriber, before.take_all())
    subscriber.unacked = subscriber.held.count + subscriber.gives_way.count
    return open_claims


def _cut(claim: DeliveryClaim, first: int, last: int) -> DeliveryClaim:
    return claim._replace(number=first, seq=claim.seq + first - claim.number, size=last - first + 1)


def _give_way(
    kept: Iterable[tuple[RemoteSubscriber, list[DeliveryClaim]]], givers: Iterable[RemoteSubscriber]
) -> None:
    """What clients claim, and `givers` hold by claims that give way, is ready."""
    wanted: dict[LedQueue, list[tuple[int, int]]] = {}
    for subscriber, claims in kept:
        for claim in claims:
            if not claim.gives_way:
                wanted.setdefault(subscriber.queue, []).append((claim.seq, claim.seq + claim.size - 1))
    spans = {queue: _spans(found) for queue, found in wanted.items()}
    for each in givers:
        if each.queue in spans:
            give_back(each, each.gives_way.take_messages(spans[each.queue]))


def _spans(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same, ascending, with those that overlap as one."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return spans


def _refuse_all(subscriber: RemoteSubscriber) -> list[DeliveryRange]:
    """There are more gaps in what is ready than an answer can name: nothing is given, and all goes back."""
    give_back(subscriber, subscriber.take_all())
    subscriber.unacked = 0
    return [DeliveryRange(subscriber.number, 1, subscriber.delivered)] if subscriber.delivered else []


def _claim(subscriber: RemoteSubscriber, claim: DeliveryClaim) -> list[DeliveryRange]:
    """What of it is ready it holds from now on; what could not be given."""
    last_seq = claim.seq + claim.size - 1
    held = subscriber.gives_way if claim.gives_way else subscriber.held
    refused, seq = [], claim.seq
    for first, last in subscriber.queue.hold(claim.seq, last_seq):
        if first > seq:
            refused.append(_part(subscriber, claim, seq, first - 1))
        held.add(claim.number + first - claim.seq, first, last - first + 1)
        subscriber.unacked += last - first + 1
        seq = last + 1
    if seq <= last_seq:
        refused.append(_part(subscriber, claim, seq, last_seq))
    return refused


def _part(subscriber: RemoteSubscriber, claim: DeliveryClaim, first_seq: int, last_seq: int) -> DeliveryRange:
    offset = claim.number - claim.seq
    return DeliveryRange(subscriber.number, first_seq + offset, last_seq + offset)
