"""What a forwarder has done for its cluster since its process began.

What comes in: additions, where something is done. What goes out: numbers.
Rules: 1. Counting is an addition; nothing is counted for each message or frame. 2. They only go up.
Not here: how things are now (`statistics.py`); what a replica set counts of its peers (`replication/leader.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts of what one process has done for its cluster since it began."""

    take_overs_begun: int = 0
    take_overs: int = 0
    """that were won"""
    take_overs_lost: int = 0
    hand_overs: int = 0
    sources_spread: int = 0
    """that this node asked another one to lead, to be even"""
    sources_lost: int = 0
    """whose leader this was until another one was found"""
    votes_granted: int = 0
    votes_refused: int = 0
    votes_put_off: int = 0
    """for the end of another leader's leader lease"""
    leader_leases_lost: int = 0
    """of a replica set, while it had sources: no majority answered for a lease time"""
    state_bytes_sent: int = 0
    disks_admitted: int = 0
    replicas_contradicted: int = 0
    links_lost: int = 0
    links_closed: int = 0
    """because of what came over them"""
    swaps_unanswered: int = 0
    """of records in the store, whose outcome was not known in time"""
