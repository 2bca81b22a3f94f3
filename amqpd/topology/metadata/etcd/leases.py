"""The leases of one process in etcd, and the keys that hold them, to be put again when a lease is gone.

What comes in: leases to grant, keep alive and end; which keys hold them. What goes out: requests to etcd, and what
has to be put again.
Rules: 1. A lease that ran out while etcd, or the way to it, was down is granted again with the same number: the
contract promises that it lives as long as its process keeps it alive. So the embedded stores' user needs no other
code, and only here it is known which keys hold it. 2. A key that was put or deleted by a transaction since is not put
again. 3. A lease is noted beside it: a process that died leaves it to its next incarnation to end it, before it reads
anything. 4. A deletion that no transaction made (`layout.py`) of a key that is held here is a lease that ran out: it
is put again, and not reported.
Not here: the transactions that put keys again (`store.py`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import trio

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import (
    FAILED_PRECONDITION,
    GRANT,
    KEEP_ALIVE,
    NOT_FOUND,
    REVOKE,
    TIME_TO_LIVE,
    TXN,
    EtcdRefused,
    Gateway,
)
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.messages import REVISION_MAX, Message
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.own_time import DID_NOT_RUN
from amqpd.topology.metadata.store import LeaseGone, Operation, PutKey, StoreUnavailable

# Of a lease's time, how long one endpoint may take to renew it. It is renewed three times in that time, so there is
# enough left for another endpoint.
RENEWAL_SHARE = 0.25
# What takes longer than it may by this was not etcd's doing.
OWN_DELAY_S_MAX = 1.0


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    """values of keys, and the revisions that put them"""
    missing: set[str] = field(default_factory=set)
    """of these what has to be put again"""
    renewed_at: float = field(default_factory=trio.current_time)
    unanswered: str = ""
    """what came instead of an answer since then"""
    lost_because: str = ""

    def renewed(self) -> None:
        self.renewed_at, self.unanswered = trio.current_time(), ""

    def ran_out(self) -> None:
        """Now it is known: why, for an operator."""
        silent_s = trio.current_time() - self.renewed_at
        if self.unanswered:
            why = f"etcd did not answer ({self.unanswered})"
        elif silent_s > self.ttl_s:
            why = DID_NOT_RUN
        else:
            why = "etcd ended it before its time: somebody revoked it, or etcd's clock jumped"
        self.lost_because = f"it was not renewed for {silent_s:.1f} s of the {self.ttl_s:g} s that it lives: {why}"


class Leases:
    """The leases of one process in etcd, and the keys that hold them."""

    def __init__(self, gateway: Gateway, layout: Layout, machine: str = "") -> None:
        """`machine`: where this process is, which its notes say."""
        self._gateway = gateway
        self._machine = machine
        self._layout = layout
        self._leases: dict[int, _Lease] = {}
        self._watched = 0
        """the last revision that the watch has told"""

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._leases))

    def require(self, operations: Iterable[Operation]) -> None:
        """Raises LeaseGone when one names a lease that is not of this process."""
        for operation in operations:
            if isinstance(operation, PutKey) and operation.lease and operation.lease not in self._leases:
                raise LeaseGone(f"lease {operation.lease}")

    async def grant(self, ttl_s: float, patience: EtcdPatience) -> int:
        # Chosen here, so that a request whose answer was lost can be repeated.
        lease = secrets.randbits(62) + 1
        # Noted first: should the process die, its next incarnation ends what is noted.
        await self._note(messages.put(self._layout.lease(lease), self._machine), patience)
        await self._grant(lease, ttl_s, patience)
        self._leases[lease] = _Lease(ttl_s)
        return lease

    async def keep_alive(self, lease: int, patience: EtcdPatience) -> bool:
        """Whether all of it is there; else etcd has the lease again, and its keys may be `missing`. Raises LeaseGone,
        StoreUnavailable."""
        if lease not in self._leases:
            raise LeaseGone(f"lease {lease}")
        known = self._leases[lease]
        try:
            answer = await patience.keep_trying(lambda: self._ask(KEEP_ALIVE, lease))
        except StoreUnavailable as error:
            known.unanswered = str(error)
            raise
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            # Before it is granted: should that answer be lost, the next call finds a lease that is there.
            known.missing.update(known.held)
            known.ran_out()
            await self._grant(lease, known.ttl_s, patience)
            known.renewed()
            return False
        known.renewed()
        return not known.missing

    def lost_because(self, lease: int) -> str:
        """Why it ran out last."""
        return self._leases[lease].lost_because

    async def renewed(self, lease: int) -> bool:
        """Whether all of it is there, as far as that can be known soon. It takes no turn: what waits for etcd in one
        may wait longer than the lease lives. Raises LeaseGone."""
        if lease not in self._leases:
            raise LeaseGone(f"lease {lease}")
        known, begun_at, share_s = self._leases[lease], trio.current_time(), self._leases[lease].ttl_s * RENEWAL_SHARE
        try:
            answer = await self._gateway.ask_soon(KEEP_ALIVE, {"ID": str(lease)}, share_s)
        except (EtcdRefused, StoreUnavailable) as error:
            # With its turn it is asked again, and the reason is told: unless this process did not run meanwhile.
            if trio.current_time() - begun_at < len(self._gateway.access.endpoints) * share_s + OWN_DELAY_S_MAX:
                known.unanswered = str(error)
            return False
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            return False
        known.renewed()
        return not known.missing

    async def end(self, lease: int, patience: EtcdPatience) -> None:
        """Its keys go with it. It may be one of an earlier incarnation of this node, which is gone. Raises
        StoreUnavailable."""
        # Before it is sent: the deletions are no accident.
        self._leases.pop(lease, None)
        try:
            await patience.keep_trying(lambda: self._ask(REVOKE, lease))
        except EtcdRefused as refused:
            if refused.code != NOT_FOUND:
                raise self._gateway.explained(refused) from refused
        await self._note(messages.delete(self._layout.lease(lease)), patience)

    async def lives(self, lease: int, patience: EtcdPatience) -> float:
        """For how long such a lease lives when it was renewed, in seconds; 0: it is gone. Raises StoreUnavailable."""
        answer = await patience.keep_trying(lambda: self._ask(TIME_TO_LIVE, lease))
        return float(answer.get("grantedTTL", 0)) if int(answer.get("TTL", 0)) >= 0 else 0.0

    def committed(self, operations: Iterable[Operation], revision: int, *, watched: bool = False) -> None:
        """Of a transaction, of whichever process: which keys hold a lease of this one since then. Its answer says it,
        and the watch again, which says it alone when the answer was lost; what the watch has said is newer."""
        if watched:
            self._watched = revision
        elif revision <= self._watched:
            return
        for operation in operations:
            self._forget(operation.key, revision)
            if isinstance(operation, PutKey) and (known := self._leases.get(operation.lease)) is not None:
                known.held[operation.key] = (operation.value, revision)

    def missing(self, lease: int) -> list[PutKey]:
        """What has to be put again, of those that hold the lease."""
        known = self._leases[lease]
        return [PutKey(key, known.held[key][0], lease) for key in sorted(known.missing)]

    def taken(self, key: str) -> None:
        """It is there, and not ours."""
        self._forget(key, REVISION_MAX)

    def lost(self, key: str, revision: int) -> bool:
        """Whether the key, which no transaction deleted at this revision, is held here: then it has to be put again,
        if it was not put since."""
        for lease in self._leases.values():
            if key in lease.held:
                if lease.held[key][1] < revision:
                    lease.missing.add(key)
                return True
        return False

    def _forget(self, key: str, revision: int) -> None:
        for lease in self._leases.values():
            if key in lease.held and lease.held[key][1] <= revision:
                del lease.held[key]
                lease.missing.discard(key)

    async def _note(self, operation: Message, patience: EtcdPatience) -> None:
        note = messages.transaction([], [operation])
        await patience.keep_trying(lambda: self._gateway.ask(TXN, note))

    async def _grant(self, lease: int, ttl_s: float, patience: EtcdPatience) -> None:
        message = {"ID": str(lease), "TTL": str(math.ceil(ttl_s))}
        try:
            await patience.keep_trying(lambda: self._gateway.ask(GRANT, message))
        except EtcdRefused as refused:
            if refused.code != FAILED_PRECONDITION:  # "lease already exists": an earlier try did it
                raise self._gateway.explained(refused) from refused

    async def _ask(self, path: str, lease: int) -> Message:
        return await self._gateway.ask(path, {"ID": str(lease)})
