"""Keeps the topology equal to the metadata store, and takes the protocol machines' requests to it.

What comes in: batches of changes with a function to call when they are done; whatever else changes in the
store. What goes out: `Topology.apply` and `on_applied` for every revision, then the answers.
Rules: 1. One way in: changes are applied when the store's watch brings them back, in revision order, whichever
process made them. 2. Submissions take effect in the order that `submissions.py` says. 3. An answer comes after its
changes (or, when refused, what stood in their way) were applied. 4. Records that are not durable hold a lease of this
process, and are gone with it. 5. A full disk, or another process that holds the store, makes submissions wait. 6.
While a store over a network does not answer, and while a store on several disks has lost most of them, what puts
something is refused, what only deletes waits, and the topology stays as it is. 7. Any other failure of the store
raises out of `run`, and the node stops.
Not here: what changes a request needs (`topology/plans.py`), how keys are stored (`store.py`), the first records
(`bootstrap.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import structlog
import trio
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.metadata.codec import PREFIX, encode_key, encode_record
from amqpd.topology.metadata.queue_limits import PREFIX as LIMITS
from amqpd.topology.metadata.queue_limits import QueueLimits
from amqpd.topology.metadata.reading import RecordReader, queue_of
from amqpd.topology.metadata.store import (
    Committed,
    Compacted,
    Compare,
    DeleteKey,
    Event,
    MetadataStore,
    MetadataTransaction,
    Operation,
    Outcome,
    PutKey,
    StoreBusy,
    StoreFull,
    StoreLacksDisks,
    StoreReplaced,
    StoreUnreached,
)
from amqpd.topology.metadata.submissions import Submission, Submissions
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Delete, Key, Put, Record

# Bounds what one commit holds in memory, and how long the next ones wait for it: some ten milliseconds, of which an
# fsync is a few. Ten times as many were no faster.
TRANSACTIONS_A_COMMIT = 128
# Changes of one transaction that are applied before others have a turn: some 0.3 ms for bindings, 3 ms for queues
# (compiled, on a busy machine).
CHANGES_AT_ONCE = 25
# A broker that the store has not heard from for this long is taken for dead.
LEASE_TTL_S = 15.0
# A full disk, and a store that did not answer, is looked at again after this.
FULL_RETRY_S = 1.0

# What a client is told; the log says which store it is, and why.
UNREACHED = "the metadata store does not answer: nothing can be declared or bound now, try again later"
REPLACED = (
    "the metadata store was emptied, replaced or put back from an older copy: nothing can be declared or bound until "
    "its data is put back and the nodes are started again"
)
LACKS_DISKS = (
    "too few of the broker's data directories can be written: nothing can be declared or bound now, try again later"
)

Resume = Callable[[bool], None]
OnApplied = Callable[[Sequence[Change]], None]

log = structlog.get_logger(component="topology")


class TopologySync:
    """Keeps the topology equal to the metadata store. `start`, then `run` for as long as the broker lives.
    `revision` is the last one that was applied."""

    def __init__(
        self, store: MetadataStore, topology: Topology, on_applied: OnApplied, *, strict: bool = True
    ) -> None:
        """`strict`: the store is this node's alone, and a record that cannot be read ends it (`reading.py`)."""
        self.revision = 0
        self.told = 0
        """the revision of the newest change that was applied: every node's watch tells of it, or it is in what the
        node has read"""
        self._reader = RecordReader(strict=strict)
        # Of a store that is this node's alone, the client counters count all that is made.
        self._limits = None if strict else QueueLimits(topology)
        self._store = store
        self._topology = topology
        self._on_applied = on_applied
        self.lease = 0
        """what records that are not durable hold"""
        self._pending = Submissions()
        self._committing = False
        self._submitted = trio.Event()
        # (revision, function, answer): committed or refused, and not yet applied; ascending.
        self._unanswered: deque[tuple[int, Resume, bool]] = deque()
        self._applied = trio.Event()
        self._answered = trio.Event()
        self._refused = ""
        """what is said to clients who want to put something; empty: it is tried"""
        self._waits = ""
        """why changes wait, as the log says it"""

    @property
    def is_refused(self) -> bool:
        """The store does not answer, or must not be written to: nothing can be declared now."""
        return bool(self._refused)

    @property
    def unreadable(self) -> list[str]:
        """A sentence for each record that cannot be read."""
        return self._reader.sentences()

    async def start(self) -> None:
        """Load everything, as of one moment: one `apply` and one `on_applied` with all of it, virtual hosts
        first. Raises StoreDamaged when a record cannot be read and it is strict."""
        self.lease = await self._store.grant_lease(LEASE_TTL_S)
        await self._load_limits()
        snapshot = await self._store.range(PREFIX)
        records = self._reader.read_all(self._reader.in_order(snapshot))
        self.told = snapshot.newest
        self._apply([Put(record) for record in records], snapshot.revision)

    def submit_nowait(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        """Ask for the changes, all or none. `resume(True)` is called when they are committed and applied;
        `resume(False)` when a `Put` with `create` found its key present, or a key of `requires` was absent:
        then the topology has been brought at least that far, so look again. Neither is called before this
        returns. Of several changes of one key only the last counts. `owner` is the client that asks: clients take
        turns.

        Raises what `codec.encode_record` raises, and AMQPPreconditionFailed when something is to be put and the store
        does not answer, or has something in its place that cannot be read."""
        assert self.lease, "submitted before start"
        if self._refused and any(isinstance(change, Put) for change in changes):
            raise AMQPPreconditionFailed(self._refused)
        self._reader.refuse(change for change in changes if isinstance(change, Put))
        wanted = transaction_of(changes, self.lease, requires), resume
        guarded = wanted if self._limits is None else self._limits.guarded(changes, *wanted)
        if guarded is None:
            return
        self._pending.add(*guarded, owner)
        self._submitted.set()

    async def run(self) -> None:
        """Never returns. Raises MetadataStoreError when the store failed, and whatever the callbacks
        raise."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._commit_submissions)
            nursery.start_soon(self._apply_events)
            nursery.start_soon(self._keep_lease_alive)

    async def refresh(self) -> None:
        """Returns when everything that was committed before the call, by whichever process, is applied.
        `run` must be running."""
        revision = await self._store.refresh()
        while self.revision < revision:
            await self._applied.wait()

    async def flush(self) -> None:
        """Returns when everything that was submitted is applied and answered. `run` must be running."""
        while self._pending or self._committing or self._unanswered:
            await self._answered.wait()

    async def _commit_submissions(self) -> None:
        while True:
            await self._submitted.wait()
            while len(self._unanswered) > TRANSACTIONS_A_COMMIT:
                # What is committed and not applied is ahead of the next request, too.
                await self._answered.wait()
            taken = self._pending.take(TRANSACTIONS_A_COMMIT)
            self._committing = True
            await self._commit(taken)
            self._committing = False
            if not self._pending:
                self._submitted = trio.Event()
            self._answer()

    async def _commit(self, left: list[Submission]) -> None:
        while left:
            try:
                outcomes = await self._store.transact_all([submission.transaction for submission in left])
            except (StoreUnreached, StoreLacksDisks) as error:
                if isinstance(error, StoreUnreached):
                    left = self._committed(left, error.done)
                self._lost(error)
                left = _refuse([*left, *self._pending.take(len(self._pending))])
            except (StoreFull, StoreBusy) as error:
                if str(error) != self._waits:
                    log.warning("changes of the topology wait", reason=str(error), retry_s=FULL_RETRY_S)
                self._waits = str(error)
            else:
                self._reached()
                left = self._committed(left, outcomes)
            if left:
                await trio.sleep(FULL_RETRY_S)
        if self._waits:
            log.info("changes of the topology go on")
        self._waits = ""

    def _committed(self, submissions: list[Submission], outcomes: list[Outcome]) -> list[Submission]:
        """They have these outcomes, as far as there are some. Returns the others."""
        for submission, outcome in zip(submissions, outcomes, strict=False):
            self._unanswered.append((outcome.revision, submission.resume, isinstance(outcome, Committed)))
        return submissions[len(outcomes) :]

    def _lost(self, error: StoreUnreached | StoreLacksDisks) -> None:
        if not self._refused:
            log.warning("declarations are refused", reason=str(error))
        if isinstance(error, StoreReplaced):
            self._refused = REPLACED
        else:
            self._refused = UNREACHED if isinstance(error, StoreUnreached) else LACKS_DISKS
        self._waits = ""

    def _reached(self) -> None:
        if self._refused:
            log.info("declarations are made again")
        self._refused = ""

    async def _apply_events(self) -> None:
        while True:
            try:
                async for event in self._store.watch(self.revision):
                    await self._apply_event(event)
            except (StoreBusy, StoreUnreached) as error:
                log.warning("changes of other processes wait", reason=str(error), retry_s=FULL_RETRY_S)
                await trio.sleep(FULL_RETRY_S)
            except Compacted as error:
                log.warning("too far behind the metadata store, reading everything again", reason=str(error))
                await self._load_again()

    async def _apply_event(self, event: Event) -> None:
        """A large one in parts, between which others have their turns; what is deleted together is in an order in
        which no part needs a later one."""
        if self._limits is not None:
            self._limits.heard(event)
        self.told = event.revision
        await self._apply_in_parts(self._reader.changes_of(event.operations, self._is_known), event.revision)

    async def _apply_in_parts(self, changes: Iterator[Change], revision: int) -> None:
        part = list(islice(changes, CHANGES_AT_ONCE))
        while following := list(islice(changes, CHANGES_AT_ONCE)):
            self._topology.apply(part)
            self._on_applied(part)
            await trio.lowlevel.checkpoint()
            part = following
        self._apply(part, revision)

    async def _load_limits(self) -> None:
        """Before the topology: nothing is counted that the keys do not know of."""
        if self._limits is not None:
            self._limits.load(await self._store.range(LIMITS))

    def _is_known(self, key: str) -> bool:
        """A queue of this key is in the topology."""
        queue = queue_of(key)
        return queue is not None and self._topology.has_queue(*queue)

    async def _keep_lease_alive(self) -> None:
        while True:
            await trio.sleep(FULL_RETRY_S if self._refused else LEASE_TTL_S / 3)
            try:
                await self._store.keep_alive(self.lease)
            except (StoreUnreached, StoreLacksDisks) as error:
                self._lost(error)
            else:
                self._reached()

    async def _load_again(self) -> None:
        """While others go on: with very many queues this takes longer than a lease lives."""
        while True:
            try:
                await self._load_limits()
                snapshot = await self._store.range(PREFIX)
            except StoreUnreached as error:
                self._lost(error)
                await trio.sleep(FULL_RETRY_S)
                continue
            wanted: dict[Key, Record] = {}
            entries = self._reader.in_order(snapshot)
            for at in range(0, len(entries), CHANGES_AT_ONCE):
                some = entries[at : at + CHANGES_AT_ONCE]
                wanted |= {record.key: record for record in self._reader.read_all(some)}
                await trio.lowlevel.checkpoint()
            known = {record.key: record for record in _records_in(self._topology)}
            # What is there and cannot be read now stays as it was.
            kept = {key for key in known if encode_key(key) in self._reader.unreadable}
            # What others depend on goes last.
            changes: list[Change] = [Delete(key) for key in reversed(known) if key not in wanted.keys() | kept]
            changes += [Put(each) for key, each in wanted.items() if key not in kept and known.get(key) != each]
            self.told = max(self.told, snapshot.newest)
            return await self._apply_in_parts(iter(changes), snapshot.revision)

    def _apply(self, changes: Sequence[Change], revision: int) -> None:
        self.revision = revision
        if changes:
            self._topology.apply(changes)
            self._on_applied(changes)
        if self._limits is not None:
            self._limits.applied()
        self._answer()
        self._applied.set()
        self._applied = trio.Event()

    def _answer(self) -> None:
        while self._unanswered and self._unanswered[0][0] <= self.revision:
            _, resume, answer = self._unanswered.popleft()
            resume(answer)
        self._answered.set()
        self._answered = trio.Event()


def _refuse(submissions: list[Submission]) -> list[Submission]:
    """Those who asked for something to be put look again, and are told. Returns what only deletes."""
    for submission in submissions:
        if submission.puts:
            submission.resume(False)
    return [submission for submission in submissions if not submission.puts]


def transaction_of(changes: Iterable[Change], lease: int = 0, requires: Iterable[Key] = ()) -> MetadataTransaction:
    """The changes as the store takes them; records that are not durable hold `lease`."""
    compares = {encode_key(key): Compare(encode_key(key), None) for key in requires}
    operations: dict[str, Operation] = {}
    for change in changes:
        if isinstance(change, Put):
            key = encode_key(change.record.key)
            if change.create and key not in operations:
                compares[key] = Compare(key, 0)
            operation: Operation = PutKey(key, encode_record(change.record), 0 if change.record.durable else lease)
        else:
            key = encode_key(change.key)
            operation = DeleteKey(key)
        operations.pop(key, None)
        operations[key] = operation
    return MetadataTransaction(tuple(compares.values()), tuple(operations.values()))


def _records_in(topology: Topology) -> Iterator[Record]:
    yield from topology.vhost_records.values()
    yield from topology.users.values()
    yield from topology.permissions.values()
    for by_exchange in topology.topic_permissions.values():
        yield from by_exchange.values()
    yield from topology.global_parameters.values()
    for vhost in topology.vhosts.values():
        yield from vhost.parameters.values()
        yield from vhost.policies.records()
        yield from (exchange.record for exchange in vhost.exchanges.values())
        yield from vhost.queues.values()
        yield from vhost.bindings()
