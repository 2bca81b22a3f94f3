"""Which members of a cluster have links to enough of the others, and which have not.

Being a member is a lease in the store; to be of use a node also needs links to the others, over which they prove who
they are. One that the others refuse, or do not reach, lives, and can neither lead a source nor keep a copy.

What comes in: members, what each says of the links that it lacks, the records of sources. What goes out: who is
*isolated*; sentences about who lacks a link to whom, why, and what to do about it.
Rules: 1. A link between two members is missing when one of the two says so: nothing is copied over half a link. Who
says nothing (a node that starts, an older version) lacks none. So a node that lies can only take its own links away,
and a minority can isolate nobody but itself. 2. Members that a source is kept on are the core, or all members while
there is no source. Who has links to a majority of the core, itself counted, is not isolated. So any number of
newcomers that nobody lets in isolate nobody. 3. A pure function of what the store has: all nodes, and commands
without a node, find the same. 4. A node says that a link is missing when there was none for `LOST_LEASES` lease
times, or none that lasted: by then the lease of a peer that has died has run out, and it is no member. Where the peer
refuses this node for what no time changes, a second is enough. It is there again when it has lasted for `BACK_S`, so
that a link that comes and goes is not said to be another way several times a second. 5. A start waits for none of
this: until something is said, nothing is missing.
Not here: what puts it into the store (`link_reports.py`), where new sources go
(`choosing.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from amqpd.cluster.records import MEMBERS_MAX, LinksRecord, MemberRecord, MissingLink
from amqpd.peers.links.troubles import (
    CERTIFICATE,
    CHANGED,
    LASTING,
    NETWORK_CHANGES,
    REFUSALS,
    SECRET,
    UNREACHED,
    Trouble,
)
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord

Pair = tuple[str, str]

WAYS_OUT = {
    SECRET: "give {name} the cluster_secret of the others and start it again",
    CERTIFICATE: "give {name} a certificate of the cluster's authority that names it, and the cluster_tls_ca of the "
    "others, and start it again",
    CHANGED: NETWORK_CHANGES,
    UNREACHED: "look at the network between them, and at cluster_listen and cluster_advertise of {name}",
}
OTHER_WAY_OUT = "look at the settings and the log of {name}"
LOST_LEASES = 2
"""A lease runs out within one; the store says so, and this node hears of it, within another one."""
REFUSED_S = 1.0
"""A peer has its secret and its certificate from its start on; a moment, for one that is just started again."""
BACK_S = 1.0
REASON_MAX = 400
"""characters of a reason: it is shown in a sentence"""


@dataclass(frozen=True, slots=True)
class Linkage:
    """The links of a cluster at one moment: which pairs lack theirs, and which members are isolated."""

    said: Mapping[Pair, MissingLink] = field(default_factory=dict)
    """by who says it, and of whom"""
    isolated: frozenset[str] = frozenset()
    """members without links to a majority"""
    newcomers: frozenset[str] = frozenset()
    """those of them that no source is kept on: nothing waits for their return"""

    def lacks(self, one: str, other: str) -> bool:
        """There is no link between these two."""
        return (one, other) in self.said or (other, one) in self.said

    def usable(self, living: Mapping[str, MemberRecord], leader: str = "") -> dict[str, MemberRecord]:
        """Those that something may be placed on; for a source of this leader, that have a link to it."""
        if not self.said:
            return dict(living)
        return {
            name: member
            for name, member in living.items()
            if name not in self.isolated and not (leader and self.lacks(leader, name))
        }

    def is_of_use(self, name: str, leader: str) -> bool:
        """A copy on this member, of a source that is led at `leader` (empty: it has no leader)."""
        return name not in self.isolated and not (leader and leader not in self.isolated and self.lacks(leader, name))

    # In words

    def why(self, name: str) -> str:
        """Who lacks a link to this member, and why, as the others say it; empty: nobody does."""
        others: dict[tuple[str, str], list[str]] = {}
        for (who, of), link in sorted(self.said.items()):
            if of == name:
                others.setdefault((link.kind, link.reason), []).append(who)
        heard = {who for found in others.values() for who in found}
        mine: dict[tuple[str, str], list[str]] = {}
        for (who, of), link in sorted(self.said.items()):
            if who == name and of not in heard:
                mine.setdefault((link.kind, link.reason), []).append(of)
        said = [f"{_lacks(kind, by, [name])}: {reason}" for (kind, reason), by in others.items()]
        for (kind, reason), whom in mine.items():
            lacks = f"{name} is refused by {named_together(whom)}" if kind in REFUSALS else _lacks(kind, [name], whom)
            said.append(f"{lacks}: {reason}")
        return "; ".join(said)

    def way_out(self, name: str) -> str:
        """For an operator. `name` is isolated."""
        kinds = [link.kind for pair, link in sorted(self.said.items()) if name in pair]
        first = next((kind for kind in (SECRET, CERTIFICATE, CHANGED, UNREACHED) if kind in kinds), "")
        way = WAYS_OUT.get(first, OTHER_WAY_OUT).format(name=name)
        if first == UNREACHED and any("TLS" in link.reason for pair, link in self.said.items() if name in pair):
            # It was reached, and its handshake ended: settings are likelier than the network.
            way = f"look whether {name} has cluster_tls_ca and cluster_tls_certificate like the others; then {way}"
        return f"{way}; or end it and take it out: amqpd cluster forget {name}"

    def sentences(self) -> list[str]:
        """One for each member that is isolated, and for each other pair without a link."""
        found = [
            f"{self.why(name)}; {name} counts for nothing while it has no link to a majority of the nodes: "
            f"{self.way_out(name)}"
            for name in sorted(self.isolated)
        ]
        # Where bytes change the other end only sees that links end.
        said = sorted(self.said.items(), key=lambda each: (each[1].kind != CHANGED, each[0]))
        for one, other in sorted({tuple(sorted(pair)) for pair in self.said}):
            if one not in self.isolated and other not in self.isolated:
                says = [
                    f"{_lacks(link.kind, [who], [of])}: {link.reason}"
                    for (who, of), link in said
                    if {who, of} == {one, other}
                ]
                found.append(f"{says[0]}; what is kept on both has a copy less, until there is a link again")
        return found


WELL = Linkage()
"""no link is missing"""


def linkage_of(
    members: Mapping[str, MemberRecord], links: Mapping[str, LinksRecord], records: Iterable[SourceRecord]
) -> Linkage:
    said = {
        (name, link.peer): link
        for name, record in links.items()
        if name in members and members[name].incarnation == record.incarnation
        for link in record.missing
        if link.peer in members and link.peer != name
    }
    if not said:
        return WELL
    kept = {name for record in records for name in record.members}
    core = kept.intersection(members) or set(members)
    needed = majority(len(core))
    isolated = frozenset(
        name
        for name in members
        if sum((name, each) not in said and (each, name) not in said for each in core) < needed
    )
    return Linkage(said, isolated, isolated - kept)


def _lacks(kind: str, who: list[str], whom: list[str]) -> str:
    """How these lack a link to those, without the reason."""
    if kind == CHANGED:
        one = len(who) == len(whom) == 1
        links, breaks = ("link", "breaks") if one else ("links", "break")
        return f"the {links} from {named_together(who)} to {named_together(whom)} {breaks} again and again"
    one = len(who) == 1
    if kind in REFUSALS:
        return f"{named_together(who)} {'refuses' if one else 'refuse'} {named_together(whom)}"
    return f"{named_together(who)} {'does' if one else 'do'} not reach {named_together(whom)}"


def named_together(names: list[str]) -> str:
    """For a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


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
