"""The walk of a message from exchange to exchange.

What comes in: the contents of a virtual host (each exchange as an `ExchangeState`), an exchange to begin with, a
message. What goes out: names of queues; or what of a message could make a difference.
Rules: 1. Each exchange is taken once, so cycles end. 2. Of every exchange on the way that matches nothing, the
alternate is taken (rabbit_exchange.erl, `process_alternate`), if it exists.
Not here: what one exchange matches (`amqpd/exchanges/`), what exists (`state.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator

from amqpd.exchanges import Matcher, Message, Reads
from amqpd.exchanges.matcher import Destination
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, QueueRecord


class ExchangeState:
    """An exchange's record and the matcher that holds its bindings. `alternate` is the name of its alternate
    exchange, by argument or policy, or None; an argument that is not a name counts as none."""

    __slots__ = ("alternate", "matcher", "record")

    def __init__(self, record: ExchangeRecord, matcher: Matcher, alternate: str | None) -> None:
        self.record = record
        self.matcher = matcher
        self.alternate = alternate


# What the walk takes, in the unit of `flow/turns.py`: an exchange, and how many destinations or keys make one.
EXCHANGE_WORK = 4
DESTINATIONS_A_WORK = 4
# Work done before other connections may be served.
STEP_WORK = 500
# Matching destinations taken at a time.
PART_MAX = 2_000

Walk = Generator[int, None, tuple[str, ...]]
"""yields now and then what it has done since it last did; the result are names of queues"""


class Walkable(ABC):
    """A virtual host, as the walk of a message sees it."""

    exchanges: dict[str, ExchangeState]
    queues: dict[str, QueueRecord]

    @abstractmethod
    def bindings_from(self, source: str) -> Collection[BindingRecord]:
        """All that leave the exchange."""

    @abstractmethod
    def next_exchanges(self, source: str) -> Collection[str]:
        """Exchanges that the exchange is bound to."""


def match_alone(vhost: Walkable, exchange_name: str, message: Message) -> tuple[tuple[str, ...], int]:
    """As `walk`, at once and for less, from an exchange that leads to no other one (`VhostTopology.leads_on`): the
    queues, and what it took in the unit of `flow/turns.py`."""
    matcher = vhost.exchanges[exchange_name].matcher
    work = EXCHANGE_WORK - matcher.work
    found = matcher.match_message(message)
    queues = vhost.queues
    names: list[str] = []
    for kind, name in found:
        if kind == "queue" and name in queues:
            names.append(name)
    return tuple(names), work + matcher.work + len(found) // DESTINATIONS_A_WORK


def walk(vhost: Walkable, exchange_name: str, message: Message) -> Walk:
    """The names of the queues that the message goes to, each once, all of them existing. Of what is changed between
    two steps, some may count already.

    The default exchange has no alternate and belongs to no user: as an alternate '' is a missing exchange, also in
    RabbitMQ (seen with 3.10.8)."""
    if exchange_name == "":
        yield len(message.routing_keys) // DESTINATIONS_A_WORK
        return tuple(key for key in dict.fromkeys(message.routing_keys) if key in vhost.queues)
    reached: dict[str, None] = {}
    walked = [exchange_name]
    seen = {exchange_name}
    work = 0
    for name in walked:
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            continue
        matched = False
        matcher = exchange.matcher
        work += EXCHANGE_WORK - matcher.work
        for found in matcher.match_in_steps(message):
            for part in (found,) if len(found) <= PART_MAX else _parts(tuple(found)):
                for destination_type, destination in part:
                    if destination_type == "queue":
                        if destination in vhost.queues:
                            matched = True
                            reached[destination] = None
                    elif destination in vhost.exchanges:
                        matched = True
                        if destination not in seen:
                            seen.add(destination)
                            walked.append(destination)
                work += len(part) // DESTINATIONS_A_WORK
                if work + matcher.work > STEP_WORK:
                    yield work + matcher.work
                    work = -matcher.work
        work += matcher.work
        alternate = exchange.alternate
        if not matched and alternate is not None and alternate not in seen:
            seen.add(alternate)
            walked.append(alternate)
    yield work
    return tuple(reached)


def _parts(found: tuple[Destination, ...]) -> Iterator[tuple[Destination, ...]]:
    for at in range(0, len(found), PART_MAX):
        yield found[at : at + PART_MAX]


def reached_reads(vhost: Walkable, exchange_name: str) -> tuple[Reads, int]:
    """What of a message the exchanges look at that it may come to, and how much they may have to look at: bindings,
    nodes of tries and exchanges. Those reached by alternates count, used or not."""
    reads = Reads.NOTHING if exchange_name else Reads.ROUTING_KEY
    weight = 0
    walked = [exchange_name]
    seen = {exchange_name}
    for name in walked:
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            continue
        reads |= exchange.matcher.reads
        weight += 1 + len(vhost.bindings_from(name)) + exchange.matcher.nodes
        following = list(vhost.next_exchanges(name))
        if exchange.alternate is not None:
            following.append(exchange.alternate)
        for other in following:
            if other not in seen:
                seen.add(other)
                walked.append(other)
    return reads, weight
