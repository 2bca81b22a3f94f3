"""This node's word on its links: seen, put into the metadata store, and what follows for this node from all words.

What comes in: links of this process, the roster; beats. What goes out: a record in the store while links are missing,
none else; the linkage of the cluster as this node sees it.
Rules: 1. In a cluster that is well nothing is put. 2. Of itself a node believes what it sees now, also while the
store does not answer; of others what they said last. 3. At most one put in `SAY_S`, of what is seen by then.
Not here: how long a link has to be missing, and for whom it is (`linkage.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog

from amqpd.cluster.directory import Directory
from amqpd.cluster.linkage import WELL, Linkage, LinkWatch, linkage_of
from amqpd.cluster.records import LinksRecord, MissingLink
from amqpd.peers.links.troubles import Trouble
from amqpd.topology.metadata.store import LeaseGone, StoreBusy, StoreFull, StoreUnreached

SAY_S = 1.0

log = structlog.get_logger(component="cluster")


class LinkReports:
    """One node's record of its missing links in the metadata store, and the linkage that follows from all such
    records."""

    def __init__(
        self, directory: Directory, lease_s: float, start: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        """`start`: runs a task."""
        self.linkage: Linkage = WELL
        """as of the last beat"""
        self._directory = directory
        self._start = start
        self._watch = LinkWatch(directory.me.name, lease_s)
        self._missing: tuple[MissingLink, ...] = ()
        self._again_s = 0.0
        self._seen: object = None
        """what `linkage` was made of"""

    def beat(self, linked: Collection[str], troubles: Mapping[str, Trouble], now_s: float) -> bool:
        """Some times a second, while this is a member; whether the linkage is another one. `linked`: peers that this
        node has a link to, which it dialed."""
        directory = self._directory
        me, links = directory.me, directory.roster.links
        self._missing = self._watch.look(directory.roster.members, linked, troubles, now_s)
        heard = links.get(me.name)
        said = heard.missing if heard is not None and heard.incarnation == me.incarnation else ()
        if said != self._missing and now_s >= self._again_s:
            self._again_s = now_s + SAY_S
            self._start(self._say)
        seen = directory.roster.revision, self._missing
        if seen == self._seen:
            return False
        before, self._seen = self.linkage, seen
        mine = {me.name: LinksRecord(me.name, me.incarnation, self._missing)}
        self.linkage = linkage_of(directory.roster.members, {**links, **mine}, directory.roster.records.values())
        return self.linkage != before

    @property
    def isolated(self) -> str:
        """Why this node takes no part now, for people; empty: it does."""
        name = self._directory.me.name
        if name not in self.linkage.isolated:
            return ""
        return f"node {name} has no link to a majority of the cluster's nodes ({self.linkage.why(name)})"

    async def _say(self) -> None:
        try:
            await self._directory.say_links(self._missing)
        except (StoreUnreached, StoreBusy, StoreFull, LeaseGone) as error:
            log.warning("what this node says of its links is not in the store", reason=str(error))
