"""The records that a start puts into a store: virtual host `/` and user `guest` of a new one, the event exchange.

What comes in: a store. What goes out: nothing; the store has its first records, once in its lifetime.
Rules: 1. All in one transaction, together with the mark that says so: a node that dies in between starts again, and
of two that start at once one does it. 2. Never again: a `guest` that was deleted stays deleted. 3. The event exchange
is made at each start with `events.exchange`; what is there stays as it is, also when that is off again: its bindings
wait.
Not here: what is published to it (`amqpd/events/`), why `guest` may come from loopback only
(`security/authentication/logins.py`).

Source for the exchange: rabbit_exchange_type_event.erl, `register`: a durable internal topic exchange.
"""

from __future__ import annotations

import trio

from amqpd.security.authentication.passwords import hash_password
from amqpd.topology.metadata.codec import encode_key
from amqpd.topology.metadata.store import Committed, Compare, MetadataStore, PutKey
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.plans import EVENT_EXCHANGE, create_vhost
from amqpd.vocabulary.records import Change, ExchangeRecord, PermissionRecord, Put, UserRecord

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


async def make_event_exchange(store: MetadataStore, vhost: str) -> None:
    """Several nodes of a cluster may do so at once: what another one was first with is refused, and that is right."""
    exchange = ExchangeRecord(vhost, EVENT_EXCHANGE, "topic", internal=True)
    missing: list[Change] = []
    if await store.get(encode_key(("vhost", vhost))) is None:
        missing += create_vhost(vhost)
    if missing or await store.get(encode_key(exchange.key)) is None:
        transaction = transaction_of([*missing, Put(exchange, create=True)])
        await store.transact(transaction.compares, transaction.operations)
