"""Opens a store in etcd: makes it, if it may be made, and ends what an earlier incarnation of this node left in it.

What comes in: where it is; whether this process is alone with its name. What goes out: the store's identity and
revision.
Rules: 1. The identity is put once, by the process that comes first, and never again. 2. Leases of an earlier
incarnation are ended before anything is read: its exclusive and transient queues are gone with it, as they are from
an embedded store. 3. An incarnation that goes on is none of this process: what runs on another machine is seen by the
leases that it renews, and is left alone. 4. Of an older copy of the store that comes back, the first process that
sees it writes the identity of another generation (`begin_generation`); nothing is written into a store that has
everything, nor into another one.
Not here: which processes may say that they are alone (`datadir/cluster.py`).
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import NamedTuple

import trio

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import TXN, Gateway
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.leases import Leases
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.etcd.reading import number_in, read_all
from amqpd.topology.metadata.etcd.turn import WentBack
from amqpd.topology.metadata.generations import are_of_one_store, is_earlier, next_generation
from amqpd.topology.metadata.own_time import OwnTime
from amqpd.topology.metadata.store import MetadataStoreError, StoreUnavailable

# A lease that is there for longer than this number of its times is renewed: one to run out, the others for an etcd
# that has a new leader, which gives every lease its full time again.
LEASES_WAITED = 5
LOOK_S = 0.25
# One that is away for so long is not renewed any more: who lives grants it again, three times in its time.
GONE_S = 3.0
# How many keys one request removes.
REMOVED_AT_ONCE = 100


class OpenedEtcdStore(NamedTuple):
    """A store in etcd that was opened. `head`: the store's revision; `found`: the one before this process wrote."""

    identity: str
    head: int
    found: int


async def open_in_etcd(
    gateway: Gateway,
    layout: Layout,
    leases: Leases,
    wait_s: float,
    *,
    make: bool,
    alone: bool,
    machine: str | None = None,
) -> OpenedEtcdStore:
    """`machine`: see `EtcdStore`. Raises StoreUnavailable, EtcdRefused, and MetadataStoreError for an earlier
    incarnation that goes on."""
    if make:
        mine = secrets.token_hex(16)
        first = messages.transaction(
            [messages.revision_is(layout.identity, 0)],
            [messages.put(layout.identity, mine), messages.put(layout.head, mine)],
        )
        await gateway.patience(wait_s).keep_trying(partial(gateway.ask, TXN, first))
    _, found = await _read(gateway, layout, wait_s)
    if alone:
        if machine is not None:
            await _see_it_gone(gateway, layout, leases, wait_s, machine)
        await _end_earlier_incarnation(gateway, layout, leases, wait_s)
    return OpenedEtcdStore(*await _read(gateway, layout, wait_s), found)


async def _read(gateway: Gateway, layout: Layout, wait_s: float) -> tuple[str, int]:
    """Identity and revision."""
    reads = messages.transaction([], [messages.read(layout.identity), messages.read(layout.head)])
    seen = messages.read_in(await gateway.patience(wait_s).keep_trying(partial(gateway.ask, TXN, reads)))
    if layout.identity not in seen:
        raise StoreUnavailable(f"{gateway.access} has no metadata store {layout.prefix!r}")
    head = seen.get(layout.head)
    return seen[layout.identity].value, head.mod_revision if head is not None else 0


async def _see_it_gone(gateway: Gateway, layout: Layout, leases: Leases, wait_s: float, machine: str) -> None:
    """Whatever ran elsewhere renews its leases no more. Raises MetadataStoreError, StoreUnavailable."""
    _, found = await read_all(gateway, layout.lives, wait_s)
    elsewhere = [
        number
        for each in found
        if each.key.startswith(layout.leases) and not (machine and each.value == machine)
        if (number := number_in(each.key.removeprefix(layout.leases))) is not None
    ]
    time = OwnTime(0.0)
    gone_at_s: dict[int, float] = {}
    while elsewhere:
        now_s = -time.left_s
        for lease in elsewhere:
            granted_s = await leases.lives(lease, gateway.patience(wait_s))
            if not granted_s:
                if now_s - gone_at_s.setdefault(lease, now_s) > GONE_S:
                    return
            elif gone_at_s.pop(lease, None) is not None:
                pass  # who lost it for a moment has it again
            elif now_s > LEASES_WAITED * granted_s:
                raise MetadataStoreError(
                    f"another process runs as this node, and renews its leases in {gateway.access}: this data "
                    "directory is a copy of its own, and this start has changed nothing of that node. Stop that one "
                    "first, or remove the copy: a new node starts with an empty data directory"
                )
        await trio.sleep(LOOK_S)


async def _end_earlier_incarnation(gateway: Gateway, layout: Layout, leases: Leases, wait_s: float) -> None:
    _, found = await read_all(gateway, layout.lives, wait_s)
    for each in found:
        lease = number_in(each.key.removeprefix(layout.leases)) if each.key.startswith(layout.leases) else None
        if lease is not None:
            await leases.end(lease, gateway.patience(wait_s))
    left = [messages.delete(each.key) for each in found]
    while left:
        head = messages.put(layout.head, secrets.token_hex(8))
        removal = messages.transaction([], [*left[:REMOVED_AT_ONCE], head])
        await gateway.patience(wait_s).keep_trying(partial(gateway.ask, TXN, removal))
        left = left[REMOVED_AT_ONCE:]


async def begin_generation(
    gateway: Gateway, layout: Layout, known: str, revision: int, patience: EtcdPatience
) -> str:
    """`known`: the identity that the store had, when it was of this revision. The new one. Raises StoreUnavailable;
    WentBack: what is there now is no older copy of that."""
    asked = messages.transaction([], [messages.read(layout.identity)])
    there = messages.read_in(await patience.keep_trying(lambda: gateway.ask(TXN, asked))).get(layout.identity)
    if there is None or not are_of_one_store(there.value, known):
        raise WentBack("another store, or none, is there now")
    compares = [messages.value_is(layout.identity, there.value)]
    if there.value == known:
        compares.append(messages.revision_below(layout.head, revision))
    elif not is_earlier(there.value, known):
        raise WentBack("another node has begun a generation")
    mine = next_generation(known, secrets.token_hex(4))
    puts = [messages.put(layout.identity, mine), messages.put(layout.head, mine)]
    request = messages.transaction(compares, puts, [messages.read(layout.identity)])
    answer = await patience.keep_trying(lambda: gateway.ask(TXN, request))
    now = messages.read_in(answer).get(layout.identity)
    if not answer.get("succeeded") and (now is None or now.value != mine):  # an earlier try, whose answer was lost
        raise WentBack("another node has begun a generation")
    return mine
