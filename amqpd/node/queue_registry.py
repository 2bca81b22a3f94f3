"""The machines of queues: made, recovered and ended as their records come and go.

What comes in: records of queues from the topology; at the start, what the journal has of them. What goes out: entries
of `Node.queues` and `Node.delayed`.
Rules: 1. A queue's machine exists exactly while its record is in the topology. 2. One whose making, recovery or new
policy fails is there all the same, out of service, and what the journal has of it is kept. 3. A removal always
succeeds. 4. What the journal has of a queue that is not in the topology is dropped only when the deletion of that
queue is recorded, or when there is no message in it; else it is parked (`orphans.py`). 5. A queue that another node
leads is there by its name only, and stopped: this node neither expires it nor deletes it for want of consumers. 6.
When a source begins here, a tick makes as many of its queues as it has time for; one that a client asks for is made
then. A source may have very many, and nobody waits for all of them.
Not here: what a queue does (`queues/queue.py`), what out of service means (`quarantine.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from amqpd.audit.publication import Publication
from amqpd.exchanges.delayed_message import DELAYED_MESSAGE
from amqpd.journal.lane import NONE, Lanes
from amqpd.journal.records import LOCAL, Recovered, RecoveredQueue
from amqpd.kernel import Run
from amqpd.node.dispatching import DEAD_LETTERS_WORK, QUEUES_SHARE_MIN
from amqpd.node.orphans import REMEDY, Orphan, Orphans, deleted_of, parted
from amqpd.node.ports import NodePort
from amqpd.queues.delayed import DelayedMessages
from amqpd.queues.dispatchable import Paged
from amqpd.queues.messages import Messages
from amqpd.queues.queue import Queue
from amqpd.queues.settings import PRIORITY_MAX, type_of
from amqpd.queues.states import QueueState
from amqpd.remote.queue import RemoteQueue
from amqpd.vocabulary.journal_numbers import delayed_id, delayed_numbers, dropped_on
from amqpd.vocabulary.records import Key, QueueRecord, UnreadableQueue
from amqpd.vocabulary.states import ConnectionState

# To make a queue of a source that begins, and for each row that is on disk of it, in the unit of `flow/turns.py`.
BEGIN_WORK, ROW_WORK = 40, 4

UNREADABLE = "put its record back as it was in a backup of the store and restart the brokers, or delete the queue"


class Beginning:
    """The queues that are still to be made of a source whose leader this node becomes."""

    def __init__(self, keys: list[tuple[str, str]], unknown: set[int]) -> None:
        self.keys = keys
        """queues to be made, if they are not by now; the last one first"""
        self.unknown = unknown
        """ids that the journal has something of, and that no queue has claimed"""


class QueueRegistry:
    """Makes and ends the machines of queues, delayed messages and orphans, as the topology and the journal say."""

    def __init__(self, node: NodePort, orphans: Orphans) -> None:
        self._node = node
        self._orphans = orphans
        self._owned: dict[str, dict[Queue, None]] = {}
        """exclusive queues by the connection that owns them"""
        self._recovered: Recovered | None = None
        self._of_source: dict[int, dict[tuple[str, str], None]] = {}
        """queues by their source, without those of the local one"""
        self._unclaimed: dict[int, Recovered] = {}
        """sources that are served here, with what they have of queues that are not made, or whose records have not
        come yet"""
        self._names: dict[int, dict[int, tuple[str, str]]] = {}
        """of sources that are led here and that remote clients use, the local one included: queues by their ids"""
        self._withheld: set[int] = set()
        """sources whose queues give nothing to anybody now"""
        self._of_node: dict[str, dict[tuple[str, str], None]] = {}
        """classic queues by the node that leads them, without those of this node; "": no node has claimed them"""
        self.beginning: dict[int, Beginning] = {}

    @property
    def recovering(self) -> bool:
        return self._recovered is not None

    def classic_of(self, node: str) -> list[QueueRecord]:
        """The classic queues of this other node; "": those that no node has claimed."""
        return [self._node.remote[key].record for key in self._of_node.get(node, ())]

    def other_nodes(self) -> dict[str, int]:
        """How many classic queues each other node leads; "": how many no node has claimed."""
        return {name: len(keys) for name, keys in self._of_node.items()}

    def to_claim(self) -> list[QueueRecord]:
        """Of the unclaimed queues those of which the journal has messages here. While it is recovered."""
        assert self._recovered is not None
        found = self._recovered.queues
        return [
            record
            for record in self.classic_of("")
            if any(number in found and found[number].rows for number in self.numbers_of(record))
        ]

    def recover(self, recovered: Recovered) -> None:
        """Queues that appear from now on take over what the journal has of them."""
        self._recovered = recovered

    def recovery_ended(self, dropped: Collection[int], suspect: bool) -> None:
        """What is in the journal and in no queue is parked (`orphans.py`), or dropped when `dropped` has the queue's
        id."""
        node, recovered = self._node, self._recovered
        assert recovered is not None
        known: set[int] = set()
        for queue in node.queues.values():
            known.update(queue.record.id + level for level in range(_levels(queue)))
        stores = {_delayed_number(recovered, node.identity.id, vhost): vhost for vhost in node.topology.vhosts}
        unknown = [each for each in recovered.queues if each not in known and each not in stores]
        gone, parked = parted(recovered.queues, unknown, dropped_on(node.identity.id, dropped, unknown))
        for queue_id, vhost in stores.items():
            found = recovered.queues.get(queue_id)
            if found is None:
                continue
            if found.rows and (suspect or (parked and not self.delays(vhost))):
                # What falls due would find no exchange, and be gone.
                parked[queue_id] = found
                continue
            store = self.delayed(vhost, queue_id)
            try:
                store.recover(found)
            except Exception as error:  # noqa: BLE001 - one queue's; quarantine reports it, or raises it on
                node.quarantine(store, error)
        for queue_id in gone:
            node.journal.drop(queue_id)
        self._orphans.park(parked)
        self._recovered = None
        if self._orphans:
            nbytes = sum(orphan.ready_bytes for orphan in self._orphans)
            node.log(
                "orphans_parked",
                orphans=len(self._orphans),
                messages=self._orphans.messages,
                bytes=nbytes,
                reason="the journal has messages of queues that the metadata store does not know",
                remedy=REMEDY,
            )

    def delays(self, vhost: str) -> bool:
        """There is an exchange that may have delayed messages."""
        exchanges = self._node.topology.vhosts[vhost].exchanges
        return any(exchange.record.type == DELAYED_MESSAGE for exchange in exchanges.values())

    def put(self, record: QueueRecord) -> None:
        """The record is new, or another one now."""
        node, key = self._node, (record.vhost, record.name)
        there = node.ports.get(key)
        same = there is not None and there.record.id == record.id
        if there is not None and same and there.record.node == record.node:
            there.record = record
            if there.is_served:
                self.apply(node.queues[key], record)
            return
        if same and (queue := node.queues.get(key)) is not None and not node.sources.leads(record):
            self._give_up(queue, record)
            return
        if there is not None:
            # Another process made a durable queue of this name, which did not know of a transient one here; or a node
            # has claimed it.
            self.remove(record.key)
        if record.source:
            self._of_source.setdefault(record.source, {})[key] = None
            node.sources.queues[record.source] += 1
        leads = node.sources.leads(record)
        if record.source in self._names and (leads or record.source):
            self._names[record.source][record.id] = key
        if not leads:
            node.remote[key] = RemoteQueue(record, node.journal.lane, node.edges)
            self._note_node(key, record)
            return
        queue = node.queues[key] = self._made(record)
        node.totals.queues_created += not self.recovering
        node.books.apply_level(queue)
        if record.owner is not None:
            self._owned.setdefault(record.owner, {})[queue] = None
            owner = node.connections.get(record.owner)
            if owner is None or owner.state is not ConnectionState.RUNNING:
                # The connection went while its declaration was on the way.
                node.end_queue(queue)

    def _note_node(self, key: tuple[str, str], record: QueueRecord) -> None:
        if not record.source:
            self._of_node.setdefault(record.node, {})[key] = None
            self._node.cluster.report_remote_queue(record.node)

    def _give_up(self, queue: Queue, record: QueueRecord) -> None:
        """Somebody changed the record: it names another node. What the journal has of the queue here stays there, and
        is parked at the next start."""
        node = self._node
        del node.queues[record.vhost, record.name]
        self._forget_name(queue.record)
        node.leader_moves.count += 1
        self._stop(queue, record)
        for answer in queue.abandoned():
            answer(None)
        node.books.gone(queue)
        node.log("queue_given_up", queue=record.name, vhost=record.vhost, to=record.node)

    def _stop(self, queue: Queue, record: QueueRecord) -> None:
        """Another node leads the queue from now on, or none."""
        node = self._node
        node.to_dispatch.forget(queue)
        node.congestion.forget(queue)
        queue.enter(QueueState.MOVED)
        node.totals.queue_gone(queue.record.vhost, queue.type, queue.facts)
        remote = node.remote[record.vhost, record.name] = RemoteQueue(record, node.journal.lane, node.edges)
        queue.left_at = remote.left_at = node.leader_moves.count
        self._note_node((record.vhost, record.name), record)

    def apply(self, queue: Queue, record: QueueRecord) -> None:
        """Its record or its policy is another one now."""
        if not queue.is_served:
            queue.record = record
            return
        try:
            queue.apply(record, self.policy_of(record))
            self._node.books.apply_level(queue)
            self._node.to_dispatch.add(queue)
        except Exception as error:  # noqa: BLE001 - one queue's; quarantine reports it, or raises it on
            self._node.quarantine(queue, error)

    def source_begins(self, source: int, recovered: Recovered) -> None:
        """This node leads the source, which has these messages."""
        node, keys = self._node, list(self._of_source.get(source, ()))
        standing, epoch = recovered.standing(), node.journal.led_sources[source].epoch
        node.books.source_begins(source, epoch, standing.eras, len(keys), standing.total)
        node.sources.serving[source] = None
        self._unclaimed[source] = recovered
        keys.reverse()
        self.beginning[source] = Beginning(keys, set(recovered.queues))
        self.begin_some()

    def begin_some(self) -> None:
        """Of sources that begin, as many queues as the tick has time for."""
        node = self._node
        # What is begun holds the journal of all, and gets on in every tick.
        least = QUEUES_SHARE_MIN + (DEAD_LETTERS_WORK if node.dispatching.holds else 0)
        while self.beginning and node.work_left > least:
            source, beginning = next(iter(self.beginning.items()))
            if not beginning.keys:
                self._has_begun(source)
                continue
            remote = node.remote.get(key := beginning.keys.pop())
            if remote is not None and remote.record.source == source:
                self.begin_queue(key)
                # One with very many rows takes all that is left and more, and many such ones may come one after the
                # other: the queues have their share of each tick all the same.
                node.work_left = max(node.work_left, least)

    def begin_queue(self, key: tuple[str, str]) -> Queue:
        """It is remote, and its source is served here. Charged to what queues may do."""
        node = self._node
        node.work_left -= BEGIN_WORK
        # Whatever happens while it is made, there is something that has the name.
        queue = node.queues[key] = self._made(node.remote[key].record)
        del node.remote[key]
        node.books.queue_begins(queue)
        return queue

    def may_deliver(self, source: int, delivers: bool) -> None:
        """Whether the queues of the source, which is led here, give messages to anybody: not before it is known what
        clients of other nodes hold (`amqpd.remote`)."""
        if delivers is (source not in self._withheld):
            return
        (self._withheld.discard if delivers else self._withheld.add)(source)
        for _, queue in self._led(source):
            queue.withhold(not delivers)

    def _led(self, source: int) -> list[tuple[tuple[str, str], Queue]]:
        """The queues of a source that is led here, as far as they are made. Those of the local source are all made,
        and looked for when somebody asks."""
        here = self._node.queues
        if source == LOCAL:
            return [(key, queue) for key, queue in here.items() if not queue.record.source]
        return [(key, here[key]) for key in self._of_source.get(source, ()) if key in here]

    def queue_of(self, source: int, queue_id: int) -> Queue | None:
        """The queue of a source that is led here; None: there is none with this id, or it is out of service."""
        names = self._names.get(source)
        if names is None:
            remote = self._node.remote
            names = {queue.record.id: key for key, queue in self._led(source)}
            unmade = self._of_source.get(source, ())
            names.update({remote[key].record.id: key for key in unmade if key in remote})
            self._names[source] = names
        key = names.get(queue_id)
        if key is None:
            return None
        queue = self._node.queues.get(key)
        return self.begin_queue(key) if queue is None and key in self._node.remote else queue

    def waiting_in(self, record: QueueRecord) -> int:
        """How many messages stand in a queue that is not made yet, though its source is served here."""
        recovered = self._unclaimed.get(record.source)
        if recovered is None:
            return 0
        messages = recovered.standing().messages
        return sum([messages.get(number, 0) for number in self.numbers_of(record)])

    def numbers_of(self, record: QueueRecord) -> range:
        """Of a queue that is not made yet: what it has in the journal, its levels' included."""
        levels = PRIORITY_MAX + 1 if "x-max-priority" in record.arguments else 1
        return range(record.id, record.id + levels)

    def _has_begun(self, source: int) -> None:
        unknown, recovered = self.beginning.pop(source).unknown, self._unclaimed.pop(source)
        if unknown:
            found = {queue_id: recovered.queues[queue_id] for queue_id in unknown}
            self._unclaimed[source] = Recovered(recovered.index, found)
            self._node.log("messages_without_queue", source=source, queues=len(unknown))
            self._node.cluster.report_unknown_queues(source)

    def has_unclaimed(self, source: int) -> bool:
        """All of its queues are here, and it has messages of others, which are not known."""
        return source in self._unclaimed and source not in self.beginning

    def drop_deleted(self, source: int, dropped: Collection[int]) -> None:
        """What the source has of queues that are not known goes, where a deletion is recorded. `dropped`: the ids of
        those queues, each with its levels."""
        node, unclaimed = self._node, self._unclaimed[source]
        gone = deleted_of(unclaimed.queues, dropped)
        for queue_id in sorted(gone):
            node.journal.assign(queue_id, source)
            node.journal.drop(queue_id)
        left = {queue_id: found for queue_id, found in unclaimed.queues.items() if queue_id not in gone}
        self._unclaimed[source] = Recovered(unclaimed.index, left)
        if not left:
            del self._unclaimed[source]
        if gone:
            node.log("messages_of_deleted_queues_dropped", source=source, queues=len(gone))

    def source_ends(self, source: int) -> None:
        """This node leads the source no more."""
        node = self._node
        if source not in node.sources.serving:
            return
        del node.sources.serving[source]
        self._names.pop(source, None)
        self._withheld.discard(source)
        node.leader_moves.count += 1
        self.beginning.pop(source, None)
        ended: list[Queue] = []
        unmade = waiting = 0
        for key in self._of_source.get(source, ()):
            queue = node.queues.pop(key, None)
            if queue is None:
                unmade += 1
                waiting += self.waiting_in(node.remote[key].record)
                continue
            ended.append(queue)
            self._stop(queue, queue.record)
        self._unclaimed.pop(source, None)
        # What an answer leads to may meet another queue of the source: all of them are stopped by then.
        for queue in ended:
            for answer in queue.abandoned():
                answer(None)
        node.books.source_ends(source, ended, unmade, waiting)

    def _made(self, record: QueueRecord) -> Queue:
        node = self._node
        if record.source:
            node.journal.assign(record.id, record.source)
        if isinstance(record, UnreadableQueue):
            return self._out_of_service(record)
        try:
            queue = node.make_queue(record, self.policy_of(record))
        except Exception as error:  # noqa: BLE001 - one queue's; quarantine reports it, or raises it on
            # There must be something that has the name, keeps others from it, and can be deleted.
            queue = node.make_queue(replace(record, arguments={}), {})
            queue.record = record
            node.quarantine(queue, error)
            return queue
        if record.source in self._withheld and (record.source or self.recovering):
            queue.withhold(True)  # of a new classic queue nobody holds anything
        recovered = self._recovered or self._unclaimed.get(record.source)
        if recovered is not None:
            try:
                self._recover(queue, recovered)
            except Exception as error:  # noqa: BLE001 - one queue's; quarantine reports it, or raises it on
                node.quarantine(queue, error)
        if (beginning := self.beginning.get(record.source)) is not None:
            beginning.unknown.difference_update(range(record.id, record.id + _levels(queue)))
        return queue

    def _out_of_service(self, record: UnreadableQueue) -> Queue:
        """What the journal has of it stays there, and is not parked."""
        node = self._node
        queue = node.make_queue(record, {})
        queue.quarantine(record.reason)
        node.log("queue_quarantined", queue=record.name, vhost=record.vhost, reason=record.reason, remedy=UNREADABLE)
        node.active[queue] = None
        if (beginning := self.beginning.get(record.source)) is not None:
            beginning.unknown.difference_update(range(record.id, record.id + _levels(queue)))
        return queue

    def _recover(self, queue: Queue, recovered: Recovered) -> None:
        for level in range(_levels(queue)):
            found = recovered.queues.get(queue.record.id + level)
            if found is not None:
                # One that the journal has nothing of has nothing to expire, and nobody that waits for it.
                self._node.to_dispatch.add(queue)
                self._node.work_left -= ROW_WORK * len(found.rows)
                queue.recover(level, found)

    def policy_of(self, record: QueueRecord) -> Mapping[str, Any]:
        topology = self._node.topology
        if record.vhost not in topology.vhosts:
            return {}
        return topology.policy_of("queue", record.vhost, record.name, type_of(record.arguments)).definition

    def delay(self, vhost: str, run: Run, delay_ms: int, publication: Publication | None) -> Lanes | None:
        """Publish the run when this time has passed; the lanes that its confirm must wait for; None: it cannot be
        kept: the virtual host has gone, its store of delayed messages is out of service, it is a dead letter and
        there are too many, or those of an earlier run are parked, and have the store's place in the journal."""
        node = self._node
        if vhost not in node.topology.vhosts or (self._orphans and self._parked(vhost)):
            return None
        store = self.delayed(vhost)
        try:
            if not store.is_served or not store.has_capacity(run):
                return None
            return store.lane.alone if store.delay(run, delay_ms, publication) else NONE
        except Exception as error:  # noqa: BLE001 - the store's; quarantine reports it, or raises it on
            node.quarantine(store, error)
            return None

    def _parked(self, vhost: str) -> bool:
        orphans = self._orphans
        return any(orphans.get(number) is not None for number in delayed_numbers(self._node.identity.id, vhost))

    def delayed(self, vhost: str, number: int | None = None) -> DelayedMessages:
        """The store of the virtual host's delayed messages, made if it is not there. `number`: what the journal has
        of it is under another one than this node gives today."""
        node = self._node
        store = node.delayed.get(vhost)
        if store is None:
            store = node.delayed[vhost] = node.make_delayed(
                vhost, delayed_id(node.identity.id, vhost) if number is None else number
            )
            node.books.apply_level(store)
        node.to_dispatch.add(store)
        return store

    def give_back(self, vhost: str, orphan: Orphan) -> None:
        """The orphan is what is left of the virtual host's delayed messages: they go on being delayed."""
        node, store = self._node, self._node.delayed.get(vhost)
        if store is not None and store.record.id != orphan.id:
            del node.delayed[vhost]
            self.end(store)
        store = self.delayed(vhost, orphan.id)
        assert isinstance(orphan.messages, Messages)
        store.take_over(orphan.messages)
        self._orphans.forget(orphan)
        node.books.apply_level(store)

    def owned(self, connection_id: str) -> list[Queue]:
        return list(self._owned.get(connection_id, ()))

    def remove(self, key: Key) -> None:
        node = self._node
        name = (key[1], key[2])
        there = node.ports.get(name)
        if there is not None and there.record.source:
            self._of_source[there.record.source].pop(name, None)
            node.sources.queues[there.record.source] -= 1
        if there is not None:
            self._forget_name(there.record)
        remote = node.remote.pop(name, None)
        if remote is not None:
            of_node = self._of_node.get(remote.record.node, {})
            of_node.pop(name, None)
            if not of_node:
                self._of_node.pop(remote.record.node, None)
            remote.enter(QueueState.DELETED)  # what there is of it, its leader drops
        queue = node.queues.pop(name, None)
        if queue is not None:
            owned = self._owned.get(queue.record.owner or "")
            if owned is not None:
                owned.pop(queue, None)
                if not owned:
                    del self._owned[queue.record.owner or ""]
            node.congestion.forget(queue)
            self.end(queue)
            node.totals.queues_deleted += 1
            node.totals.queue_gone(queue.record.vhost, queue.type, queue.facts)

    def _forget_name(self, record: QueueRecord) -> None:
        names = self._names.get(record.source)
        if names is not None:
            names.pop(record.id, None)

    def end(self, queue: Paged) -> None:
        """It is the node's no more: who waits for it is told, its messages are gone."""
        node = self._node
        node.to_dispatch.forget(queue)
        try:
            queue.delete()
        except Exception as error:  # noqa: BLE001 - one queue's; quarantine reports it, or raises it on
            node.quarantine(queue, error)
            queue.enter(QueueState.DELETED)
            # A priority queue's levels have the numbers behind its own, and what is out of service may be such a one.
            for level in range(PRIORITY_MAX + 1):
                node.journal.drop(queue.record.id + level)
        node.books.gone(queue)


def _delayed_number(recovered: Recovered, node_id: str, vhost: str) -> int:
    """Messages of a version before stay under their old number until there are none at a start."""
    today, before = delayed_numbers(node_id, vhost)
    found = recovered.queues
    return before if before in found and found[before].rows and not _has_rows(found.get(today)) else today


def _has_rows(found: RecoveredQueue | None) -> bool:
    return found is not None and bool(found.rows)


def _levels(queue: Queue) -> int:
    """A priority queue's levels have the numbers behind its own. One that is out of service may be such a one."""
    return PRIORITY_MAX + 1 if queue.has_levels or queue.crash_reason is not None else 1
