"""How a forwarder's sources are, and what it has done for its cluster, in numbers.

What comes in: counters, replica sets, records. What goes out: `ClusterStatistics`, a snapshot.
Rules: 1. Gauges are worked out when somebody asks. 2. Names are those that metrics have: `_total` for counters, units
last.
Not here: the counters and the log (`log_events.py`), what all nodes together have (`overview.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from amqpd.cluster.log_events import Counters
from amqpd.replication.commit import majority

if TYPE_CHECKING:
    from amqpd.cluster.led_replica_set import LedReplicaSet
    from amqpd.cluster.led_sources import LedSources
    from amqpd.replication.take_over import SourceRecord


@dataclass(frozen=True, slots=True)
class PeerLag:
    """The lag of one peer in one replica set that this node leads."""

    peer: str
    members: tuple[str, ...]
    connected: bool
    transactions: int
    """that are kept, and that it has not answered"""
    lag_bytes: int
    """of these"""
    sources_behind: int
    """that it has not matched, or whose record does not name its disk"""


@dataclass(frozen=True, slots=True)
class ClusterStatistics:
    """A snapshot of one node's counters and gauges of the cluster, and of the lags of its peers."""

    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    lags: tuple[PeerLag, ...]

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        lags = [{field.name: getattr(lag, field.name) for field in fields(PeerLag)} for lag in self.lags]
        return {**self.counters, **self.gauges, "peers": lags}


def statistics(
    counters: Counters,
    led_sources: LedSources,
    records: Iterable[SourceRecord],
    name: str,
    generation: int,
    now_s: float,
) -> ClusterStatistics:
    """`name`, `generation`: of this forwarder and its disk."""
    replica_sets = list(led_sources.replica_sets.values())
    totals = {f"{field.name}_total": getattr(counters, field.name) for field in fields(Counters)}
    sent = led_sources.sent
    under_way = sum(len(peer.transfers) for replica_set in replica_sets for peer in replica_set.leader.peers.values())
    totals |= {
        "transfers_begun_total": sent.transfers_begun,
        "transfers_done_total": sent.transfers_done,
        "transfers_followed_total": sent.transfers_followed,
        "transfers_given_up_total": sent.transfers_begun - sent.transfers_done - under_way,
        "resent_entries_total": sent.entries,
        "resent_bytes_total": sent.nbytes,
    }
    under = without = 0
    for source, own in led_sources.sources.items():
        up_to_date = 1 + sum(
            own.replica_set.has_all(member, source, now_s) for member in own.replica_set.members if member != name
        )
        under += up_to_date < len(own.replica_set.members)
        without += up_to_date < majority(len(own.replica_set.members))
    gauges = {
        "sources_led": len(led_sources.sources),
        "sources_served": sum(own.serving for own in led_sources.sources.values()),
        "sources_copied": sum(
            record.counts(name, generation) for record in records if record.source not in led_sources.sources
        ),
        "sources_under_replicated": under,
        "sources_without_majority": without,
        "sources_cut_off": len(led_sources.cut_off) + len(led_sources.given_up),
        "transfers_under_way": under_way,
        "open_bytes": sum(replica_set.leader.open_bytes for replica_set in replica_sets),
    }
    return ClusterStatistics(
        totals, gauges, tuple(lag for replica_set in replica_sets for lag in _lags(replica_set, name))
    )


def _lags(replica_set: LedReplicaSet, name: str) -> Iterable[PeerLag]:
    leader = replica_set.leader
    for member in (*replica_set.members, *replica_set.learners):
        if member != name:
            peer = leader.peers.get(member)
            transactions, lag_bytes = leader.lag_of(member)
            behind = 0 if peer is None else len((peer.apart | peer.uncounted).intersection(leader.sources))
            yield PeerLag(member, replica_set.members, peer is not None, transactions, lag_bytes, behind)
