"""A forgotten node that is started again and again: its note in the store, from which the others say so.

What comes in: a metadata store, what the node says of itself; a roster; what time it is, in ms since the epoch. What
goes out: a note under the node's name; sentences.
Rules: 1. One note a name. It counts for `RECENT_S` after the last start, which is longer than supervisors wait
between two; it has no lease, as those of a process end with it. Clocks of nodes that differ by more than that hide
it, or show it for longer. 2. A name that is known again, as a new disk has it, is not spoken of any more.
Not here: who is refused (`directory.py`), forgetting and letting in again (`forgetting.py`).
"""

from __future__ import annotations

from amqpd.cluster.records import ForgottenStartRecord, MemberRecord, decode, encode, forgotten_start_key
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import Compare, MetadataEntry, MetadataStore, PutKey, StoreDamaged

RECENT_S = 900
"""Kubernetes waits up to 300 s between two starts of a process that fails."""


async def note_start(store: MetadataStore, me: MemberRecord, now_ms: int) -> None:
    """Note that this node, which was forgotten, was started. Raises MetadataStoreError."""
    entry = await store.get(forgotten_start_key(me.name))
    before = None if entry is None else _read(entry)
    if before is not None and before.last_ms < now_ms - RECENT_S * 1000:
        before = None
    since_ms, starts = (now_ms, 1) if before is None else (before.since_ms, before.starts + 1)
    note = ForgottenStartRecord(me.name, me.host, me.port, since_ms, now_ms, starts)
    # Somebody who has put or deleted it meanwhile is newer: a start that follows says it again.
    compares = [Compare(forgotten_start_key(me.name), 0 if entry is None else entry.mod_revision)]
    await store.transact(compares, [PutKey(forgotten_start_key(me.name), encode(note))])


def recent_starts(roster: Roster, now_ms: int) -> list[ForgottenStartRecord]:
    """Those that are forgotten still, and were started lately, by name."""
    latest_ms = now_ms - RECENT_S * 1000
    there = [each for name, each in sorted(roster.forgotten_starts.items()) if each.last_ms > latest_ms]
    return [each for each in there if each.name in roster.forgotten and each.name not in roster.known]


def forgotten_start_sentence(start: ForgottenStartRecord) -> str:
    """Without its full stop."""
    name, host = start.name, f"[{start.host}]" if ":" in start.host else start.host
    how_often = "was started" if start.starts == 1 else f"was started {start.starts:,} times"
    return (
        f"node {name} at {host}:{start.port} was taken out of the cluster (amqpd cluster forget), {how_often} since, "
        f"and is refused: end it there, or let it in as it is (amqpd cluster readmit {name}), or empty its data "
        "directory, which makes a new node of it"
    )


def _read(entry: MetadataEntry) -> ForgottenStartRecord | None:
    """None: it cannot be read, and is put again."""
    try:
        record = decode(entry.key, entry.value, entry.mod_revision)
    except StoreDamaged:
        return None
    return record if isinstance(record, ForgottenStartRecord) else None
