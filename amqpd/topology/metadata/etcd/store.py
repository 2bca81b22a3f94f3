"""The metadata store in etcd: the contract, carried out.

What comes in: the contract's calls. What goes out: see `topology/metadata/store.py`.
Rules: 1. Calls take their turns in the order in which they were begun, and each gives up when nothing was
answered for `wait_s`. 2. A store
that went back, or is another one, is not used any more: every call raises StoreUnavailable with the reason, and what
was read before stays as it is. Only a deletion that is recorded deletes. 3. `run` is the one task: it follows the
watch.
Not here: the log-in and the endpoints (`gateway.py`), lost answers (`turn.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.feed import Feed, watch
from amqpd.topology.metadata.etcd.gateway import OUT_OF_RANGE, RANGE, TXN, Access, Gateway, Refused
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.leases import Leases
from amqpd.topology.metadata.etcd.messages import Found, Message
from amqpd.topology.metadata.etcd.patience import WAIT_S, Patience
from amqpd.topology.metadata.etcd.transactions import Transactions, parts_of
from amqpd.topology.metadata.etcd.turn import Turn, WentBack
from amqpd.topology.metadata.events import EVENTS_MAX, EventLog, Watch
from amqpd.topology.metadata.store import (
    Committed,
    Compacted,
    Compare,
    Conflict,
    Entry,
    Event,
    LeaseGone,
    Operation,
    Outcome,
    OutcomeUnknown,
    PutKey,
    Snapshot,
    StoreClosed,
    StoreUnavailable,
    StoreUnreached,
    Transaction,
    prefix_end,
)

# Records are some hundred bytes; a page is then some hundred kilobytes.
PAGE_ENTRIES = 1_000
# A read of many pages that etcd compacts under it begins again, at most this often.
READS_MAX = 5
# How many keys one request removes.
REMOVED_AT_ONCE = 100
# What closing waits for etcd: a lease that is not ended runs out.
CLOSE_S = 2.0

log = structlog.get_logger(component="metadata store")


class EtcdStore:
    """See `store.MetadataStore`. Open when `run` has started, which goes on until it is closed; `aclose` it in any
    case."""

    def __init__(
        self,
        access: Access,
        prefix: str,
        member: str,
        *,
        alone: bool = False,
        make: bool = True,
        wait_s: float = WAIT_S,
    ) -> None:
        """`member`: the name of this node, for what it notes of its own. `alone`: no other process has that name now;
        what an earlier one left is ended. `make`: it is made when there is none."""
        self.accepted: list[str] = []
        self.threads = trio.CapacityLimiter(1)
        self._access = access
        self._layout = Layout(prefix, member)
        self._alone = alone
        self._make = make
        self._wait_s = wait_s
        self._gateway = Gateway(access)
        self._order = trio.Lock()
        self._leases = Leases(self._gateway, self._layout)
        self._running = trio.CancelScope()
        self._failure: StoreClosed | StoreUnavailable | None = StoreClosed(
            f"the metadata store {access} is not open yet"
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open it, making it when there is none; then follow it until it is closed. Raises StoreUnavailable when it
        cannot be opened."""
        try:
            await self._open()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._gateway.aclose()
            raise
        task_status.started()
        try:
            with self._running:
                await Feed(self._gateway, self._turn, self._leases, self._log).run()
        except WentBack as found:
            self._distrust(found)

    async def _open(self) -> None:
        patience = Patience(self._wait_s)
        layout, mine = self._layout, secrets.token_hex(16)
        first = messages.transaction(
            [messages.revision_is(layout.identity, 0)],
            [messages.put(layout.identity, mine), messages.put(layout.head, mine)],
        )
        reads = messages.transaction([], [messages.read(layout.identity), messages.read(layout.head)])
        try:
            if self._make:
                await patience.keep_trying(lambda: self._gateway.ask(TXN, first))
            if self._alone:
                await self._end_earlier_life(patience)
            seen = messages.read_in(await patience.keep_trying(lambda: self._gateway.ask(TXN, reads)))
        except Refused as refused:
            raise self._gateway.explained(refused) from refused
        if layout.identity not in seen:
            raise StoreUnavailable(f"{self._access} has no metadata store {layout.prefix!r}")
        self._identity = seen[layout.identity].value
        self._turn = Turn(self._gateway, layout, self._identity, secrets.token_hex(8))
        self._turn.head = seen[layout.head].mod_revision if layout.head in seen else 0
        self._transactions = Transactions(self._turn)
        self._log = EventLog(self._turn.head)
        self._failure = None

    async def _end_earlier_life(self, patience: Patience) -> None:
        lives = self._layout.lives
        _, found = await self._read_pages(lives, prefix_end(lives) or "")
        leases = [each.key for each in found if each.key.startswith(self._layout.leases)]
        await self._leases.end_earlier((int(key.removeprefix(self._layout.leases)) for key in leases), patience)
        left = [messages.delete(each.key) for each in found]
        while left:
            last = messages.transaction(
                [], [*left[:REMOVED_AT_ONCE], messages.put(self._layout.head, secrets.token_hex(8))]
            )
            await patience.keep_trying(partial(self._gateway.ask, TXN, last))
            left = left[REMOVED_AT_ONCE:]

    async def get(self, key: str) -> Entry | None:
        async with self._ordered() as patience:
            found = await self._turn.read([self._layout.key(key)], patience)
        return next((self._entry(each) for name, each in found.items() if name == self._layout.key(key)), None)

    async def range(self, prefix: str) -> Snapshot:
        async with self._ordered() as patience:
            revision, found = await self._read_all(self._layout.key(prefix), patience)
        return Snapshot(revision, [self._entry(each) for each in found])

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        return (await self.transact_all([Transaction(tuple(compares), tuple(operations))]))[0]

    async def transact_all(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for each in transactions:
            self._leases.require(each.operations)
        try:
            async with self._ordered() as patience:
                for each in transactions:
                    outcomes.append(await self._execute(each, patience))
                    patience = Patience(self._wait_s)
        except StoreUnreached as error:
            error.done = outcomes
            raise
        return outcomes

    def watch(self, after: int) -> Watch:
        return Watch(self._log, after, backlog=self._past)

    async def refresh(self) -> int:
        async with self._ordered() as patience:
            await self._turn.read([], patience)
            return self._turn.head

    async def grant_lease(self, ttl_s: float) -> int:
        async with self._ordered() as patience:
            return await self._leases.grant(ttl_s, patience)

    async def keep_alive(self, lease: int) -> None:
        async with self._ordered() as patience:
            if not await self._leases.keep_alive(lease, patience):
                await self._put_again(lease, patience)

    async def revoke_lease(self, lease: int) -> None:
        async with self._ordered() as patience:
            await self._leases.revoke(lease, patience)
            await self._turn.touch(patience)

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
        return identity, int(index)

    async def set_journal(self, identity: str, index: int) -> None:
        note = messages.put(self._layout.journal, f"{identity} {index}")
        async with self._ordered() as patience:
            await self._write([note], patience)

    async def dropped_queues(self) -> frozenset[int]:
        async with self._ordered() as patience:
            _, found = await self._read_all(self._layout.tombstones, patience)
        return frozenset(int(each.key.removeprefix(self._layout.tombstones)) for each in found)

    async def forget_dropped(self, ids: Iterable[int]) -> None:
        left = [messages.delete(self._layout.tombstone(number)) for number in sorted(set(ids))]
        async with self._ordered() as patience:
            while left:
                await self._write(left[:REMOVED_AT_ONCE], patience)
                left = left[REMOVED_AT_ONCE:]

    async def keep_copies(self) -> None:
        """etcd's own snapshots are its copies."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if isinstance(self._failure, StoreClosed):
            return
        closed = StoreClosed(f"the metadata store {self._access} was closed")
        usable = self._failure is None
        self._failure = closed
        self._log.fail(closed)
        self._running.cancel()
        with trio.move_on_after(CLOSE_S) as limit:
            limit.shield = True
            async with self._order:
                if usable:
                    await self._leave(Patience(CLOSE_S))
        with trio.CancelScope(shield=True):
            await self._gateway.aclose()

    # Inside of the order

    async def _execute(self, transaction: Transaction, patience: Patience) -> Outcome:
        outcome: Outcome | None = None
        for part in parts_of(transaction):
            try:
                now = await self._execute_part(part, patience)
            except StoreUnavailable as error:
                if outcome is None:
                    raise
                raise OutcomeUnknown(f"{error}; a part of a large change is done") from error
            if isinstance(now, Conflict):
                return now
            outcome = now
        assert outcome is not None
        return outcome

    async def _execute_part(self, part: Transaction, patience: Patience) -> Committed | Conflict:
        while True:
            try:
                outcome = await self._transactions.execute(part, patience)
            except Refused as refused:
                # A lease that it names ran out, and is known here.
                named = {operation.lease for operation in part.operations if isinstance(operation, PutKey)}
                for lease in sorted(named - {0}):
                    if not await self._leases.keep_alive(lease, patience):
                        await self._put_again(lease, patience)
                if not await patience.pause():
                    raise self._gateway.explained(refused) from refused
                continue
            if isinstance(outcome, Committed):
                self._leases.committed(part.operations, outcome.revision)
            return outcome

    async def _put_again(self, lease: int, patience: Patience) -> None:
        """What held the lease, if nobody put or deleted it meanwhile."""
        held = self._leases.held(lease)
        log.warning("a lease ran out and was granted again", lease=lease, keys=len(held))
        for operation in held:
            again = Transaction((Compare(operation.key),), (operation,))
            outcome = await self._transactions.execute(again, patience)
            if isinstance(outcome, Committed):
                self._leases.committed(again.operations, outcome.revision)

    async def _leave(self, patience: Patience) -> None:
        try:
            for lease in self._leases:
                await self._leases.revoke(lease, patience)
            await self._write([messages.delete(self._turn.key), messages.put(self._layout.head, "")], patience)
        except (StoreUnreached, WentBack, LeaseGone) as error:
            log.warning("leases are left to run out", reason=str(error))

    async def _write(self, operations: Sequence[Message], patience: Patience) -> None:
        """What may be done twice, into this store only."""
        compares = [messages.value_is(self._layout.identity, self._identity)]
        request = messages.transaction(compares, operations)
        if not (await patience.keep_trying(lambda: self._gateway.ask(TXN, request))).get("succeeded"):
            raise WentBack("another store, or none, is there now")

    async def _read_all(self, prefix: str, patience: Patience) -> tuple[int, list[Found]]:
        await self._turn.read([], patience)  # it is the same store
        end = prefix_end(prefix)
        assert end is not None
        for _ in range(READS_MAX):
            try:
                return await self._read_pages(prefix, end)
            except Refused as refused:
                if refused.code != OUT_OF_RANGE:
                    raise
        raise StoreUnavailable(f"{self._access} compacts faster than everything can be read")

    async def _read_pages(self, first: str, end: str) -> tuple[int, list[Found]]:
        """At the revision of the first page. There may be a thousand of them: the bound is each one's."""
        found: list[Found] = []
        revision = 0
        while True:
            message = {
                "key": messages.encoded(first),
                "range_end": messages.encoded(end),
                "limit": str(PAGE_ENTRIES),
                "revision": str(revision),
            }
            answer = await Patience(self._wait_s).keep_trying(partial(self._gateway.ask, RANGE, message))
            revision = revision or messages.revision_of(answer)
            found += messages.found_in(answer)
            if not answer.get("more"):
                return revision, found
            first = found[-1].key + "\0"

    async def _past(self, after: int) -> list[Event]:
        """The events greater than `after`, as far as the log does not have them."""
        begun_at, events = self._log.begun_at, list[Event]()
        if after >= begun_at:
            return events
        self._check_usable()

        def take(event: Event, deliberate: bool) -> bool:
            events.append(event)
            if len(events) > EVENTS_MAX:
                raise Compacted(f"more than {EVENTS_MAX} revisions behind")
            return event.revision < begun_at

        await watch(self._gateway, self._layout, after, take)
        if not events or events[-1].revision < begun_at:
            raise StoreUnavailable(f"{self._access} does not tell what happened after revision {after}")
        return [event for event in events if event.revision <= begun_at]

    @asynccontextmanager
    async def _ordered(self) -> AsyncIterator[Patience]:
        """Calls after each other; what etcd says about the whole store is the store's end or the call's."""
        patience = Patience(self._wait_s)
        self._check_usable()
        with trio.move_on_at(patience.give_up_at) as waiting:
            await self._order.acquire()
        if waiting.cancelled_caught:
            raise StoreUnavailable(f"the metadata store {self._access} does not answer others either")
        try:
            self._check_usable()
            yield patience
        except WentBack as found:
            raise self._distrust(found) from found
        except Refused as refused:
            raise self._gateway.explained(refused) from refused
        finally:
            self._order.release()

    def _distrust(self, found: WentBack) -> StoreUnavailable:
        sentence = (
            f"the metadata store {self._access} is not what it was: {found}; nothing is deleted because of that, and "
            "nothing is declared until it is put right and the node started again"
        )
        if self._failure is None:
            log.error("the metadata store went back", reason=sentence)
            self._failure = StoreUnavailable(sentence)
        return StoreUnavailable(sentence)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

    def _entry(self, found: Found) -> Entry:
        return Entry(self._layout.contract_key(found.key), found.value, found.mod_revision, found.lease)
