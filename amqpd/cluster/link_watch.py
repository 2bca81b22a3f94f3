"""What a forwarder says of its own links: those that it lacks, once that lasts.

What comes in: members that live, the peers to which there is a link now, why there is none to others; the time. What
goes out: the missing links, as they are to be in the store.
Rules: 1. A link is missing when there was none for `LOST_LEASES` lease times, or none that lasted: by then the lease
of a peer that has died has run out, and it is no member. Where the peer refuses this node for what no time changes, a
second is enough. 2. It is there again when it has lasted for `BACK_S`. So a link that comes and goes is missing, and
is not said to be another way several times a second. 3. A start waits for none of this: until something is said,
nothing is missing.
Not here: what follows from it (`linkage.py`), putting it into the store (`links_said.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from amqpd.cluster.records import MEMBERS_MAX, MissingLink
from amqpd.peers.links.troubles import CHANGED, LASTING, UNREACHED, Trouble

LOST_LEASES = 2
"""A lease runs out within one; the store says so, and this node hears of it, within another one."""
REFUSED_S = 1.0
"""A peer has its secret and its certificate from its start on; a moment, for one that is just started again."""
BACK_S = 1.0
REASON_MAX = 400
"""characters of a reason: it is shown in a sentence"""


class LinkWatch:
    """Tells which links of one node to living members are missing, once that lasts."""

    def __init__(self, name: str, lease_s: float) -> None:
        self._name = name
        self._lost_s = LOST_LEASES * lease_s
        self._since: dict[str, float] = {}
        """peers to which there is no link: since when that was seen"""
        self._back: dict[str, float] = {}
        """peers that were missing and to which there is a link: since when"""
        self._missing: dict[str, MissingLink] = {}

    def look(
        self, living: Collection[str], linked: Collection[str], troubles: Mapping[str, Trouble], now_s: float
    ) -> tuple[MissingLink, ...]:
        """Some times a second. In the order of names."""
        peers = [name for name in living if name != self._name]
        for name in (self._since.keys() | self._back.keys() | self._missing.keys()) - set(peers):
            for seen in (self._since, self._back, self._missing):
                seen.pop(name, None)
        for name in peers:
            if name in linked:
                self._has_link(name, now_s)
            else:
                self._has_none(name, troubles.get(name), now_s)
        return tuple(self._missing[name] for name in sorted(self._missing)[:MEMBERS_MAX])

    def _has_link(self, name: str, now_s: float) -> None:
        if name in self._since and now_s - self._back.setdefault(name, now_s) >= BACK_S:
            self._missing.pop(name, None)
            del self._since[name], self._back[name]

    def _has_none(self, name: str, trouble: Trouble | None, now_s: float) -> None:
        self._back.pop(name, None)
        since_s = self._since.setdefault(name, now_s)
        trouble = trouble or Trouble(UNREACHED, "no answer")
        after_s = min(REFUSED_S, self._lost_s) if trouble.kind in LASTING else self._lost_s
        if name in self._missing or now_s - since_s >= after_s:
            self._missing[name] = self._said(name, trouble)

    def _said(self, name: str, trouble: Trouble) -> MissingLink:
        """The first reason stays while the kind does: an attempt may end in several ways, one after the other."""
        before = self._missing.get(name)
        if before is not None and before.kind == trouble.kind:
            return before
        if before is not None and (before.kind, trouble.kind) == (CHANGED, UNREACHED):
            return before  # where bytes change, some attempts end without an answer
        return MissingLink(name, trouble.kind, trouble.reason[:REASON_MAX])
