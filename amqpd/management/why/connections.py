"""Why a connection is held up, in words: what its publishes wait for, why its consumers get no more.

What comes in: a connection; or what is known of it. What goes out: sentences; what holds up most is first.
Rules: as in `queues.py`. One that nothing holds up is told so.
Not here: queues (`queues.py`), who may ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from amqpd.flow.alarms import NOT_CURRENT
from amqpd.journal.buffer import FullBecause
from amqpd.management.alarms import kinds
from amqpd.management.figures.conditions import Consuming, consuming
from amqpd.management.pacing import WalkPace
from amqpd.management.running import Running
from amqpd.management.why.queues import HELD
from amqpd.session.consumers import Consumer
from amqpd.session.ports import ConnectionBase

JOURNAL: Mapping[FullBecause, str] = {
    "disk": "what it publishes waits for the disk, which has as much to write as may wait for it",
    "majorities": "what it publishes waits for other nodes: most of those that keep copies are too far behind",
    "numbers": "what it publishes waits until most nodes of a source have the next sequence numbers reserved for it",
}
"""what a publisher waits for, by the journal's reason"""
NODE_NOT_CURRENT = (
    "what it publishes waits until this node knows that it has heard of all bindings and queues: too few of the "
    "other nodes answer, and the metadata store does not, or it is about to apply what they told it of"
)
NAMED_MAX = 3
"""queues and consumers that are named in a sentence"""


@dataclass(frozen=True, slots=True)
class Full:
    """A consumer that gets no more."""

    channel: int
    tag: str
    consuming: Consuming


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection, as far as it counts here."""

    alarms: Sequence[str]
    """for which it is blocked"""
    not_current: bool
    """it is blocked since its node may not have heard of all changes to the topology"""
    over_rate: bool
    """its user or its virtual host has a limit on what may be published in a second"""
    commit_waits: bool
    """a tx.commit of it waits for its turn"""
    leader_waits: bool
    """it uses a queue whose leader moves"""
    journal: FullBecause | None
    """why it waits for the journal"""
    slowed_by: Sequence[str]
    """queues that let their publishers wait"""
    held_bytes: int
    """of frames behind what a channel has asked for and that is not done yet"""
    unread_bytes: int
    """that wait for its client, which does not read as fast as they come"""
    choked: bool
    consumers: int
    full: Sequence[Full]
    """consumers that get no more, for another reason than that"""


async def explained(on: Running, connection: ConnectionBase) -> list[str]:
    """Of one that is there."""
    pace, consumers, full = WalkPace(), 0, list[Full]()
    for channel in list(connection.channels.values()):
        for tag, consumer in list(channel.consumers.items()):
            await pace.step()
            consumers += 1
            said = consuming(consumer) if isinstance(consumer, Consumer) else None
            if said is not None and said.held not in ("", "slow"):
                full.append(Full(channel.id, tag, said))
    return sentences(_connected(on, connection, consumers, full))


def _connected(on: Running, connection: ConnectionBase, consumers: int, full: Sequence[Full]) -> Connected:
    intake, shared = connection.intake, connection.shared
    return Connected(
        alarms=kinds(on) if intake.blocked else (),
        not_current=intake.blocked and NOT_CURRENT in shared.alarms.kinds,
        over_rate=connection in shared.quotas.waiting,
        commit_waits=intake.parked and connection not in shared.leader_moves.waiting,
        leader_waits=connection in shared.leader_moves.waiting,
        journal=shared.journal.full_because if connection.publishing else None,
        slowed_by=[queue.record.name for queue in list(intake.congested) if shared.congestion.slows(queue)],
        held_bytes=intake.held_bytes,
        unread_bytes=connection.outbox_bytes if connection.outbox_full else 0,
        choked=connection.choked,
        consumers=consumers,
        full=full,
    )


def sentences(found: Connected) -> list[str]:
    """The first says what matters most."""
    return [*_publishing(found), *_consuming(found)] or ["nothing holds it up"]


def _publishing(found: Connected) -> Iterator[str]:
    if found.alarms:
        kinds = " and ".join(found.alarms)
        yield f"it may not publish: the {kinds} {'alarms are' if len(found.alarms) > 1 else 'alarm is'} on"
    if found.not_current:
        yield NODE_NOT_CURRENT
    if found.over_rate:
        yield "it publishes faster than a limit of its user or its virtual host lets it, and is slowed down"
    if found.commit_waits:
        yield (
            "its tx.commit waits until the transaction in front of it is carried out and written, and nothing "
            "behind it is read before"
        )
    if found.leader_waits:
        yield "what it asks of a queue waits until it is decided which node leads that"
    if found.journal is not None:
        yield JOURNAL[found.journal]
    if found.slowed_by:
        names = _named([f"'{name}'" for name in found.slowed_by])
        plural = len(found.slowed_by) > 1
        yield (
            f"it publishes to {'queues' if plural else 'queue'} {names} faster than {'they' if plural else 'it'} "
            + ("drain" if plural else "drains")
        )
    if found.held_bytes:
        yield f"{found.held_bytes:,} bytes of it wait until what a channel has asked for before is done"


def _consuming(found: Connected) -> Iterator[str]:
    if found.choked:
        yield f"its client does not read: {found.unread_bytes:,} bytes wait for it, and nothing it sends is taken"
    elif found.unread_bytes:
        yield f"its client does not read fast enough: {found.unread_bytes:,} bytes wait for it, and no more is sent"
    if not found.full:
        return
    if found.consumers == 1:
        [only] = found.full
        yield f"its only consumer, '{only.tag}' of channel {only.channel}, {_held(only)}"
        return
    head = f"{len(found.full):,} of its {found.consumers:,} consumers get no more: "
    yield head + _named([f"'{each.tag}' of channel {each.channel} {_held(each)}" for each in found.full], "; ")


def _held(full: Full) -> str:
    said = full.consuming
    counts = f" ({said.unacked:,} of {said.prefetch:,})" if said.held == "prefetch" else ""
    return f"{HELD[said.held]}{counts}"


def _named(texts: Sequence[str], between: str = ", ") -> str:
    more = len(texts) - NAMED_MAX
    return between.join(texts[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
