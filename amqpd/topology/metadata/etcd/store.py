"""The metadata store in etcd: the contract, carried out.

What comes in: the contract's calls. What goes out: see `topology/metadata/store.py`.
Rules: 1. Calls take their turns in the order in which they were begun, and each gives up when nothing was answered
for `wait_s`; a lease is renewed without one. 2. A store that went back, or is another one, is not used any more:
every call raises StoreReplaced with the reason, and what was read before stays as it is. Only a deletion that is
recorded deletes. 3. `run` is the one task: it follows the watch.
Not here: how it is made (`opening.py`), the log-in and the endpoints (`gateway.py`), lost answers (`turn.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import structlog
import trio

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.feed import Feed, past
from amqpd.topology.metadata.etcd.gateway import TXN, EtcdAccess, EtcdRefused, Gateway, Silent
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.leases import Leases
from amqpd.topology.metadata.etcd.messages import EtcdEntry, Message
from amqpd.topology.metadata.etcd.opening import REMOVED_AT_ONCE, begin_generation, open_in_etcd
from amqpd.topology.metadata.etcd.patience import WAIT_S, EtcdPatience, telling
from amqpd.topology.metadata.etcd.reading import number_in, read_all, read_numbers
from amqpd.topology.metadata.etcd.transactions import Transactions, groups_of, joined, parts_of
from amqpd.topology.metadata.etcd.turn import EtcdTurn, OlderCopy, WentBack
from amqpd.topology.metadata.events import EventWatch, WatchHistory
from amqpd.topology.metadata.own_time import RanOut
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    Event,
    MetadataEntry,
    MetadataTransaction,
    Operation,
    Outcome,
    OutcomeUnknown,
    PutKey,
    Snapshot,
    StoreClosed,
    StoreReplaced,
    StoreUnavailable,
    StoreUnreached,
)
from amqpd.topology.metadata.tombstones import oldest

# Keys of a lease that are put again in one request. Each compares, and those of queues twice; etcd takes 128
# compares.
PUT_AGAIN_AT_ONCE = 40
# What closing waits for etcd, in all: a lease that is not ended runs out.
CLOSE_S = 2.0

log = structlog.get_logger(component="metadata store")


class EtcdStore:
    """A metadata store in etcd; it has the methods of `store.MetadataStore`. Open when `run` has started, which
    goes on until it is closed; `aclose` it in any case."""

    def __init__(
        self,
        access: EtcdAccess,
        prefix: str,
        member: str,
        *,
        alone: bool = False,
        machine: str | None = None,
        make: bool = True,
        wait_s: float = WAIT_S,
        open_s: float | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`member`: the name of this node, for what it notes of its own. `alone`: no other process has that name now;
        what an earlier one left is ended. `machine`: alone on this one only, the empty one being none; what ran
        elsewhere is given time to show whether it lives. `make`: it is made when there is none. `open_s`: how long
        each step of opening it may wait, if not as long as the others. `say`: who is told that opening waits; None:
        the log."""
        self.accepted: list[str] = []
        self.found_revision = 0
        """before this process wrote anything"""
        self.threads = trio.CapacityLimiter(1)
        self._access = access
        self._layout = Layout(prefix, member)
        self._alone = alone
        self._machine = machine
        self._make = make
        self._wait_s = wait_s
        self._open_s = wait_s if open_s is None else open_s
        self._say = say
        self._gateway = Gateway(access)
        self._order = trio.Lock()
        self._leases = Leases(self._gateway, self._layout, machine or "")
        self._running = trio.CancelScope()
        self._went_back = False
        """it is an older copy of itself"""
        self._telling, self._told = trio.CancelScope(), trio.Event()
        """that it is, to others"""
        self._failure: StoreClosed | StoreUnavailable | None = StoreClosed(
            f"the metadata store {access} is not open yet"
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open it, making it when there is none; then follow it until it is closed. Raises StoreUnavailable when it
        cannot be opened."""
        try:
            await telling(self._open, self._tell_wait)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._gateway.aclose()
            raise
        task_status.started()
        try:
            with self._running:
                await self._feed.run()
        except WentBack as found:
            self._distrust(found)
        if self._went_back:
            with self._telling:
                await self._tell_others()
            self._told.set()

    async def _open(self) -> None:
        try:
            self._identity, head, self.found_revision = await open_in_etcd(
                self._gateway,
                self._layout,
                self._leases,
                self._open_s,
                make=self._make,
                alone=self._alone,
                machine=self._machine,
            )
        except EtcdRefused as refused:
            raise self._gateway.explained(refused) from refused
        except Silent as silent:
            raise Silent(
                f"{silent}; it was asked for {self._open_s:g} s: see that etcd runs and has a leader, and that "
                "cluster_store has its addresses"
            ) from silent
        self._turn = EtcdTurn(self._gateway, self._layout, self._identity, secrets.token_hex(8))
        self._turn.head = head
        self._transactions = Transactions(self._turn)
        self._history = WatchHistory(head)
        self._feed = Feed(self._gateway, self._turn, self._leases, self._history)
        self._failure = None

    def _tell_wait(self, waited_s: float) -> None:
        sentence = str(self._gateway.silence())
        if self._say is not None:
            self._say(f"{sentence}; it is asked on, for {self._open_s:g} s")
        else:
            log.warning(
                "the start waits for the metadata store, and goes on trying",
                reason=sentence,
                waited_s=round(waited_s),
                gives_up_after_s=self._open_s,
            )

    async def get(self, key: str) -> MetadataEntry | None:
        async with self._ordered() as patience:
            found = await self._turn.read([self._layout.key(key)], patience)
        return next((self._entry(each) for name, each in found.items() if name == self._layout.key(key)), None)

    async def range(self, prefix: str) -> Snapshot:
        async with self._ordered() as patience:
            await self._turn.read([], patience)  # it is the same store
            revision, found = await read_all(self._gateway, self._layout.key(prefix), self._wait_s)
        return Snapshot(revision, [self._entry(each) for each in found])

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """Between the parts of a large one others have their turns."""
        self._leases.require(operations)

        async def execute(part: MetadataTransaction) -> Outcome:
            async with self._ordered() as patience:
                return await self._execute_part(part, patience)

        return await _in_parts(MetadataTransaction(tuple(compares), tuple(operations)), execute)

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for each in transactions:
            self._leases.require(each.operations)
        try:
            async with self._ordered() as patience:
                for group in groups_of(transactions):
                    together = await self._execute_joined(group, patience) if len(group) > 1 else None
                    if together is not None:
                        outcomes += [together] * len(group)
                        patience = self._gateway.patience(self._wait_s)
                        continue
                    for each in group:
                        outcomes.append(await self._execute(each, patience))
                        patience = self._gateway.patience(self._wait_s)
        except StoreUnreached as error:
            error.done = outcomes
            raise
        return outcomes

    def watch(self, after: int) -> EventWatch:
        return EventWatch(self._history, after, backlog=self._past)

    async def refresh(self) -> int:
        async with self._ordered() as patience:
            await self._turn.read([], patience)
            return self._turn.head

    async def grant_lease(self, ttl_s: float) -> int:
        async with self._ordered() as patience:
            return await self._leases.grant(ttl_s, patience)

    async def keep_alive(self, lease: int) -> None:
        self._check_usable()
        if await self._leases.renewed(lease):
            return
        async with self._ordered() as patience:
            if not await self._leases.keep_alive(lease, patience):
                await self._put_again(lease)

    async def identity(self) -> str:
        self._check_usable()
        await trio.lowlevel.checkpoint()
        return self._identity

    async def journal(self) -> tuple[str, int] | None:
        key = self._layout.journal
        async with self._ordered() as patience:
            found = (await self._turn.read([key], patience)).get(key)
        if found is None:
            return None
        identity, _, index = found.value.partition(" ")
        noted = number_in(index)
        if noted is None:
            log.error("what this node noted of its journal cannot be read, and is noted again", key=key)
        return None if noted is None else (identity, noted)

    async def set_journal(self, identity: str, index: int) -> None:
        note = messages.put(self._layout.journal, f"{identity} {index}")
        async with self._ordered() as patience:
            await self._write([note], patience)

    async def dropped_queues(self) -> frozenset[int]:
        return frozenset(await self._dropped())

    async def forget_dropped(self, ids: Iterable[int], keep: int = 0) -> None:
        numbers = oldest(await self._dropped(), ids, keep) if keep else sorted(set(ids))
        left = [messages.delete(self._layout.tombstone(number)) for number in numbers]
        while left:
            async with self._ordered() as patience:
                await self._write(left[:REMOVED_AT_ONCE], patience)
            left = left[REMOVED_AT_ONCE:]

    async def _dropped(self) -> dict[int, int]:
        """With the revision of each. There may be many pages of them: others have their turns meanwhile."""
        await self.refresh()  # it is the same store
        return await read_numbers(self._gateway, self._layout.tombstones, self._wait_s)

    async def begin_generation(self, known: str, revision: int) -> None:
        """It is an older copy of what had this identity at this revision: others that had seen more are told by the
        identity that it gets."""
        async with self._ordered() as patience:
            self._identity = self._turn.identity = await begin_generation(
                self._gateway, self._layout, known, revision, patience
            )

    async def keep_copies(self) -> None:
        """etcd's own snapshots are its copies."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if isinstance(self._failure, StoreClosed):
            return
        closed = StoreClosed(f"the metadata store {self._access} was closed")
        usable = self._failure is None
        self._failure = closed
        close_by = trio.current_time() + CLOSE_S
        if usable:
            with trio.CancelScope(deadline=close_by, shield=True):
                # What was committed is told to those who watch.
                while self._feed.seen < self._turn.head:
                    await self._history.wait_news()
        self._history.fail(closed)
        self._running.cancel()
        if self._went_back:
            with trio.CancelScope(deadline=close_by, shield=True):
                await self._told.wait()
            self._telling.cancel()
        with trio.CancelScope(deadline=close_by, shield=True):
            async with self._order:
                if usable:
                    await self._leave(self._gateway.patience(CLOSE_S))
        with trio.CancelScope(shield=True):
            await self._gateway.aclose()

    # Inside of the order

    async def _execute_joined(self, group: Sequence[MetadataTransaction], patience: EtcdPatience) -> Committed | None:
        """All of them; None: not together."""
        outcome = await self._execute_part(joined(group), patience)
        return outcome if isinstance(outcome, Committed) else None

    async def _execute(self, transaction: MetadataTransaction, patience: EtcdPatience) -> Outcome:
        first = [patience]

        def execute(part: MetadataTransaction) -> Awaitable[Outcome]:
            return self._execute_part(part, first.pop() if first else self._gateway.patience(self._wait_s))

        return await _in_parts(transaction, execute)

    async def _execute_part(self, part: MetadataTransaction, patience: EtcdPatience) -> Committed | CompareFailed:
        while True:
            try:
                outcome = await self._transactions.execute(part, patience)
            except EtcdRefused as refused:
                # A lease that it names ran out, and is known here.
                named = {operation.lease for operation in part.operations if isinstance(operation, PutKey)}
                for lease in sorted(named - {0}):
                    if not await self._leases.keep_alive(lease, patience):
                        await self._put_again(lease)
                if not await patience.pause():
                    raise self._gateway.explained(refused) from refused
                continue
            if isinstance(outcome, Committed):
                self._leases.committed(part.operations, outcome.revision)
            return outcome

    async def _put_again(self, lease: int) -> None:
        """What held the lease and is missing, if nobody put or deleted it meanwhile."""
        missing = self._leases.missing(lease)
        reason = self._leases.lost_because(lease)
        log.warning("a lease ran out and was granted again", lease=lease, keys=len(missing), reason=reason)
        for first in range(0, len(missing), PUT_AGAIN_AT_ONCE):
            some = tuple(missing[first : first + PUT_AGAIN_AT_ONCE])
            if not await self._put_missing(some):
                for each in some:
                    await self._put_missing((each,))

    async def _put_missing(self, operations: tuple[PutKey, ...]) -> bool:
        compares = tuple(Compare(operation.key) for operation in operations)
        patience = self._gateway.patience(self._wait_s)
        outcome = await self._transactions.execute(MetadataTransaction(compares, operations), patience)
        if isinstance(outcome, Committed):
            self._leases.committed(operations, outcome.revision)
        elif len(operations) == 1:
            await self._look_at(operations[0])
        return isinstance(outcome, Committed)

    async def _look_at(self, operation: PutKey) -> None:
        """The key is there: put by a request whose answer was lost, or by another process."""
        key = self._layout.key(operation.key)
        found = (await self._turn.read([key], self._gateway.patience(self._wait_s))).get(key)
        if found is not None and found.lease == operation.lease:
            self._leases.committed([operation], found.mod_revision)
        elif found is not None:
            self._leases.taken(operation.key)

    async def _leave(self, patience: EtcdPatience) -> None:
        try:
            left = [messages.delete(self._turn.key)]
            for lease in self._leases:
                await self._leases.end(lease, patience)
                left[1:] = [messages.put(self._layout.head, "")]
            await self._write(left, patience)
        except (StoreUnreached, WentBack) as error:
            log.warning("leases are left to run out", reason=str(error))

    async def _write(self, operations: Sequence[Message], patience: EtcdPatience) -> None:
        """What may be done twice, into this store only."""
        compares = [messages.value_is(self._layout.identity, self._identity)]
        request = messages.transaction(compares, operations)
        if not (await patience.keep_trying(lambda: self._gateway.ask(TXN, request))).get("succeeded"):
            raise WentBack("another store, or none, is there now")

    async def _tell_others(self) -> None:
        """It may be written on by others that had not seen more of it, and its revisions look whole then."""
        known, patience = (self._identity, self._turn.head), self._gateway.patience(self._wait_s)
        try:
            await begin_generation(self._gateway, self._layout, *known, patience)
        except (StoreUnreached, EtcdRefused) as error:
            log.warning("other nodes may take an older copy of the metadata store for whole", reason=str(error))
        except WentBack as found:
            log.info("it is not for this node to say that the metadata store went back", reason=str(found))

    async def _past(self, after: int) -> list[Event]:
        """The events greater than `after`, as far as the history does not have them."""
        self._check_usable()
        return await past(self._gateway, self._layout, after, self._history.begun_at)

    @asynccontextmanager
    async def _ordered(self) -> AsyncIterator[EtcdPatience]:
        """Calls after each other; what etcd says about the whole store is the store's end or the call's."""
        patience = self._gateway.patience(self._wait_s)
        self._check_usable()
        await self._acquire(patience)
        try:
            self._check_usable()
            yield patience
        except WentBack as found:
            raise self._distrust(found) from found
        except EtcdRefused as refused:
            raise self._gateway.explained(refused) from refused
        finally:
            self._order.release()

    async def _acquire(self, patience: EtcdPatience) -> None:
        """The turn of this call. Raises StoreUnavailable."""
        acquired = False

        async def acquire() -> None:
            nonlocal acquired
            await self._order.acquire()
            acquired = True

        try:
            await patience.within(acquire)
        except RanOut:
            waits = f"{self._gateway.silence()}; others have been waiting for it for {self._wait_s:g} s"
            raise StoreUnavailable(waits) from None
        except BaseException:
            if acquired:  # and cancelled in the same moment
                self._order.release()
            raise

    def _distrust(self, found: WentBack) -> StoreReplaced:
        sentence = (
            f"the metadata store {self._access} is not what it was: {found}; nothing is deleted because of that, and "
            "nothing is declared until its data is put back and the nodes are started again, one after the other "
            '(docs/clustering.md, "etcd was emptied")'
        )
        if self._failure is None:
            log.error("the metadata store went back", reason=sentence)
            self._failure = StoreReplaced(sentence)
            self._went_back = isinstance(found, OlderCopy)
            self._running.cancel()
        # The first reason, also to those who find what this node has done about it.
        return StoreReplaced(str(self._failure))

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

    def _entry(self, found: EtcdEntry) -> MetadataEntry:
        return MetadataEntry(self._layout.contract_key(found.key), found.value, found.mod_revision, found.lease)


async def _in_parts(
    transaction: MetadataTransaction, execute: Callable[[MetadataTransaction], Awaitable[Outcome]]
) -> Outcome:
    """Part after part, up to the first conflict. Raises StoreUnreached, with how much was done before."""
    outcome: Outcome | None = None
    done = 0
    for part in parts_of(transaction):
        try:
            outcome = await execute(part)
        except StoreUnreached as error:
            raise _with_parts(error, done) from error
        if isinstance(outcome, CompareFailed):
            return outcome
        done += len(part.operations)
    assert outcome is not None
    return outcome


def _with_parts(error: StoreUnreached, operations: int) -> StoreUnreached:
    """The error of one part of a transaction. `operations`: how many were done before it."""
    if not operations:
        return error
    return OutcomeUnknown(f"{error}; a part of a large change is done", operations=operations)
