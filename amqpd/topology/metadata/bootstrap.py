"""The first records of a new store: virtual host `/` and user `guest`.

What comes in: a store. What goes out: nothing; the store has its first records, once in its lifetime.
Rules: 1. All in one transaction, together with the mark that says so: a node that dies in between starts
again, and of two that start at once one does it. 2. Never again: a `guest` that was deleted stays deleted.
Not here: why `guest` may come from loopback only (`security/authentication/logins.py`).
"""

from __future__ import annotations

import trio

from amqpd.security.authentication.passwords import hash_password
from amqpd.topology.metadata.event_exchange import make_event_exchange
from amqpd.topology.metadata.store import Committed, Compare, MetadataStore, PutKey
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.plans import create_vhost
from amqpd.vocabulary.records import PermissionRecord, Put, UserRecord

INITIALISED = "system/initialised"


async def bootstrap(store: MetadataStore, events_in: str | None = None) -> bool:
    """Whether it was the first time. `events_in`: the virtual host that is to have the event exchange, at this start
    and each later one."""
    first_time = await store.get(INITIALISED) is None and await _initialise(store)
    if events_in is not None:
        await make_event_exchange(store, events_in)
    return first_time


async def _initialise(store: MetadataStore) -> bool:
    password_hash = await trio.to_thread.run_sync(hash_password, b"guest")
    first = transaction_of(
        [
            *create_vhost("/", "default virtual host"),
            Put(UserRecord("guest", password_hash, tags=("administrator",))),
            Put(PermissionRecord("guest", "/", configure=".*", write=".*", read=".*")),
        ]
    )
    outcome = await store.transact(
        [Compare(INITIALISED), *first.compares], [PutKey(INITIALISED, "true"), *first.operations]
    )
    return isinstance(outcome, Committed)
