"""An older copy of the metadata store is told to all who use it: it gets the identity of another generation.

What comes in: what was known of the store before it went back. What goes out: its new identity, written in it.
Rules: 1. Only the first who sees it writes; for all others it is another store from then on. 2. Nothing is written
into a store that has everything, nor into another one.
Not here: who sees it (`turn.py`, `datadir/cluster.py`), names of generations (`../generations.py`).
"""

from __future__ import annotations

import secrets

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import TXN, Gateway
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.etcd.turn import WentBack
from amqpd.topology.metadata.generations import are_of_one_store, is_earlier, next_generation


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
