"""How far copies are: those of the sources led here, which only the leader knows, and the own ones.

What comes in: the leader's lanes, the own replicas. What goes out: plain values, for `amqpd quorum status` and for
programs.
Rules: 1. Nothing is changed. 2. A copy counts when it may be part of a majority; how many bytes it lacks is another
question, since under load each one lacks what is just on its way. 3. A connection is no sign of life: it stays open
when a process is stopped or a network swallows everything, and while nothing is published such a peer lacks nothing.
Not here: what the store has of a source (`overview.py`), how it is said (`standing.py`).
"""

from __future__ import annotations

from typing import Any

from amqpd.cluster.led_sources import LedSources
from amqpd.cluster.own_lane import Own, OwnLane
from amqpd.peers.entry import START
from amqpd.replication.replica import Replicas

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
                    "is": _is(own.lane, peer, source, led_sources.now_s),
                    "lacks_bytes": own.lane.leader.lacks_bytes(peer, source),
                }
                for peer in _others(own)
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


def _others(own: Own) -> list[str]:
    return [member for member in own.record.members if member != own.vote.forwarder]


def _is(lane: OwnLane, name: str, source: int, now_s: float) -> str:
    peer = lane.leader.peers.get(name)
    if peer is None:
        return AWAY
    if source in peer.transfers:
        return STATE
    if source in peer.apart:
        return BEHIND
    if source in peer.uncounted:
        return OTHER_DISK
    # Of a learner no lease is known; it counts for nothing until it is a member.
    return SILENT if name in lane.members and not lane.leader_lease.hears(name, now_s) else COUNTS
