"""What is told of a cluster's events: counters, and lines of the log, with the names of events, how grave each is,
and how many of a kind are written.

What comes in: events, as the parts of a forwarder tell them. What goes out: lines of the log, through the function
that is given.
Rules: 1. A name never changes its meaning; docs/clustering.md has the table. 2. Of each name at most `BURST` lines in
`WITHIN_S`: a lost node has 85 sources, and a link that comes and goes has as many copies each time. What is left out
is counted, and said with the next line of that name, or by itself when there is none. 3. Counters leave nothing out:
counting is an addition, never for each message or frame, and they only go up.
Not here: how things are now (`statistics.py`), what became of messages (`amqpd/audit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BURST = 64
"""As many as there are take-overs at once (`takeovers.py`): a thousandth of a second to be written."""
WITHIN_S = 10.0
LEFT_OUT = "log_events_left_out"

LEVELS = {
    # A source and its leader.
    "source_taken_over": "info",
    "source_served": "info",
    "source_handed_over": "info",
    "source_spread": "info",
    "source_lost": "warning",
    "take_over_lost": "info",
    "vote_granted": "info",
    "vote_refused": "info",
    # Copies.
    "copies_missing": "warning",
    "copies_complete": "info",
    "leader_lease_lost": "warning",
    "leader_lease_back": "info",
    "peer_behind": "info",
    "peer_caught_up": "info",
    "peer_is_sent_state": "info",
    "state_given_up": "warning",
    "publishers_wait": "warning",
    "publishers_go_on": "info",
    "disk_admitted": "info",
    # What operators ask for.
    "member_learns": "info",
    "member_added": "info",
    "member_removed": "info",
    "copy_dropped": "info",
    "majority_given_up": "warning",
    "replica_contradicts": "error",
    "copy_unusable": "error",
    # Links and the store.
    "link_closed": "warning",
    "forgotten_asks": "warning",
    "set_version": "info",
    "metadata_behind": "warning",
    "isolated": "warning",
    "member_isolated": "warning",
    "isolated_no_more": "info",
    "swap_unanswered": "warning",
    LEFT_OUT: "warning",
}


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


def place_of(position: tuple[int, int]) -> str:
    """Of an entry in a source's log, as the log shows it: 3:1042."""
    epoch, idx = position
    return f"{epoch}:{idx}"


Write = Callable[[str, str, dict[str, Any]], None]
"""level, event, fields"""


class LogEvents:
    """Writes one node's cluster events to the log, at most `BURST` lines of a name in `WITHIN_S`."""

    def __init__(self, write: Write, now_s: Callable[[], float]) -> None:
        self._write = write
        self._now_s = now_s
        self._since_s: dict[str, float] = {}
        """of each name, when the time began in which its lines are counted"""
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def log(self, event: str, fields: dict[str, Any]) -> None:
        """An event that has no level here is one for `info`."""
        now_s = self._now_s()
        if now_s - self._since_s.get(event, -WITHIN_S) >= WITHIN_S:
            self._since_s[event], self._written[event] = now_s, 0
        if self._written[event] >= BURST:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._written[event] += 1
        left_out = self._left_out.pop(event, 0)
        if left_out:
            fields = {**fields, "left_out_before": left_out}
        self._write(LEVELS.get(event, "info"), event, fields)

    def beat(self) -> None:
        """Now and then: what was left out, and nothing came after it."""
        if not self._left_out:
            return
        now_s = self._now_s()
        for event, count in list(self._left_out.items()):
            if now_s - self._since_s[event] >= WITHIN_S:
                del self._left_out[event]
                self._write(LEVELS[LEFT_OUT], LEFT_OUT, {"of": event, "count": count})
