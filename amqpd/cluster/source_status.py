"""How a source stands: who lives, what is up to date, what is desired; as facts and as a sentence.

What comes in: a roster, what leaders say of their copies; at a leader, its replica sets and its own replicas. What
goes out: rows with a sentence each; at a leader, how far its copies are, as plain values.
Rules: 1. A copy that is up to date counts for confirms and lacks no more than is on its way anyhow. 2. What only the
leader knows and has not said is not guessed. 3. The sentence begins with who serves the source, or why nobody does.
4. A copy on a node that lives and has no link to the leader, or to a majority of the nodes, counts for nothing. 5.
Nor does one on a node whose lease is gone, whatever the leader knows of it. 6. At the leader: a copy counts when it
may be part of a majority; how many bytes it lacks is another question, since under load each one lacks what is just
on its way. A connection is no sign of life: it stays open when a process is stopped.
Not here: columns and JSON (`amqpd/commands/`), what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpd.cluster.led_replica_set import LedReplicaSet
from amqpd.cluster.led_sources import LedSources
from amqpd.cluster.linkage import Linkage, named_together
from amqpd.cluster.roster import Roster
from amqpd.peers.entry import START
from amqpd.replication.commit import majority
from amqpd.replication.replica import Replicas
from amqpd.replication.take_over import SourceRecord

UNDER_WAY_BYTES = 1 << 20
"""A copy that lacks less than this is not called behind: so much may be on its way under load."""
_BYTES = (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))

Facts = Mapping[int, Mapping[str, Any]]
"""By source, rows of `source_facts` from the leaders that were asked."""
COUNTS, BEHIND, STATE, OTHER_DISK, AWAY, SILENT = "counts", "behind", "state", "other disk", "away", "silent"
"""of a copy: it is in line; it lacks entries, which are sent; it lacks more than that, and is sent the state; it has
everything or not, on a disk that the record does not name yet; there is no connection to it; there is one, and
nothing that was sent over it within the lease time is answered"""


def source_facts(led_sources: LedSources) -> list[dict[str, Any]]:
    """A row for each source: whether it is `serving`, and of each other member what its copy `is`, and `lacks_bytes`
    where that is known."""
    return [
        {
            "source": source,
            "epoch": own.vote.epoch,
            "serving": own.serving,
            "copies": {
                peer: {
                    "is": _state_of(own.replica_set, peer, source, led_sources.now_s),
                    "lacks_bytes": own.replica_set.leader.lacks_bytes(peer, source),
                }
                for peer in own.record.members
                if peer != own.vote.forwarder
            },
        }
        for source, own in sorted(led_sources.sources.items())
    ]


def replica_facts(replicas: Replicas) -> list[dict[str, Any]]:
    """A row for each source that there is something of on the own disk: the last entry, and the last one that is
    known to be committed, as (epoch, index)."""
    return [
        {"source": each.source, "last": list(each.log.last), "committed": list(each.log.base)}
        for each in replicas
        if each.log.last != START
    ]


def _state_of(replica_set: LedReplicaSet, name: str, source: int, now_s: float) -> str:
    peer = replica_set.leader.peers.get(name)
    if peer is None:
        return AWAY
    if source in peer.transfers:
        return STATE
    if source in peer.apart:
        return BEHIND
    if source in peer.uncounted:
        return OTHER_DISK
    # Of a learner no lease is known; it counts for nothing until it is a member.
    return SILENT if name in replica_set.members and not replica_set.leader_lease.hears(name, now_s) else COUNTS


@dataclass(slots=True)
class SourceStatus:
    """The state of one source: its leader, its members, how many copies are up to date, and what operators ask
    for."""

    source: int
    leader: str
    members: tuple[str, ...]
    living: tuple[str, ...]
    """members that live and have links, on the disk that the record names"""
    has_majority: bool
    """of those"""
    under_replicated: bool
    up_to_date: int | None
    """copies, the leader's among them; None: nobody who knows was asked"""
    desired_set: str
    desired_set_waits: str
    says: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        return "; ".join(self.says)

    @property
    def is_well(self) -> bool:
        return (
            self.leader in self.living
            and len(self.living) == len(self.members)
            and not self.under_replicated
            and self.up_to_date in (None, len(self.members))
        )


