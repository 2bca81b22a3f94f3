"""This forwarder's membership in the cluster, and what it hears of the others: the store's half of the cluster.

What comes in: the metadata store, the record of this member; records of sources to swap, desired sets. What goes out:
the members, who is known, the sources' records, what is asked of them, each change of these; the outcome of a swap.
Rules: 1. One way in: what is here changes when the store's watch tells it, in revision order, whichever process made
it; so after a swap of this one, too. 2. Its own key is held by a lease that is kept alive; when that was lost it is
granted again, and the key put again: from the first moment on, also while this process becomes a member. It knows its
own records by their nonce. A process that finds its name taken by another one ends. 3. What is put is on the disk
first; which disks go on, and which count as another one, is in `claims.py`. The end of a process in order is an
incarnation, too (`cluster/incarnations.py`). 4. While the store does not answer, what was heard last stays; a start
waits for it. 5. A disk that an operator has taken out of the cluster does not come back: its process ends, and claims
nothing.
Not here: the swaps (`swaps.py`); etcd's watch, one for each process and all its readers
(`topology/metadata/events.py`); keys and values (`records.py`); who becomes a leader
(`amqpd/replication/take_over.py`).
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog
import trio

from amqpd.cluster.claims import Claim
from amqpd.cluster.forgotten_starts import note_start
from amqpd.cluster.records import (
    PREFIX,
    ClusterRecord,
    ForgottenRecord,
    KnownRecord,
    LinksRecord,
    MemberRecord,
    MissingLink,
    decode,
    encode,
    forgotten_key,
    known_key,
    links_key,
    member_key,
)
from amqpd.cluster.roster import Changed, Roster
from amqpd.cluster.swaps import Swaps
from amqpd.errors import NodeFailure, NotYet, StartupError
from amqpd.topology.metadata.own_time import DID_NOT_RUN, OwnTime, RanOut
from amqpd.topology.metadata.store import (
    Compacted,
    Compare,
    DeleteKey,
    LeaseGone,
    MetadataEntry,
    MetadataStore,
    MetadataStoreError,
    OutcomeUnknown,
    PutKey,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreReplaced,
    StoreUnreached,
)

# A member that the store has not heard from for so long is gone for the others. etcd grants no shorter lease with
# its defaults: one and a half of its election times.
LEASE_S = 2.0
# Lease times in which members renew their leases after the store was silent: a try, its pause, the grant.
# Until then a node without a lease may live.
RENEWED_LEASES = 2.0
# A lease is renewed three times in its time. Who could not for so long has a lease that is about to run out, and that
# of a node that renewed its own a moment earlier may have.
DOUBT_LEASES = 0.9
# The key of an earlier process of this name is waited for, for this number of its leases: one to run out, the others
# for an etcd that has a new leader, which gives every lease its full time again.
LEASES_WAITED = 5
# What did not answer is tried again after this.
RETRY_S = 0.5
# By a start that waits for the store, which doubles that each time.
RETRY_S_MAX = 8.0
# How long a start goes on while the store does not answer, after it was opened. Less than a supervisor gives a start.
START_S = 60.0
# The end of a node that was forgotten is not kept up for longer by its note for the others.
ASK_S = 5.0

# Nothing happened, or what may happen twice.
_UNREACHED = (StoreUnreached, StoreBusy, StoreFull)

T = TypeVar("T")

log = structlog.get_logger(component="cluster")


def drawn_number() -> int:
    """Random, positive, of 63 bits: no two generations, and no two nonces, are the same."""
    return secrets.randbits(63) or 1


class Directory:
    """This node's membership in the cluster, and the records of all members, as the store has them. `run` it for
    as long as the process lives; when `run` has started, the node is a member and has heard everything."""

    def __init__(
        self,
        store: MetadataStore,
        me: MemberRecord,
        claim: Claim,
        keep: Callable[[Claim], Awaitable[None]],
        on_change: Callable[[Changed], None],
        *,
        lease_s: float = LEASE_S,
        draw: Callable[[], int] = drawn_number,
        draw_nonce: Callable[[], int] = drawn_number,
    ) -> None:
        """`me`: what it is to say of itself, its incarnation and generation apart. `claim`: the last one on the disk;
        `keep` writes the next one there. `on_change`: called after each change with what changed, on the trio thread;
        first, with everything, before `run` has started. An exception in it ends `run`."""
        self.me = me
        """with the generation and the incarnation that count, as soon as `run` has started"""
        self._store = store
        self._claim = claim
        self._keep = keep
        self._claimed_upon: int | None = None
        """the revision of what the store knew when this process made its claim; None: it has made none"""
        self._on_change = on_change
        self._lease_s = lease_s
        self._draw = draw
        self._draw_nonce = draw_nonce
        self._lease = 0
        self.swaps = Swaps(store)
        self.roster = Roster()
        """for readers"""
        self.on_revision: Callable[[], object] = bool
        """called after each revision, whatever it has changed"""
        self._applied = trio.Event()
        self._joined = False
        self._missing = trio.Event()
        self._lost = ""
        """why the membership was not renewed when that was tried last"""
        self.store_replaced = ""
        """what the store says since it is not the one any more that was opened, or is in an older state: it answers,
        and is not used; empty: it is that one, or is silent"""
        self._renewed_at = -math.inf
        self._doubtful_until = -math.inf
        self._ends = trio.Event()

    @property
    def silent_s(self) -> float:
        """How long the store has not renewed this member's lease, where that is longer than the lease; 0: it has."""
        silent_s = trio.current_time() - self._renewed_at
        return silent_s if self._joined and math.isfinite(silent_s) and silent_s > self._lease_s else 0.0

    @property
    def is_doubtful(self) -> bool:
        """The store is silent, or was just now: who is no member may be well, and not have been able to renew its
        lease."""
        now = trio.current_time()
        return now < self._doubtful_until or now - self._renewed_at > DOUBT_LEASES * self._lease_s

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns. Raises StartupError and MetadataStoreError before it has started, then NodeFailure and
        MetadataStoreError, and what `on_change` raises."""
        start = OwnTime(START_S)
        self._lease = await self._insist(partial(self._store.grant_lease, self._lease_s), start)
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_membership)
            try:
                await self._insist(self._join, start)
                snapshot = await self._insist(partial(self._store.range, PREFIX), start)
            except (StartupError, MetadataStoreError) as error:
                failure = error
                nursery.cancel_scope.cancel()
            else:
                self._joined = True
                self._tell(self.roster.load(snapshot))
                self._look_at_own()
                nursery.start_soon(self._follow)
                task_status.started()
        if failure is not None:
            raise failure

    async def _insist(self, act: Callable[[], Awaitable[T]], start: OwnTime) -> T:
        """What it returns, as soon as the store answers. Raises NotYet when it does not for as long as a start
        lasts, and what else it raises."""
        reason, pause_s = "the metadata store does not answer", RETRY_S
        try:
            while True:
                try:
                    return await start.within(act)
                except _UNREACHED as error:
                    reason = str(error)
                log.warning("the start waits for the metadata store, and goes on trying", reason=reason)
                await start.within(partial(trio.sleep, pause_s))
                pause_s = min(2 * pause_s, RETRY_S_MAX)
        except RanOut:
            raise NotYet(
                f"this node cannot join its cluster: {reason}; it was asked for {START_S:g} s: see that etcd runs "
                "and has a leader, then start this node again"
            ) from None

    async def refresh(self) -> None:
        """Returns when everything that was committed before the call, by whichever process, is here. `run` must be
        running. Raises StoreUnavailable."""
        revision = await self._store.refresh()
        while self.roster.revision < revision:
            await self._applied.wait()

    async def say_links(self, missing: Sequence[MissingLink]) -> None:
        """What this member says of its links from now on; it goes with its lease. Raises LeaseGone,
        MetadataStoreError."""
        key, record = links_key(self.me.name), LinksRecord(self.me.name, self.me.incarnation, tuple(missing))
        await self._store.transact([], [PutKey(key, encode(record), self._lease) if missing else DeleteKey(key)])

    @property
    def ending(self) -> Claim:
        """What `end_incarnation` puts, for the disk before."""
        return replace(self._claim, incarnation=self._claim.incarnation + 1)

    async def end_incarnation(self) -> None:
        """The process is about to end in order: the store knows an incarnation after it, which nobody has. Raises
        MetadataStoreError; it may have been carried out then."""
        self._ends.set()
        after = replace(self._as_known(), incarnation=self.ending.incarnation)
        known = await self._store.get(known_key(self.me.name))
        while known is not None and self._is_known(known):
            # `_stay` may be putting the keys just now, for the last time.
            await self._store.transact([Compare(known.key, known.mod_revision)], [PutKey(known.key, encode(after))])
            known = await self._store.get(known.key)

    # Membership

    async def _join(self) -> None:
        """Become a member. Raises StartupError, MetadataStoreError."""
        # Of the time in which this process looked: while it was paused, nobody saw the other one renew its lease.
        waits = OwnTime(LEASES_WAITED * self._lease_s)
        while True:
            # Before it is read: a process that was paused behind the read looks again.
            late = waits.left_s <= 0
            member, known = await self._entries()
            if self._is_mine(member) and self._is_known(known):
                return
            if await self._is_forgotten(known):
                await self._ask()
                raise StartupError(self._forgotten())
            if member is None or _is_unreadable(member) or self._is_own(member):
                await self._make_claim(known)
                await self._put(member, known)
            elif not late:
                await trio.sleep(RETRY_S)
            else:
                raise StartupError(
                    f"another process is the member {self.me.name} of this cluster, {_said(member)}, and renews its "
                    "lease in the metadata store: end that one, or give this node a node_name of its own"
                )

    async def _make_claim(self, entry: MetadataEntry | None) -> None:
        """Unless this process has made one that holds: nobody else has put anything since. Raises StartupError,
        StorageFailure."""
        known = None if entry is None else self._known_in(entry)
        if self._claimed_upon is not None and (
            known is None or _revision(entry) == self._claimed_upon or self._claim.goes_on(known)
        ):
            return
        before, claim = self._claim, self._claim.next(known, self._draw, self._draw_nonce)
        if known is not None and claim.generation != known.generation:
            log.warning(
                "this disk is not what the cluster knows of this node: it counts as another one until it has caught "
                "up",
                known_generation=known.generation,
                known_incarnation=known.incarnation,
                generation=before.generation,
                incarnation=before.incarnation,
                new_generation=claim.generation,
            )
        await self._keep(claim)
        self._claim, self._claimed_upon = claim, _revision(entry)
        self.me = replace(self.me, generation=claim.generation, incarnation=claim.incarnation, nonce=claim.nonce)

    async def _keep_membership(self) -> None:
        while True:
            with trio.move_on_after(self._lease_s / 3):
                await self._missing.wait()
            try:
                await self._stay()
            except _UNREACHED as error:
                if not self._lost:
                    log.warning("the membership is not renewed", reason=str(error))
                self._lost = str(error)
                self.store_replaced = self._lost if isinstance(error, StoreReplaced) else ""
                await trio.sleep(min(RETRY_S, self._lease_s / 3))
            else:
                self._renewed()

    def _renewed(self) -> None:
        now = trio.current_time()
        silent_s = now - self._renewed_at
        if math.isfinite(silent_s) and silent_s > self._lease_s:
            log.warning(
                "this node's lease ran out: others may have taken it for gone meanwhile, and lead its queues",
                reason=self._lost or DID_NOT_RUN,
                silent_s=round(silent_s, 1),
                cluster_lease_s=self._lease_s,
            )
        elif self._lost:
            log.info("the membership is renewed again")
        if math.isfinite(silent_s) and silent_s > DOUBT_LEASES * self._lease_s:
            self._doubtful_until = now + RENEWED_LEASES * self._lease_s
        self._lost, self._renewed_at = "", now

    async def _stay(self) -> None:
        """Still a member, and the key is there if it was missing; before it is one, the lease is. Raises
        NodeFailure."""
        try:
            await self._store.keep_alive(self._lease)
        except LeaseGone:
            if not self._ends.is_set():
                if self._joined:
                    self._missing.set()
                self._lease = await self._store.grant_lease(self._lease_s)
        while self._missing.is_set() and not self._ends.is_set():
            member, known = await self._entries()
            if self._ends.is_set():
                break  # what was found may be the end of this process
            self._require_mine(member, known)
            if await self._is_forgotten(known):
                await self._ask()
                raise NodeFailure(self._forgotten())
            if self._is_mine(member) and self._is_known(known):
                self._missing = trio.Event()
            else:
                log.warning("this node's key in the metadata store was lost and is put again")
                await self._put(member, known)
        if self._ends.is_set():
            self._missing = trio.Event()  # it stays so, and is waited for no more

    async def _put(self, member: MetadataEntry | None, known: MetadataEntry | None) -> None:
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

    async def _entries(self) -> tuple[MetadataEntry | None, MetadataEntry | None]:
        return await self._store.get(member_key(self.me.name)), await self._store.get(known_key(self.me.name))

    async def _is_forgotten(self, known: MetadataEntry | None) -> bool:
        """`known`: read before, in one transaction with what is forgotten. The name may have another disk by now."""
        if not self._claim.generation:
            return False
        if known is not None and (
            _is_unreadable(known) or self._known_in(known).generation == self._claim.generation
        ):
            return False
        found = await self._store.get(forgotten_key(self.me.name))
        try:
            record = None if found is None else _decoded(found)
        except StoreDamaged:  # it is named with the others that cannot be read
            return False
        return isinstance(record, ForgottenRecord) and self._claim.generation in record.generations

    async def _ask(self) -> None:
        """The other nodes say then that this one goes on; why it is refused is said whatever becomes of that."""
        reason = "the metadata store does not answer"
        with trio.move_on_after(ASK_S):
            try:
                await note_start(self._store, self.me, time.time_ns() // 1_000_000)
                return
            except MetadataStoreError as error:
                reason = str(error)
        log.warning("the other nodes are not told that this one was started", reason=reason)

    def _forgotten(self) -> str:
        name = self.me.name
        return (
            f"an operator has taken the node {name}, with this disk, out of the cluster (amqpd cluster forget): "
            f"to let it in again as it is, run amqpd cluster readmit {name} and start it; to make a new node of it, "
            "start it with an empty data directory, which gives up what only this disk has: the messages of its "
            "classic queues"
        )

    def _require_mine(self, member: MetadataEntry | None, known: MetadataEntry | None) -> None:
        """Raises NodeFailure."""
        if member is not None and not _is_unreadable(member) and not self._is_own(member):
            raise NodeFailure(self._taken(member))
        if known is not None and not _is_unreadable(known) and not self._claim.goes_on(self._known_in(known)):
            raise NodeFailure(self._taken(known))

    def _is_own(self, member: MetadataEntry) -> bool:
        """This process put it, under whichever lease. (Or the one before it on this disk, which is gone.)"""
        record = _decoded(member)
        return (
            self._claimed_upon is not None and isinstance(record, MemberRecord) and record.nonce == self._claim.nonce
        )

    def _known_in(self, entry: MetadataEntry) -> KnownRecord:
        """One that cannot be read may be of any disk: this one has to catch up before it counts."""
        record = KnownRecord(self.me.name, 0, 0) if _is_unreadable(entry) else _decoded(entry)
        assert isinstance(record, KnownRecord)
        return record

    def _is_mine(self, entry: MetadataEntry | None) -> bool:
        return entry is not None and entry.value == encode(self.me) and entry.lease == self._lease

    def _is_known(self, entry: MetadataEntry | None) -> bool:
        return entry is not None and entry.value == encode(self._as_known())

    def _as_known(self) -> KnownRecord:
        return KnownRecord(self.me.name, self.me.incarnation, self.me.generation, self.me.nonce)

    def _taken(self, entry: MetadataEntry) -> str:
        return (
            f"another process is {self.me.name} in this cluster now, {_said(entry)}: end one of the two, or give one "
            "a node_name of its own"
        )

    # What is heard

    async def _follow(self) -> None:
        while True:
            try:
                async for event in self._store.watch(self.roster.revision):
                    self._tell(self.roster.apply(event))
            except _UNREACHED as error:
                log.warning("changes of the cluster wait", reason=str(error), retry_s=RETRY_S)
                await trio.sleep(RETRY_S)
            except Compacted as error:
                log.warning("too far behind the metadata store, reading the cluster again", reason=str(error))
                await self._load_again()

    async def _load_again(self) -> None:
        while True:
            try:
                return self._tell(self.roster.load(await self._store.range(PREFIX)))
            except _UNREACHED as error:
                log.warning("the cluster cannot be read", reason=str(error), retry_s=RETRY_S)
                await trio.sleep(RETRY_S)

    def _tell(self, changed: Changed) -> None:
        for key in changed.unreadable:
            if (reason := self.roster.unreadable.get(key)) is not None:
                log.error("a record of the cluster is left out", reason=reason)
            else:
                log.info("a record of the cluster can be read again", key=key)
        if self.me.name in changed.members | changed.known:
            self._look_at_own()
        if changed:
            self._on_change(changed)
        self._applied.set()
        self._applied = trio.Event()
        self.on_revision()

    def _look_at_own(self) -> None:
        """Should it be lost, or another process be there, `_stay` finds out which."""
        lost = (
            self.roster.members.get(self.me.name) != self.me
            or self.roster.known.get(self.me.name) != self._as_known()
        )
        if lost and not self._ends.is_set():
            self._missing.set()


def _revision(entry: MetadataEntry | None) -> int:
    return entry.mod_revision if entry is not None else 0


def _decoded(entry: MetadataEntry) -> ClusterRecord | None:
    """Raises StoreDamaged."""
    return decode(entry.key, entry.value, entry.mod_revision)


def _is_unreadable(entry: MetadataEntry) -> bool:
    """It is no other process's: the process of this name puts its own there."""
    try:
        _decoded(entry)
    except StoreDamaged as error:
        log.error("a record of this node in the metadata store is put again", reason=str(error))
        return True
    return False


def _said(entry: MetadataEntry) -> str:
    match _decoded(entry):
        case MemberRecord() as member:
            return f"at {member.host}:{member.port}, incarnation {member.incarnation}"
        case KnownRecord() as known:
            return f"incarnation {known.incarnation} of another disk"
    return entry.key
