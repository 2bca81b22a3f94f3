"""The bounds of links.

What comes in: nothing. What goes out: `LinkLimits`, a value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The bounds of a link: the bytes that it may hold, and the time that its steps may take."""

    out_bytes_max: int = 64 << 20
    """What waits for one peer. As much as a lane keeps for a peer that is behind (`KEPT_BYTES_MAX` in
    `replication/leader.py`): one that is further behind is caught up by state, so what waits would be of no use. One
    message that is larger goes by itself."""
    handshake_s: float = 5.0
    """From dialing, or accepting, to the peer's Hello. Two round trips and some milliseconds of computing; a lost
    packet costs a second or two."""
    strangers_max: int = 64
    """Accepted connections whose peer is not known yet. Beyond it the oldest one of the address that has most goes: a
    peer is known within milliseconds, so one that only holds connections open does not keep others out."""
    backlog: int = 512
    """Connections that the system has taken and this process has not, for as long as it does something else."""
    accepted_max: int = 256
    """Peers that have dialed this forwarder: there are 256 sources, so no more of them can be leaders."""
    starting_s: float = 30.0
    """In which a peer to which there was no link yet may just be starting, as all do where a cluster begins."""
    back_off_first_s: float = 0.05
    back_off_max_s: float = 1.0
    """Between two attempts to dial: doubled each time, drawn from the upper half. Half of a lease at most, so that a
    peer that came back is there before it is given up."""
