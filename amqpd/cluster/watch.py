"""Looks, now and then, at the replica sets whose leader this is, and says when they become worse or better.

What comes in: replica sets. What goes out: events, when a set's copies are not complete, when a peer is behind and
when it has caught up, when no majority answers, when publishers wait for peers.
Rules: 1. A change is said once. 2. What is over after `SETTLES_S` is not said: each connection begins with a peer of
which nothing is known. 3. Costs what the number of sets and members does, not what that of sources does, while all is
well.
Not here: the numbers (`statistics.py`), what follows from them for confirms and deliveries (`amqpd/replication`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amqpd.cluster.led_replica_set import LedReplicaSet
from amqpd.cluster.log_events import Counters
from amqpd.cluster.shell import Shell

SETTLES_S = 1.0


@dataclass(slots=True)
class LaggingPeer:
    """A peer that lacks entries over its present connection."""

    since_s: float
    told: bool = False


@dataclass(slots=True)
class ReplicaSetTrouble:
    """The state of a replica set at the last look, and what the log was told of it."""

    held_lease: bool = False
    leader_lease_told: bool = False
    """that it is lost"""
    lost_at_s: float = 0.0
    missing: tuple[str, ...] = ()
    """members without all copies, as it was said"""
    lagging: bool = False
    unsaid_s: float = 0.0
    """since when others are; 0: they are the same"""


class ReplicaSetWatch:
    """Watches the replica sets that one node leads, and logs when a set becomes worse or better."""

    def __init__(self, shell: Shell, name: str, counters: Counters) -> None:
        """`name`: of this forwarder."""
        self._shell = shell
        self._name = name
        self._counters = counters
        self._seen: dict[int, ReplicaSetTrouble] = {}
        self._behind: dict[tuple[int, str], LaggingPeer] = {}

    def look(self, replica_sets: Iterable[LedReplicaSet]) -> None:
        replica_sets = list(replica_sets)
        there = {replica_set.number for replica_set in replica_sets}
        for number in self._seen.keys() - there:
            del self._seen[number]  # each set that changes makes replica sets and leaves them
        for key in [each for each in self._behind if each[0] not in there]:
            del self._behind[key]
        for replica_set in replica_sets:
            seen = self._seen.setdefault(replica_set.number, ReplicaSetTrouble())
            self._leader_lease(replica_set, seen)
            self._copies(replica_set, seen)
            for member in (*replica_set.members, *replica_set.learners):
                if member != self._name:
                    self._peer(replica_set, member)
            self._lag(replica_set, seen)

    def lost_for_s(self, replica_set: LedReplicaSet) -> float:
        """For how many seconds the leader lease of the replica set has been lost; 0: it is held, or never was yet."""
        seen = self._seen.get(replica_set.number)
        return 0.0 if seen is None or not seen.leader_lease_told else self._shell.now_s - seen.lost_at_s

    def _leader_lease(self, replica_set: LedReplicaSet, seen: ReplicaSetTrouble) -> None:
        sources = len(replica_set.leader.sources)
        holds_lease = replica_set.leader_lease.holds(self._shell.now_s)
        if seen.held_lease and not holds_lease and sources:
            seen.leader_lease_told, seen.lost_at_s = True, self._shell.now_s
            self._counters.leader_leases_lost += 1
            self._shell.log(
                "leader_lease_lost",
                members=replica_set.members,
                answering=sorted(replica_set.leader.peers),
                sources=sources,
            )
        elif holds_lease and seen.leader_lease_told:
            seen.leader_lease_told = False
            self._shell.log("leader_lease_back", members=replica_set.members, sources=sources)
        seen.held_lease = holds_lease

    def _lag(self, replica_set: LedReplicaSet, seen: ReplicaSetTrouble) -> None:
        leader, lagging = replica_set.leader, bool(replica_set.lagging)
        if lagging and not seen.lagging:
            lags = {member: leader.lag_of(member)[1] for member in replica_set.members if member != self._name}
            open_bytes = max(leader.open_bytes, *map(leader.open_bytes_of, replica_set.lagging))
            told = {"sources": len(replica_set.lagging), "open_bytes": open_bytes, "lags": lags}
            self._shell.log("publishers_wait", members=replica_set.members, **told)
        elif seen.lagging and not lagging:
            self._shell.log("publishers_go_on", members=replica_set.members)
        seen.lagging = lagging

    def _copies(self, replica_set: LedReplicaSet, seen: ReplicaSetTrouble) -> None:
        sources, names = _missing(replica_set, self._name)
        missing, now_s = tuple(names), self._shell.now_s
        if missing == seen.missing:
            seen.unsaid_s = 0.0
        elif not missing:
            seen.missing, seen.unsaid_s = missing, 0.0
            self._shell.log("copies_complete", members=replica_set.members, sources=len(replica_set.leader.sources))
        elif not seen.unsaid_s:
            seen.unsaid_s = now_s
        elif now_s - seen.unsaid_s >= SETTLES_S:
            seen.missing, seen.unsaid_s = missing, 0.0
            self._shell.log("copies_missing", members=replica_set.members, missing=missing, sources=sources)

    def _peer(self, replica_set: LedReplicaSet, member: str) -> None:
        key, now_s = (replica_set.number, member), self._shell.now_s
        peer, behind = replica_set.leader.peers.get(member), self._behind.get(key)
        lacks = 0 if peer is None else len(peer.apart.intersection(replica_set.leader.sources))
        if lacks:
            behind = behind or self._behind.setdefault(key, LaggingPeer(now_s))
            if not behind.told and now_s - behind.since_s >= SETTLES_S:
                behind.told = True
                self._shell.log("peer_behind", peer=member, members=replica_set.members, sources=lacks)
        elif behind is not None:
            del self._behind[key]
            if peer is not None:
                self._shell.log(
                    "peer_caught_up",
                    peer=member,
                    members=replica_set.members,
                    entries=peer.sent.entries,
                    bytes=peer.sent.nbytes,
                    states=peer.transfers_begun,
                    duration_ms=round((now_s - behind.since_s) * 1000),
                )


def _missing(replica_set: LedReplicaSet, name: str) -> tuple[int, list[str]]:
    """Of how many sources of the set some member is not up to date, and which members; `name`: this one."""
    leader, sources = replica_set.leader, set(replica_set.leader.sources)
    away = {member for member in replica_set.members if member != name and member not in leader.peers}
    if away or not sources:
        return len(sources), sorted(away) if sources else []
    members = {peer: at for peer, at in leader.peers.items() if peer in leader.members}
    behind = {peer: sources & (at.apart | at.uncounted) for peer, at in members.items()}
    return len(set().union(*behind.values())), sorted(peer for peer, lacks in behind.items() if lacks)
