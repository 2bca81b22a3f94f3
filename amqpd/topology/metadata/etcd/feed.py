"""Follows etcd's watch, and adds to the watch history what every revision did.

What comes in: etcd's watch from where the store was opened, for as long as it runs. What goes out: the contract's
events, ascending, without gaps.
Rules: 1. A watch that breaks, or is silent for a while, is opened again behind the last event: what a connection lost
comes then. Progress notifications are not used, since etcd has sent some too early (its issues 15220 and 18089). 2.
Before each time it is looked whether it is still the same store, and not an older state of it. 3. When etcd does not
keep the revisions any more that come next, the history is emptied up to now: its readers read everything again. 4.
What a lease of this process that ran out took with it is not an event (`leases.py`).
Not here: the history and its readers (`topology/metadata/events.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import structlog
import trio

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import RANGE, WATCH, Gateway
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.leases import Leases
from amqpd.topology.metadata.etcd.messages import EtcdEntry, Message
from amqpd.topology.metadata.etcd.patience import RETRY_S_MAX, WAIT_S
from amqpd.topology.metadata.etcd.turn import EtcdTurn
from amqpd.topology.metadata.events import EVENTS_MAX, WatchHistory
from amqpd.topology.metadata.store import Compacted, DeleteKey, Event, Operation, PutKey, StoreUnavailable

log = structlog.get_logger(component="metadata store")


class Feed:
    """Follows etcd's watch for one process, and adds its events to the watch history. `run` never returns."""

    def __init__(self, gateway: Gateway, turn: EtcdTurn, leases: Leases, events: WatchHistory) -> None:
        self._gateway = gateway
        self._turn = turn
        self._leases = leases
        self._events = events
        self.seen = events.floor
        """the last revision of which the history was told"""
        self._lost = False

    async def run(self) -> None:
        """Follows etcd's watch and hands its events on. Raises WentBack."""
        while True:
            try:
                await self._follow()
            except Compacted:
                await self._start_over()
            except StoreUnavailable as error:
                if not self._lost:
                    log.warning("the metadata store does not answer", reason=str(error))
                self._lost = True
                await trio.sleep(RETRY_S_MAX)

    async def _follow(self) -> None:
        await self._turn.read([], self._gateway.patience(WAIT_S))
        if self._lost:
            log.info("the metadata store answers again", store=str(self._gateway.access))
        self._lost = False
        await watch(self._gateway, self._turn.layout, self.seen, self._publish)

    def _publish(self, event: Event, deliberate: bool) -> bool:
        self.seen = event.revision
        if deliberate:
            self._leases.committed(event.operations, event.revision, watched=True)
        else:
            left = tuple(each for each in event.operations if not self._leases.lost(each.key, event.revision))
            event = Event(event.revision, left)
        self._events.publish([event])
        return True

    async def _start_over(self) -> None:
        """What comes next is lost: as of now, readers have to read everything."""
        answer = await self._gateway.ask(RANGE, {"key": messages.encoded(self._turn.layout.head)})
        log.warning("etcd has compacted what comes next", after=self.seen)
        self.seen = messages.revision_of(answer)
        self._events.reset(self.seen)


async def watch(gateway: Gateway, layout: Layout, after: int, receive: Callable[[Event, bool], bool]) -> None:
    """Gives `receive` every revision greater than `after`, and whether a transaction made it, until it returns False,
    or after a silence. Raises Compacted, StoreUnavailable."""
    first, end = layout.followed
    message = {
        "create_request": {
            "key": messages.encoded(first),
            "range_end": messages.encoded(end),
            "start_revision": str(after + 1),
        }
    }

    def take(result: Message) -> bool:
        if int(result.get("compact_revision", 0)):
            raise Compacted(f"etcd keeps revisions from {result['compact_revision']} on, {after} was asked for")
        if result.get("canceled"):
            raise StoreUnavailable(f"{gateway.access} cancelled a watch: {result.get('cancel_reason', '')}")
        for revision, changes in groupby(messages.events_in(result), key=lambda change: change[1].mod_revision):
            found = list(changes)
            kept = tuple(_operation(layout, deleted, each) for deleted, each in found if each.key != layout.head)
            if not receive(Event(revision, kept), len(kept) < len(found)):
                return False
        return True

    await gateway.follow(WATCH, message, take)


async def past(gateway: Gateway, layout: Layout, after: int, until: int) -> list[Event]:
    """The events greater than `after`, up to `until`, which is a revision of the store. Raises Compacted,
    StoreUnavailable."""
    events: list[Event] = []
    if after >= until:
        return events

    def take(event: Event, deliberate: bool) -> bool:
        events.append(event)
        if len(events) > EVENTS_MAX:
            raise Compacted(f"more than {EVENTS_MAX} revisions behind")
        return event.revision < until

    await watch(gateway, layout, after, take)
    if not events or events[-1].revision < until:
        raise StoreUnavailable(f"{gateway.access} does not tell what happened after revision {after}")
    return [event for event in events if event.revision <= until]


def _operation(layout: Layout, deleted: bool, found: EtcdEntry) -> Operation:
    key = layout.contract_key(found.key)
    return DeleteKey(key) if deleted else PutKey(key, found.value, found.lease)
