"""A member that will not come back is forgotten: its name may be given again, to any disk.

What comes in: a metadata store, a name. What goes out: the name is not known any more, or why not.
Rules: 1. Who lives, or is in the set of a source or wished to be, is not forgotten: what is known of a name says
which disk counts. 2. That it lives no more is compared in the transaction that deletes; the sets are read before it:
a member that does not live is caught up by nobody, so it gets into no set meanwhile.
Not here: taking it out of the sets (`amqpd/replication/set_change.py`).
"""

from __future__ import annotations

from amqpd.cluster.records import PREFIX, known_key, member_key
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import Committed, Compare, DeleteKey, MetadataStore


class MemberKept(Exception):
    """It cannot be forgotten. The text is one sentence for the operator."""


async def forget(store: MetadataStore, name: str) -> None:
    """Raises MemberKept, MetadataStoreError; after OutcomeUnknown it may be called again."""
    roster = Roster()
    snapshot = await store.range(PREFIX)
    roster.load(snapshot)
    if name not in roster.known:
        raise MemberKept(f"the cluster knows no member {name}")
    if name in roster.members:
        raise MemberKept(f"{name} lives: end that node first")
    kept = sorted(source for source, record in roster.records.items() if name in record.members)
    if kept:
        raise MemberKept(
            f"{name} is in the set of {len(kept)} sources, {kept[0]} among them: take it out of them first"
        )
    wished = sorted(source for source, wish in roster.wishes.items() if name in wish.members or name == wish.home)
    if wished:
        raise MemberKept(f"{name} is wished for source {wished[0]}: take that wish back first")
    known = next(each for each in snapshot.entries if each.key == known_key(name))
    compares = [Compare(known_key(name), known.mod_revision), Compare(member_key(name), 0)]
    if not isinstance(await store.transact(compares, [DeleteKey(known_key(name))]), Committed):
        raise MemberKept(f"{name} has come back meanwhile")
