"""What a policy would apply to if it were stored: counted among the other policies of its virtual host.

What comes in: a policy as somebody writes it. What goes out: how many queues and exchanges its pattern matches, the
first names of those to which it would apply, and which policies win the others.
Rules: 1. Nothing is changed. 2. Queues are walked over in steps, by their records: those of other nodes count too.
3. The answer is bounded, however many names match.
Not here: which policy goes before another (`topology/policies.py`).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from typing import TypedDict

from amqpd.management.errors import BadArgument
from amqpd.management.pacing import WalkPace
from amqpd.management.running import Running
from amqpd.queues.settings import type_of
from amqpd.topology.expressions import PatternError, compile_expression
from amqpd.topology.policies import APPLY_TO, Kind
from amqpd.topology.state import VhostTopology
from amqpd.vocabulary.records import PolicyRecord

NAMES_MAX = 12
WINNERS_MAX = 5


class Winner(TypedDict):
    """A policy that goes before the one that is looked at."""

    policy: str
    count: int


class Preview(TypedDict):
    """The queues and exchanges to which a policy would apply, counted and with the first names."""

    queues: int
    """that it matches"""
    exchanges: int
    applies: int
    """of both, to how many it would apply"""
    names: list[str]
    """the first of these"""
    winners: list[Winner]
    """of the others: which policies apply to them, those with most first"""


async def preview(on: Running, record: PolicyRecord) -> Preview:
    """Raises NotFound for the virtual host, BadArgument for a pattern that is none."""
    vhost = on.vhost(record.vhost)
    try:
        compile_expression(record.pattern)
    except PatternError as error:
        raise BadArgument(f"the pattern is no regular expression: {error}") from None
    if record.apply_to not in APPLY_TO:
        raise BadArgument(f"apply-to is one of {', '.join(APPLY_TO)}")
    contest, pace = vhost.policies.contest(record), WalkPace()
    matched, won, names = Counter[Kind](), Counter[str](), list[str]()
    for kind, name, queue_type in _things(vhost):
        await pace.step()
        winner = contest.winner(kind, name, queue_type)
        if winner is None:
            continue
        matched[kind] += 1
        won[winner.name] += winner is not record
        if winner is record:
            insort(names, name)
            del names[NAMES_MAX:]
    lost = +won
    return {
        "queues": matched["queue"],
        "exchanges": matched["exchange"],
        "applies": matched.total() - lost.total(),
        "names": names,
        "winners": [{"policy": name, "count": count} for name, count in lost.most_common(WINNERS_MAX)],
    }


def _things(vhost: VhostTopology) -> Iterator[tuple[Kind, str, str]]:
    for record in list(vhost.queues.values()):
        yield "queue", record.name, type_of(record.arguments)
    for name in list(vhost.exchanges):
        if name:  # no policy is for the default exchange
            yield "exchange", name, ""
