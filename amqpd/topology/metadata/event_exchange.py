"""The event exchange in the store, at each start with `events.exchange`.

What comes in: a store, a virtual host. What goes out: nothing; the exchange exists, and the virtual host.
Rules: 1. What is there stays as it is. 2. Nothing takes the exchange away when it is off again: its bindings wait.
Not here: what is published to it (`amqpd/events/`).

Source: rabbit_exchange_type_event.erl, `register`: a durable internal topic exchange.
"""

from __future__ import annotations

from amqpd.topology.metadata.codec import encode_key
from amqpd.topology.metadata.store import MetadataStore
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.plans import EVENT_EXCHANGE, create_vhost
from amqpd.vocabulary.records import Change, ExchangeRecord, Put


async def make_event_exchange(store: MetadataStore, vhost: str) -> None:
    """Several nodes of a cluster may do so at once: what another one was first with is refused, and that is right."""
    exchange = ExchangeRecord(vhost, EVENT_EXCHANGE, "topic", internal=True)
    missing: list[Change] = []
    if await store.get(encode_key(("vhost", vhost))) is None:
        missing += create_vhost(vhost)
    if missing or await store.get(encode_key(exchange.key)) is None:
        transaction = transaction_of([*missing, Put(exchange, create=True)])
        await store.transact(transaction.compares, transaction.operations)
