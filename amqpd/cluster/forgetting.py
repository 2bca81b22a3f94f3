"""A member that will not come back is forgotten: its name may be given again, to another disk.

What comes in: a metadata store, a name. What goes out: the name is not known any more, or why not; a disk that may
come back after all.
Rules: 1. Who lives, or is in the set of a source or desired to be, is not forgotten: what is known of a name says
which disk counts. 2. That it lives no more is compared in the transaction that deletes; the sets are read before it:
a member that does not live is caught up by nobody, so it gets into no set meanwhile. 3. The disk that was forgotten
is noted in the same transaction: it does not come back by itself (`directory.py`), as somebody may have switched its
machine on again by mistake.
Not here: taking it out of the sets (`amqpd/replication/set_change.py`).
"""

from __future__ import annotations

from amqpd.cluster.records import (
    PREFIX,
    ForgottenRecord,
    encode,
    forgotten_key,
    forgotten_start_key,
    key_of,
    known_key,
    member_key,
    source_of_key,
)
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import Committed, Compare, DeleteKey, MetadataStore, Operation, PutKey


class MemberKept(Exception):
    """A member cannot be forgotten; the text is one sentence for the operator."""


async def forget(store: MetadataStore, name: str) -> None:
    """Raises MemberKept, MetadataStoreError; after OutcomeUnknown it may be called again."""
    roster = Roster()
    snapshot = await store.range(PREFIX)
    roster.load(snapshot)
    if name not in roster.known:
        raise MemberKept(f"the cluster knows no member {name}")
    if name in roster.members:
        raise MemberKept(f"{name} lives: end that node first")
    if unreadable := [key for key in sorted(roster.unreadable) if source_of_key(key)]:
        raise MemberKept(
            f"{roster.unreadable[unreadable[0]]}: whether {name} is in the set of that source is not known"
        )
    kept = sorted(source for source, record in roster.records.items() if name in record.members)
    if kept:
        if len(kept) == 1:
            raise MemberKept(f"{name} is in the set of source {kept[0]}: take it out of that first")
        raise MemberKept(
            f"{name} is in the set of {len(kept)} sources, {kept[0]} among them: take it out of them first"
        )
    desired = sorted(
        source
        for source, desired_set in roster.desired_sets.items()
        if name in desired_set.members or name == desired_set.leader
    )
    if desired:
        raise MemberKept(f"{name} is desired for source {desired[0]}: take that desired set back first")
    revisions = {each.key: each.mod_revision for each in snapshot.entries}
    forgotten = roster.forgotten.get(name, ForgottenRecord(name, ())).with_one(roster.known[name].generation)
    keys = known_key(name), member_key(name), key_of(forgotten)
    compares = [Compare(key, revisions.get(key, 0)) for key in keys]
    operations: list[Operation] = [DeleteKey(known_key(name)), PutKey(key_of(forgotten), encode(forgotten))]
    operations.append(DeleteKey(forgotten_start_key(name)))  # what an earlier disk of this name asked is over
    if not isinstance(await store.transact(compares, operations), Committed):
        raise MemberKept(f"{name} has come back meanwhile")


async def readmit(store: MetadataStore, name: str) -> None:
    """Its disks may come back, as they are. Raises MemberKept, MetadataStoreError."""
    if await store.get(forgotten_key(name)) is None:
        raise MemberKept(f"no node {name} was forgotten: it may join as it is")
    await store.transact([], [DeleteKey(forgotten_key(name)), DeleteKey(forgotten_start_key(name))])
