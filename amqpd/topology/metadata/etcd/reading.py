"""Reads everything below a prefix of etcd, as it was at one moment.

What comes in: a prefix. What goes out: the revision and what there was, ascending by key.
Rules: 1. Pages after the first are read at the first one's revision; what etcd compacts meanwhile is read again from
the beginning. 2. The bound on waiting is each page's: there may be a thousand of them. 3. For each page etcd goes
through the index of all that is left, so pages are as large as small values allow.
Not here: single keys (`turn.py`), whether it is still the same store (`turn.py`).
"""

from __future__ import annotations

from functools import partial

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import OUT_OF_RANGE, RANGE, EtcdRefused, Gateway
from amqpd.topology.metadata.etcd.messages import EtcdEntry
from amqpd.topology.metadata.store import StoreUnavailable, prefix_end

# The first page has this number of entries, and a later one no fewer: some hundred kilobytes, as a rule.
PAGE_ENTRIES = 1_000
# A later one has as many as make up this many characters, if they are like those of the page before. Its JSON is
# twice as long, and takes some ten milliseconds to be read.
PAGE_CHARACTERS, PAGE_ENTRIES_MAX = 1 << 20, 8_000
# A read of many pages that etcd compacts under it begins again, at most this often.
READS_MAX = 5


async def read_all(gateway: Gateway, prefix: str, wait_s: float) -> tuple[int, list[EtcdEntry]]:
    """All keys of a prefix at one revision, read in pages. Raises StoreUnavailable, EtcdRefused."""
    for _ in range(READS_MAX):
        try:
            return await _read_pages(gateway, prefix, wait_s)
        except EtcdRefused as refused:
            if refused.code != OUT_OF_RANGE:
                raise
    raise StoreUnavailable(f"{gateway.access} compacts faster than everything can be read")


async def read_numbers(gateway: Gateway, prefix: str, wait_s: float) -> dict[int, int]:
    """What the keys below the prefix are, each a number, with the revision that put it last; another key is nobody's
    and is left out. Raises StoreUnavailable, and what `Gateway.explained` makes of a refusal."""
    try:
        _, found = await read_all(gateway, prefix, wait_s)
    except EtcdRefused as refused:
        raise gateway.explained(refused) from refused
    numbers = [(number_in(each.key.removeprefix(prefix)), each.mod_revision) for each in found]
    return {number: revision for number, revision in numbers if number is not None}


def number_in(text: str) -> int | None:
    """As it is written in a key or a value: at most 63 bits; None: it is no such number."""
    found = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
    return found if found is not None and found < 1 << 63 else None


async def _read_pages(gateway: Gateway, prefix: str, wait_s: float) -> tuple[int, list[EtcdEntry]]:
    first, end = prefix, prefix_end(prefix)
    assert end is not None
    found: list[EtcdEntry] = []
    revision, limit = 0, PAGE_ENTRIES
    while True:
        message = {
            "key": messages.encoded(first),
            "range_end": messages.encoded(end),
            "limit": str(limit),
            "revision": str(revision),
        }
        answer = await gateway.patience(wait_s).keep_trying(partial(gateway.ask, RANGE, message))
        revision = revision or messages.revision_of(answer)
        page = messages.found_in(answer)
        found += page
        if not answer.get("more"):
            return revision, found
        first = page[-1].key + "\0"
        characters = sum(len(each.key) + len(each.value) for each in page)
        limit = min(max(PAGE_ENTRIES, PAGE_CHARACTERS * len(page) // characters), PAGE_ENTRIES_MAX)
