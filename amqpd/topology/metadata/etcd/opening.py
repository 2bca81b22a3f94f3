"""Opens a store in etcd: makes it, if it may be made, and ends what an earlier life of this node left in it.

What comes in: where it is; whether this process is alone with its name. What goes out: the store's identity and
revision.
Rules: 1. The identity is put once, by the process that comes first, and never again. 2. Leases of an earlier life are
ended before anything is read: its exclusive and transient queues are gone with it, as they are from an embedded
store.
Not here: which processes may say that they are alone (`datadir/cluster.py`).
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import NamedTuple

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import TXN, Gateway
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.leases import Leases
from amqpd.topology.metadata.etcd.patience import Patience
from amqpd.topology.metadata.etcd.reading import read_all
from amqpd.topology.metadata.store import StoreUnavailable

# How many keys one request removes.
REMOVED_AT_ONCE = 100


class Opened(NamedTuple):
    """`head`: the store's revision; `found`: the one before this process wrote."""

    identity: str
    head: int
    found: int


async def open_in_etcd(
    gateway: Gateway, layout: Layout, leases: Leases, wait_s: float, *, make: bool, alone: bool
) -> Opened:
    """Raises StoreUnavailable, Refused."""
    if make:
        mine = secrets.token_hex(16)
        first = messages.transaction(
            [messages.revision_is(layout.identity, 0)],
            [messages.put(layout.identity, mine), messages.put(layout.head, mine)],
        )
        await Patience(wait_s).keep_trying(partial(gateway.ask, TXN, first))
    _, found = await _read(gateway, layout, wait_s)
    if alone:
        await _end_earlier_life(gateway, layout, leases, wait_s)
    return Opened(*await _read(gateway, layout, wait_s), found)


async def _read(gateway: Gateway, layout: Layout, wait_s: float) -> tuple[str, int]:
    """Identity and revision."""
    reads = messages.transaction([], [messages.read(layout.identity), messages.read(layout.head)])
    seen = messages.read_in(await Patience(wait_s).keep_trying(partial(gateway.ask, TXN, reads)))
    if layout.identity not in seen:
        raise StoreUnavailable(f"{gateway.access} has no metadata store {layout.prefix!r}")
    head = seen.get(layout.head)
    return seen[layout.identity].value, head.mod_revision if head is not None else 0


async def _end_earlier_life(gateway: Gateway, layout: Layout, leases: Leases, wait_s: float) -> None:
    _, found = await read_all(gateway, layout.lives, wait_s)
    for each in found:
        if each.key.startswith(layout.leases):
            await leases.end_earlier(int(each.key.removeprefix(layout.leases)), Patience(wait_s))
    left = [messages.delete(each.key) for each in found]
    while left:
        head = messages.put(layout.head, secrets.token_hex(8))
        removal = messages.transaction([], [*left[:REMOVED_AT_ONCE], head])
        await Patience(wait_s).keep_trying(partial(gateway.ask, TXN, removal))
        left = left[REMOVED_AT_ONCE:]
