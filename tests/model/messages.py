"""A message as the model knows it, and what becomes of one that dies.

What comes in: what a publisher said of the message. What goes out: the dead letter, with its deaths.
Not here: when a message dies (`queues.py`), where the dead letter goes (`broker.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"


@dataclass(frozen=True)
class Death:
    queue: str
    reason: str
    exchange: str
    key: str
    expiration: int | None
    count: int = 1


@dataclass
class Message:
    """`number` stands in its body, so that everybody can be told apart."""

    number: int
    size: int
    exchange: str
    key: str
    persistent: bool = True
    priority: int | None = None
    expiration: int | None = None
    deaths: tuple[Death, ...] = ()
    """newest first"""
    first_death: tuple[str, str, str] | None = None
    last_death: tuple[str, str, str] | None = None
    """queue, reason, exchange"""
    # In a queue:
    place: int = 0
    turn: tuple[int, int, int] = (0, 0, 0)
    """what is ready is delivered in this order"""
    deadline_ms: int | None = None
    instant: bool = False
    """its time is over after the first dispatch (a TTL of 0)"""
    delivered: bool | None = False
    """None: perhaps, it stood in the journal before a crash"""
    returns: int = 0


def made_dead_letter(message: Message, queue: str, reason: str, exchange: str, key: str | None) -> Message:
    """The message as it is published again after it died in the queue, to this exchange; its own key by default."""
    known = next((death for death in message.deaths if (death.queue, death.reason) == (queue, reason)), None)
    if known is None:
        death = Death(queue, reason, message.exchange, message.key, message.expiration)
    else:
        death = replace(known, count=known.count + 1)
    return Message(
        message.number,
        message.size,
        exchange,
        message.key if key is None else key,
        message.persistent,
        message.priority,
        None,
        (death, *(other for other in message.deaths if other is not known)),
        message.first_death or (queue, reason, message.exchange),
        (queue, reason, message.exchange),
    )


def goes_round(message: Message, queue: str) -> bool:
    """It died in this queue before, and nobody has rejected it since then."""
    for index, death in enumerate(message.deaths):
        if death.queue == queue:
            return all(other.reason != REJECTED for other in message.deaths[: index + 1])
    return False
