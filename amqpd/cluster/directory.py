"""This forwarder's membership in the cluster, and what it hears of the others: the store's half of the cluster.

What comes in: the metadata store, the record of this member; records of sources to swap, wishes. What goes out: the
members, who is known, the sources' records, what is wished of them, each change of these; the outcome of a swap.
Rules: 1. One way in: what is here changes when the store's watch tells it, in revision order, whichever process made
it; so after a swap of this one, too. 2. Its own key is held by a lease that is kept alive; when that was lost it is
granted again, and the key put again. A process that finds its name taken by another one ends. 3. A disk whose life
does not go on where the store knows that it was (a copy, an older state, an emptied one) gets a new generation: it
may lack what it acknowledged. The end of a process in order is a life, too (`cluster/lives.py`). 4. While the store
does not answer, what was heard last stays.
Not here: the swaps (`swaps.py`); etcd's watch, one for each process and all its readers
(`topology/metadata/events.py`); keys and values (`records.py`); who becomes a home
(`amqpd/replication/take_over.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog
import trio

from amqpd.cluster.records import (
    PREFIX,
    KnownRecord,
    MemberRecord,
    WishRecord,
    decode,
    encode,
    known_key,
    member_key,
)
from amqpd.cluster.roster import Changed, Roster
from amqpd.cluster.swaps import Swaps
from amqpd.errors import NodeFailure, StartupError
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import (
    Compacted,
    Compare,
    Entry,
    LeaseGone,
    MetadataStore,
    OutcomeUnknown,
    PutKey,
    StoreBusy,
    StoreFull,
    StoreUnreached,
)

# A member that the store has not heard from for so long is gone for the others. etcd grants no shorter lease with
# its defaults: one and a half of its election times.
LEASE_S = 2.0
# The key of an earlier process of this name is waited for, for this number of its leases: one to run out, the others
# for an etcd that has a new leader, which gives every lease its full time again.
LEASES_WAITED = 5
# What did not answer is tried again after this.
RETRY_S = 0.5

# Nothing happened, or what may happen twice.
_UNREACHED = (StoreUnreached, StoreBusy, StoreFull)

log = structlog.get_logger(component="cluster")


def drawn_generation() -> int:
    """Random, positive, of 63 bits: no two disks have the same one."""
    return secrets.randbits(63) or 1


class Directory:
    """`run` it for as long as the process lives; when that has started, this is a member and has heard everything."""

    def __init__(
        self,
        store: MetadataStore,
        me: MemberRecord,
        on_change: Callable[[Changed], None],
        *,
        lease_s: float = LEASE_S,
        draw: Callable[[], int] = drawn_generation,
    ) -> None:
        """`on_change`: called after each change with what changed, on the trio thread; first, with everything, before
        `run` has started. An exception in it ends `run`."""
        self.me = me
        """with the generation and the life that count: others than were given if the disk is not what it was; keep
        them in the journal before anything is acknowledged"""
        self._store = store
        self._on_change = on_change
        self._lease_s = lease_s
        self._draw = draw
        self._lease = 0
        self._swaps = Swaps(store)
        self._roster = Roster()
        self._applied = trio.Event()
        self._missing = trio.Event()
        self._lost = False
        self._ends = trio.Event()

    @property
    def members(self) -> Mapping[str, MemberRecord]:
        return self._roster.members

    @property
    def known(self) -> Mapping[str, KnownRecord]:
        return self._roster.known

    @property
    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """See `Roster`."""
        return self._roster.addresses

    @property
    def roster(self) -> Roster:
        """For readers."""
        return self._roster

    @property
    def records(self) -> Mapping[int, SourceRecord]:
        """By source."""
        return self._roster.records

    @property
    def wishes(self) -> Mapping[int, WishRecord]:
        """By source."""
        return self._roster.wishes

    @property
    def revision(self) -> int:
        """Of the store, that all of it is as of."""
        return self._roster.revision

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns. Raises StoreUnavailable and StartupError before it has started, then NodeFailure and
        MetadataStoreError, and what `on_change` raises."""
        await self._join()
        self._tell(self._roster.load(await self._store.range(PREFIX)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._keep_membership)
            task_status.started()

    async def refresh(self) -> None:
        """Returns when everything that was committed before the call, by whichever process, is here. `run` must be
        running. Raises StoreUnavailable."""
        revision = await self._store.refresh()
        while self.revision < revision:
            await self._applied.wait()

    async def read(self, source: int) -> SourceRecord | None:
        """The record as the store has it now, which may be newer than the one in `records`; None: there is none.
        Raises StoreUnavailable."""
        return await self._swaps.read(source)

    async def swap(self, record: SourceRecord) -> SourceRecord | None:
        """Put the record if the store's is still of its revision (0: there is none). Returns it with its new
        revision; None if another one was put meanwhile. Raises StoreUnavailable: then, as when it is cancelled, it
        may have been carried out, and the same swap again tells."""
        return await self._swaps.swap(record)

    async def put_wish(self, wish: WishRecord) -> WishRecord | None:
        """As `swap`, of a wish."""
        return await self._swaps.swap(wish)

    async def drop_wish(self, wish: WishRecord) -> bool:
        """It is fulfilled, or not wished any more: it goes, if the store's is still of its revision. False: another
        one was put meanwhile. Raises StoreUnavailable, as `swap`."""
        return await self._swaps.drop(wish)

    async def end_life(self) -> None:
        """The process is about to end in order: the store knows a life after it, which nobody has. Raises
        MetadataStoreError; it may have been carried out then."""
        self._ends.set()
        after = KnownRecord(self.me.name, self.me.life + 1, self.me.generation)
        known = await self._store.get(known_key(self.me.name))
        while known is not None and self._is_known(known):
            # `_stay` may be putting the keys just now, for the last time.
            await self._store.transact([Compare(known.key, known.mod_revision)], [PutKey(known.key, encode(after))])
            known = await self._store.get(known.key)

    # Membership

    async def _join(self) -> None:
        """Become a member. Raises StartupError, StoreUnavailable."""
        self._lease = await self._store.grant_lease(self._lease_s)
        give_up_at = trio.current_time() + LEASES_WAITED * self._lease_s
        while True:
            member, known = await self._entries()
            if self._is_mine(member) and self._is_known(known):
                return
            if member is None:
                self._take_generation(known)
                await self._put(None, known)
            elif trio.current_time() < give_up_at:
                await trio.sleep(RETRY_S)
            else:
                raise StartupError(
                    f"the cluster has a member {self.me.name} that lives, {_said(member)}: give this node another "
                    "node_name, or end that one"
                )

    def _take_generation(self, entry: Entry | None) -> None:
        """A disk that is new to the store keeps the generation that it has; so does one that goes on from where it
        was."""
        if entry is None:
            return
        known = decode(entry.key, entry.value, entry.mod_revision)
        assert isinstance(known, KnownRecord)
        if known.generation == self.me.generation and known.life < self.me.life:
            return
        generation = self._draw()
        log.warning(
            "this disk is not what the cluster knows of this node: it counts as another one until it has caught up",
            known_generation=known.generation,
            known_life=known.life,
            generation=self.me.generation,
            life=self.me.life,
            new_generation=generation,
        )
        # Lives are compared to know that an earlier process is gone: they grow, on another disk too.
        self.me = replace(self.me, generation=generation, life=max(self.me.life, known.life + 1))

    async def _keep_membership(self) -> None:
        while True:
            with trio.move_on_after(self._lease_s / 3):
                await self._missing.wait()
            try:
                await self._stay()
            except _UNREACHED as error:
                if not self._lost:
                    log.warning("the membership is not renewed", reason=str(error))
                self._lost = True
                await trio.sleep(min(RETRY_S, self._lease_s / 3))
            else:
                if self._lost:
                    log.info("the membership is renewed again")
                self._lost = False

    async def _stay(self) -> None:
        """Still a member, and the key is there if it was missing. Raises NodeFailure."""
        try:
            await self._store.keep_alive(self._lease)
        except LeaseGone:
            if not self._ends.is_set():
                self._missing.set()
                self._lease = await self._store.grant_lease(self._lease_s)
        while self._missing.is_set() and not self._ends.is_set():
            member, known = await self._entries()
            if self._ends.is_set():
                break  # what was found may be the end of this process
            self._require_mine(member, known)
            if self._is_mine(member) and self._is_known(known):
                self._missing = trio.Event()
            else:
                log.warning("this node's key in the metadata store was lost and is put again")
                await self._put(member, known)
        if self._ends.is_set():
            self._missing = trio.Event()  # it stays so, and is waited for no more

    async def _put(self, member: Entry | None, known: Entry | None) -> None:
        """Both, if they still are as they were found; what came of it is read again by the caller."""
        me = self.me
        compares = [Compare(member_key(me.name), _revision(member)), Compare(known_key(me.name), _revision(known))]
        operations = [
            PutKey(member_key(me.name), encode(me), self._lease),
            PutKey(known_key(me.name), encode(self._as_known())),
        ]
        try:
            await self._store.transact(compares, operations)
        except OutcomeUnknown as error:
            log.warning("it is not known whether this node's key was put", reason=str(error))
        except LeaseGone:
            self._lease = await self._store.grant_lease(self._lease_s)

    async def _entries(self) -> tuple[Entry | None, Entry | None]:
        return await self._store.get(member_key(self.me.name)), await self._store.get(known_key(self.me.name))

    def _require_mine(self, member: Entry | None, known: Entry | None) -> None:
        """Raises NodeFailure."""
        if member is not None and member.value != encode(self.me):
            raise NodeFailure(self._taken(member))
        if known is not None and not self._is_known(known):
            raise NodeFailure(self._taken(known))

    def _is_mine(self, entry: Entry | None) -> bool:
        return entry is not None and entry.value == encode(self.me) and entry.lease == self._lease

    def _is_known(self, entry: Entry | None) -> bool:
        return entry is not None and entry.value == encode(self._as_known())

    def _as_known(self) -> KnownRecord:
        return KnownRecord(self.me.name, self.me.life, self.me.generation)

    def _taken(self, entry: Entry) -> str:
        return (
            f"another process is {self.me.name} in this cluster now, {_said(entry)}: each node needs a node_name of "
            "its own"
        )

    # What is heard

    async def _follow(self) -> None:
        while True:
            try:
                async for event in self._store.watch(self.revision):
                    self._tell(self._roster.apply(event))
            except _UNREACHED as error:
                log.warning("changes of the cluster wait", reason=str(error), retry_s=RETRY_S)
                await trio.sleep(RETRY_S)
            except Compacted as error:
                log.warning("too far behind the metadata store, reading the cluster again", reason=str(error))
                await self._load_again()

    async def _load_again(self) -> None:
        while True:
            try:
                return self._tell(self._roster.load(await self._store.range(PREFIX)))
            except _UNREACHED as error:
                log.warning("the cluster cannot be read", reason=str(error), retry_s=RETRY_S)
                await trio.sleep(RETRY_S)

    def _tell(self, changed: Changed) -> None:
        if self.me.name in changed.members | changed.known:
            self._look_at_own()
        if changed:
            self._on_change(changed)
        self._applied.set()
        self._applied = trio.Event()

    def _look_at_own(self) -> None:
        """Should it be lost, or another process be there, `_stay` finds out which."""
        lost = self.members.get(self.me.name) != self.me or self.known.get(self.me.name) != self._as_known()
        if lost and not self._ends.is_set():
            self._missing.set()


def _revision(entry: Entry | None) -> int:
    return entry.mod_revision if entry is not None else 0


def _said(entry: Entry) -> str:
    match decode(entry.key, entry.value, entry.mod_revision):
        case MemberRecord() as member:
            return f"at {member.host}:{member.port}, life {member.life}"
        case KnownRecord() as known:
            return f"life {known.life} of another disk"
    return entry.key
