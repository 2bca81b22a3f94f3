"""Which numbers of the journal end with a record: what a deletion leaves behind, so that it is known as one.

What comes in: keys and values of the metadata store. What goes out: the journal's numbers that they stand for.
Rules: 1. A queue's record has its number; a virtual host has one that its name gives, from which each node finds that
of its own delayed messages (`vocabulary/journal_numbers.py`). 2. One number is recorded for a queue, though a
priority queue's levels have the numbers behind it. 3. A number that is in use again is not dropped: a virtual host
may be made again, and its name is its number. 4. What need not be remembered any more is forgotten when the store
takes it (`forget_old`); nothing waits for that, and nothing fails with it.
Not here: the table (`sqlite/tables.py`), what is done with the journal's rows (`node/queue_registry.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote

import structlog

from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreFull, StoreUnreached
from amqpd.vocabulary.journal_numbers import vhost_number

_QUEUE = "topology/queue/"
_VHOST = "topology/vhost/"
# Some 20 MB of rows. A number that is forgotten too early makes its messages, should the journal still have them,
# orphans that an operator has to look at; nothing is lost by it.
DROPPED_MAX = 1_000_000
# In a cluster nobody knows when the last disk has nothing of it. All are read at each node's start, and by a leader
# that has messages of queues that it does not know.
DROPPED_IN_CLUSTER_MAX = 100_000


def numbers(records: Iterable[tuple[str, str]]) -> set[int]:
    """What the records (key, value) have in the journal."""
    return {number for key, value in records if (number := _number(key, value)) is not None}


def is_numbered(key: str) -> bool:
    """Whether a record of this key has a number in the journal."""
    return key.startswith((_QUEUE, _VHOST))


def oldest(dropped: Mapping[int, int], ids: Iterable[int], keep: int) -> list[int]:
    """Of these numbers the oldest, so that `keep` are left of all. `dropped`: each number's revision."""
    found = sorted(dropped.keys() & set(ids), key=dropped.__getitem__)
    return found[: max(0, len(dropped) - keep)]


def _number(key: str, value: str) -> int | None:
    if key.startswith(_QUEUE):
        try:
            found = json.loads(value)["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None  # `topology/metadata/codec.py` will call it damaged
        return found if type(found) is int and 0 <= found < 1 << 63 else None
    if key.startswith(_VHOST):
        return vhost_number(unquote(key[len(_VHOST) :].removesuffix("/"), errors="surrogatepass"))
    return None


log = structlog.get_logger(component="metadata store")


async def forget_old(store: MetadataStore, ids: Collection[int], keep: int) -> None:
    """The journal has nothing of these any more; what the store cannot do now is left to later."""
    if not ids:
        return
    try:
        await store.forget_dropped(ids, keep)
    except (StoreBusy, StoreFull, StoreUnreached) as error:
        log.warning("old deletions are forgotten at a later start", reason=str(error))