def source_status(
    source: int, roster: Roster, facts: Facts, copies: int, linkage: Linkage | None = None
) -> SourceStatus:
    """`copies`: how many the source should have, as far as there are the nodes. `linkage`: as who asks sees it; None:
    as the store has it."""
    record, desired_set = roster.records[source], roster.desired_sets.get(source)
    linkage = roster.linkage if linkage is None else linkage
    unlinked = {
        name: linkage.why(name) if name in linkage.isolated else f"{name} has no link to {record.leader.forwarder}"
        for name in record.members
        if name in roster.members and not linkage.is_of_use(name, _led_at(record, roster))
    }
    living = tuple(name for name in record.members if _counts(record, name, roster) and name not in unlinked)
    desired = min(copies, len(roster.known))
    # Of another epoch it is about another leader.
    said = facts.get(source, {})
    mine = said.get("copies") if said.get("epoch") == record.leader.epoch else None
    found = SourceStatus(
        source,
        record.leader.forwarder,
        record.members,
        living,
        len(living) >= majority(len(record.members)),
        len(record.members) < desired,
        None if mine is None else 1 + sum(_is_up_to_date(name, copy, roster) for name, copy in mine.items()),
        "",
        "",
    )
    found.says = [*_leader(found, roster, unlinked), *_copies(found, roster, mine, unlinked)]
    if found.under_replicated:
        found.says.append(f"under-replicated: {len(record.members)} of {desired} copies")
    if desired_set is not None:
        found.desired_set = _desired(record, desired_set.members, desired_set.leader)
        found.desired_set_waits = desired_set.reason
        found.says.append(
            f"is to be {found.desired_set}" + (f", and waits: {desired_set.reason}" if desired_set.reason else "")
        )
    return found


def _led_at(record: SourceRecord, roster: Roster) -> str:
    """Empty: nobody who lives leads it."""
    leader = record.leader.forwarder
    return leader if leader in roster.members else ""


def _counts(record: SourceRecord, name: str, roster: Roster) -> bool:
    member = roster.members.get(name)
    return member is not None and record.counts(name, member.generation)


def _leader(found: SourceStatus, roster: Roster, unlinked: Mapping[str, str]) -> list[str]:
    if not found.has_majority:
        gone = [name for name in found.members if name not in roster.members]
        there = [name for name in found.members if name in roster.members and name not in found.living]
        reasons = [
            *([f"{named_together(gone)} {'are' if gone[1:] else 'is'} gone"] * bool(gone)),
            *(f"{name} has another disk" for name in there if name not in unlinked),
            *dict.fromkeys(unlinked.values()),
        ]
        return [
            f"stopped: {', '.join(reasons)}, so {len(found.living)} of {len(found.members)} copies are no majority"
        ]
    if not found.leader:
        return ["no leader now: one of the nodes is about to take it over"]
    if found.leader not in roster.members:
        return [f"leader {found.leader} is gone: another node is about to take it over"]
    if found.leader in unlinked:
        return [f"leader {found.leader} is cut off ({unlinked[found.leader]}): another node is about to take it over"]
    return [f"leader {found.leader}"]


def _copies(
    found: SourceStatus,
    roster: Roster,
    mine: Mapping[str, Mapping[str, Any]] | None,
    unlinked: Mapping[str, str],
) -> list[str]:
    count = len(found.members)
    if not found.has_majority:
        return []
    if found.up_to_date is None or mine is None:
        away = [name for name in found.members if name not in found.living and name not in unlinked]
        has = (
            f"{len(found.living)} of {count} copies have links"
            if unlinked
            else f"{count} {'copy' if count == 1 else 'copies'}"
        )
        return [
            has,
            *(f"{name} is gone" if name not in roster.members else f"{name} has another disk" for name in away),
            *([] if found.leader in unlinked else dict.fromkeys(unlinked.values())),
        ]
    late = [
        f"{name} is gone" if name not in roster.members else unlinked.get(name) or _late(name, copy)
        for name, copy in mine.items()
        if not _is_up_to_date(name, copy, roster)
    ]
    return [", ".join([f"{found.up_to_date} of {count} copies up to date", *late])]


def _is_up_to_date(name: str, copy: Mapping[str, Any], roster: Roster) -> bool:
    return name in roster.members and copy["is"] == COUNTS and (copy["lacks_bytes"] or 0) < UNDER_WAY_BYTES


def _late(name: str, copy: Mapping[str, Any]) -> str:
    lacks = f", {bytes_text(copy['lacks_bytes'])} behind" if copy["lacks_bytes"] else ""
    match copy["is"]:
        case str(what) if what == AWAY:
            return f"node {name} is away"
        case str(what) if what == SILENT:
            return f"node {name} does not answer{lacks}"
        case str(what) if what == STATE:
            return f"node {name} was away for long and is sent all that it lacks"
        case str(what) if what == OTHER_DISK:
            return f"node {name} has another disk, which does not count until it has everything{lacks}"
        case str(what) if what in (BEHIND, COUNTS) and copy["lacks_bytes"]:
            return f"node {name} is {bytes_text(copy['lacks_bytes'])} behind"
    return f"node {name} is behind"


def _desired(record: SourceRecord, members: tuple[str, ...], leader: str) -> str:
    on = f"on {', '.join(sorted(members))}" if members and set(members) != set(record.members) else ""
    return " ".join([*([on] * bool(on)), *([f"led by {leader}"] * bool(leader))]) or "as it is"


def bytes_text(nbytes: int) -> str:
    """As in "4.1 MB"."""
    for unit, size in _BYTES:
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
