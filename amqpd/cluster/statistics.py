"""What a forwarder has done for its cluster, and how its sources are now, in numbers.

What comes in: the parts of a forwarder, which count as they go. What goes out: `ClusterStatistics`, a snapshot.
Rules: 1. Counting is an addition; nothing is counted for each message or frame. 2. Counters only go up, and begin at 0
with the process; gauges are worked out when somebody asks. 3. Names are those that metrics have: `_total` for
counters, units last.
Not here: lines of the log (`log_events.py`), what all nodes together have (`overview.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from amqpd.replication.commit import majority

if TYPE_CHECKING:
    from amqpd.cluster.homes import Homes
    from amqpd.cluster.own_lane import OwnLane
    from amqpd.replication.take_over import SourceRecord


@dataclass(slots=True)
class Counters:
    """Of one process."""

    take_overs_begun: int = 0
    take_overs: int = 0
    """that were won"""
    take_overs_lost: int = 0
    hand_overs: int = 0
    sources_lost: int = 0
    """whose home this was until another one was found"""
    seals_granted: int = 0
    seals_refused: int = 0
    seals_put_off: int = 0
    """for the end of another home's reign"""
    reigns_lost: int = 0
    """of a replica set, while it had sources: no majority answered for a lease time"""
    state_bytes_sent: int = 0
    disks_admitted: int = 0
    replicas_contradicted: int = 0
    links_lost: int = 0
    links_closed: int = 0
    """because of what came over them"""
    swaps_unanswered: int = 0
    """of records in the store, whose outcome was not known in time"""


@dataclass(frozen=True, slots=True)
class PeerLag:
    """How far a peer is behind, in one replica set whose home this is."""

    peer: str
    members: tuple[str, ...]
    connected: bool
    transactions: int
    """cut since the one that it answered last; of a peer that is away, since the oldest one that is kept"""
    lag_bytes: int
    """of those that are kept"""
    sources_behind: int
    """that it has not matched, or whose record does not name its disk"""


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """At one moment."""

    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    lags: tuple[PeerLag, ...]

    def summary(self) -> dict[str, int]:
        """What an operator looks at first."""
        names = ("sources_homed", "sources_copied", "sources_under_replicated", "sources_without_majority")
        totals = ("take_overs_total", "hand_overs_total", "reigns_lost_total")
        return {name: self.gauges[name] for name in names} | {name: self.counters[name] for name in totals}

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        lags = [{field.name: getattr(lag, field.name) for field in fields(PeerLag)} for lag in self.lags]
        return {**self.counters, **self.gauges, "peers": lags}


def statistics(
    counters: Counters, homes: Homes, records: Iterable[SourceRecord], name: str, generation: int
) -> ClusterStatistics:
    """`name`, `generation`: of this forwarder and its disk."""
    lanes = list(homes.lanes.values())
    totals = {f"{field.name}_total": getattr(counters, field.name) for field in fields(Counters)}
    begun = sum(lane.home.transfers_begun for lane in lanes)
    done = sum(lane.home.transfers_done for lane in lanes)
    under_way = sum(len(peer.transfers) for lane in lanes for peer in lane.home.peers.values())
    totals |= {
        "transfers_begun_total": begun,
        "transfers_done_total": done,
        "transfers_given_up_total": begun - done - under_way,
        "resent_entries_total": sum(lane.home.resent_entries for lane in lanes),
        "resent_bytes_total": sum(lane.home.resent_bytes for lane in lanes),
    }
    under = without = 0
    for source, own in homes.sources.items():
        up_to_date = 1 + sum(peer.counts(source) for peer in own.lane.home.peers.values())
        under += up_to_date < len(own.lane.members)
        without += up_to_date < majority(len(own.lane.members))
    gauges = {
        "sources_homed": len(homes.sources),
        "sources_served": sum(own.serving for own in homes.sources.values()),
        "sources_copied": sum(
            record.counts(name, generation) for record in records if record.source not in homes.sources
        ),
        "sources_under_replicated": under,
        "sources_without_majority": without,
        "transfers_under_way": under_way,
        "open_bytes": sum(lane.home.open_bytes for lane in lanes),
    }
    return ClusterStatistics(totals, gauges, tuple(lag for lane in lanes for lag in _lags(lane, name)))


def missing_copies(lane: OwnLane, name: str) -> tuple[int, list[str]]:
    """Of how many sources of the set some member is not up to date, and which members; `name`: this one."""
    home, sources = lane.home, set(lane.home.sources)
    away = {member for member in lane.members if member != name and member not in home.peers}
    if away or not sources:
        return len(sources), sorted(away) if sources else []
    behind = {peer: sources & (at.apart | at.uncounted) for peer, at in home.peers.items()}
    return len(set().union(*behind.values())), sorted(peer for peer, lacks in behind.items() if lacks)


def _lags(lane: OwnLane, name: str) -> Iterable[PeerLag]:
    home = lane.home
    for member in lane.members:
        if member != name:
            peer = home.peers.get(member)
            transactions, lag_bytes = home.lag_of(member)
            behind = 0 if peer is None else len((peer.apart | peer.uncounted).intersection(home.sources))
            yield PeerLag(member, lane.members, peer is not None, transactions, lag_bytes, behind)
