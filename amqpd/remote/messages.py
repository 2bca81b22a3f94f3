"""What a client's node (the edge) and the leader of a source say to each other, one message a class.

What comes in, what goes out: values. The rules are those of docs/decisions/remote-protocol.md.
Rules: 1. A *session* is one incarnation of an edge at one epoch of a source; its messages arrive in order or not at
all, and none counts in another session. 2. Operations are numbered and act once. State (subscriptions and credit) is
absolute, and sent whole with each new session. Deliveries are void when their session has ended. 3. Deliveries are
named by subscription and number, and have the message's sequence number beside it (`held.Range`).
Not here: their bytes, connections, what they make each end do (`edge.py`, `leader.py`).

| edge -> leader | leader -> edge | of |
|---|---|---|
| Attach | Attached, Unknown | the session |
| Operations | Decided | what is done once |
| Subscribe, Credit, Lower | Subscribed, Lowered, SubscriptionEnded | subscriptions |
| | Deliver, Empty | messages |
| CountMessages | Counted | questions |
| Received | DeliveredCounts | the audit of both ledgers |
| | SessionEnded | a session that the leader gives up |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from amqpd.journal.operation_marks import Outcome
from amqpd.kernel import Run


class Sender(NamedTuple):
    """The session that a message is of, as the leader knows it."""

    forwarder: str
    incarnation: int
    session: int


class DeliveryRange(NamedTuple):
    """Deliveries first..last of a subscription, by their numbers."""

    subscription: int
    first: int
    last: int


class Settling(Enum):
    """What a client does with deliveries that it holds."""

    ACK = "ack"
    REJECT = "reject"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Publish:
    """A run that is published to queues of the source, by their ids: those that are gone are passed over (rule 7).
    Without queues it does nothing: it was refused at the edge, and its number has to be used (rule 9)."""

    queues: tuple[int, ...]
    run: Run | None


@dataclass(frozen=True, slots=True)
class Settle:
    """Deliveries that a client has settled, rejected or given back."""

    kind: Settling
    parts: tuple[DeliveryRange, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The subscription gets nothing more. What is above `last`, the last number that its client got, goes back as
    never seen; what is at or below it stays held (rule 25)."""

    subscription: int
    last: int


@dataclass(frozen=True, slots=True)
class Release:
    """The subscription's channel has ended: as `Cancel`, and what it holds is ready again (rule 25)."""

    subscription: int
    last: int


@dataclass(frozen=True, slots=True)
class Purge:
    """All that is ready in the queue leaves it; how many comes with `Decided` (rule 24)."""

    queue: int


Operation = Publish | Settle | Cancel | Release | Purge


class DeliveryClaim(NamedTuple):
    """Deliveries that an edge claims: `size` of them, numbers from `number` on, sequence numbers from `seq` on."""

    number: int
    seq: int
    size: int
    operation: int
    """the undecided one that speaks of them; 0: a client holds them"""
    gives_way: bool
    """that operation gives them back: somebody's client that holds the message goes first (rule 16)"""


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state of one subscription, whole (rules 10, 14, 16)."""

    subscription: int
    queue: int
    messages: int
    """limit of the messages ever delivered to it in this incarnation of the edge, counted as the edge received
    them"""
    nbytes: int
    """the same of bytes of bodies"""
    received: int = 0
    received_bytes: int = 0
    exclusive: bool = False
    priority: int = 0
    cancelled: bool = False
    get: bool = False
    """basic.get: one message, or `Empty`, and no more"""
    after: int = 0
    """of a get: the last operation in front of it"""
    claims: tuple[DeliveryClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Attach:
    """The first message of a session: all that the leader has to know of the edge (rules 1, 16)."""

    decided: int
    """the edge knows this operation and all before it to be decided, with their outcomes"""
    subscriptions: tuple[SubscriptionState, ...]


class EndReason(Enum):
    """Why a subscription has ended at its leader (rule 28); each has a number in the bytes."""

    QUEUE_GONE = 1
    EXCLUSIVE_USE = 2
    """of its queue: by another consumer, or it wanted that itself and is not alone"""
    OUT_OF_SERVICE = 3
    """its queue is"""
    DAMAGED = 4
    """the next message of its queue is"""


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """The leader has ended the subscription, behind the deliveries in front, or it never was one (rule 28)."""

    subscription: int
    reason: EndReason
    first: int = 0
    """of messages that are damaged, by their sequence numbers; their clients are told these"""
    last: int = 0


@dataclass(frozen=True, slots=True)
class Attached:
    """The answer to `Attach`: operations above `mark` are to be sent again, in order (rule 5)."""

    epoch: int
    mark: int
    refused: tuple[DeliveryRange, ...]
    """claims for what was settled, or is another's"""
    ended: tuple[SubscriptionEnded, ...]
    """subscriptions of the Attach that are none any more"""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer to `Attach` of an incarnation that has ended here (rule 9)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations that follow each other, the first of them with the number `first`."""

    first: int
    operations: tuple[Operation, ...]
    maybe_below: int
    """those with lower numbers were first sent in another epoch: they may have been done, and undone (rule 5)"""
    decided: int
    """as in `Attach`"""


@dataclass(frozen=True, slots=True)
class Decided:
    """Operations up to `number` are committed, or wrote nothing; what is new of their outcomes (rule 3)."""

    number: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A new subscription, which has received nothing and claims nothing."""

    subscription: SubscriptionState


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscription gets messages from now on."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The limits of a subscription, raised; one that is not above the last one changes nothing (rule 10)."""

    subscription: int
    messages: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Lower:
    """The question to lower the limits of a subscription as far as that goes (rule 10)."""

    subscription: int
    question: int
    messages: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Lowered:
    """The answer to `Lower`: the limits now, which are not below what was delivered."""

    subscription: int
    question: int
    messages: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Messages low..high-1 of the run, as deliveries from `number` on (rule 16)."""

    subscription: int
    number: int
    seq: int
    """in the queue, of the first one"""
    run: Run
    low: int
    high: int
    redelivered: bool
    ready: int = 0
    """messages that are left, for get-ok"""


@dataclass(frozen=True, slots=True)
class Empty:
    """The answer to a get: there is nothing; the subscription has ended (rule 14)."""

    subscription: int


@dataclass(frozen=True, slots=True)
class CountMessages:
    """A question: what is ready in a queue, and how many consumers it has, behind operation `after` (rules 15,
    24)."""

    question: int
    queue: int
    after: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to `CountMessages`; -1: there is no such queue."""

    question: int
    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class DeliveredCounts:
    """The leader's side of the audit, behind the deliveries that it counts (rule 27)."""

    counts: tuple[tuple[int, int], ...]
    """subscription, and how many were ever delivered to it"""


class ReceivedCount(NamedTuple):
    """The edge's side of the audit for one subscription (rule 27)."""

    subscription: int
    received: int
    held: int
    """how many deliveries clients hold of it, of which no operation speaks"""
    sum: int
    """of their numbers"""


@dataclass(frozen=True, slots=True)
class Received:
    """The edge's side of the audit, behind its operations (rule 27)."""

    counts: tuple[ReceivedCount, ...]


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The leader has given the session up: the edge attaches again."""

    reason: str


FromEdge = Attach | Operations | Subscribe | Credit | Lower | CountMessages | Received
FromLeader = (
    Attached
    | Unknown
    | Decided
    | Subscribed
    | Lowered
    | Deliver
    | Empty
    | SubscriptionEnded
    | Counted
    | DeliveredCounts
    | SessionEnded
)
