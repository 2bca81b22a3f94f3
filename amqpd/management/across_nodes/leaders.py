"""Which nodes lead the queues of a cluster, and what these say of them, for one request.

What comes in: queues. What goes out: of each the node, who leads and keeps it, and its figures.
Rules: 1. A leader is asked only for queues whose rows are wanted. 2. Where it does not answer, the state is a word of
RabbitMQ's: `down`, or `minority` when most of those that keep the queue are gone; numbers are left out, not made up.
Not here: the questions (`rows.py`), rows for the command line (`led_queues.py`) and for HTTP
(`admin/amqpd_admin/rows/queues.py`).

Source for words: rabbit_quorum_queue.erl, rabbit_amqqueue.erl (`state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from amqpd.management.across_nodes.rows import GatheredRows, Key, PeerRows
from amqpd.management.face import BrokerParts, ClusterState
from amqpd.node.sources import ServedSources
from amqpd.queues.port import QueuePort
from amqpd.vocabulary.records import QueueRecord

Row = dict[str, Any]


def leaders_of(parts: BrokerParts) -> Leaders:
    """As a face asks for them."""
    view = parts.cluster() if parts.cluster is not None else None
    node = parts.on.node
    return Leaders(node.identity.name, node.sources, view, parts.peers)


class Leaders:
    """The leaders of the queues of a cluster, and what they say, for one request; without a cluster this node
    leads all."""

    def __init__(self, here: str, sources: ServedSources, view: ClusterState | None, peers: PeerRows | None) -> None:
        """`here`: this node's name; `sources`: who leads what, as this node knows it."""
        self._here = here
        self._sources = sources
        self._peers = peers
        self._view = view
        self._figures: dict[Key, Row] = {}
        self._missing: set[str] = set()
        self._asked: set[Key] = set()

    @property
    def missing(self) -> list[str]:
        """Members that did not answer."""
        return sorted(name for name in self._missing if self._view is not None and self._view.lives(name))

    async def ask(self, queues: Iterable[QueuePort]) -> None:
        """The leaders of those that are not led here, once for each queue."""
        if self._view is None or self._peers is None:
            return
        at: dict[str, list[Key]] = {}
        for queue in queues:
            leader = self.leader_of(queue)
            key = queue.record.vhost, queue.record.name
            if leader not in ("", self._here) and key not in self._asked:
                at.setdefault(leader, []).append(key)
                self._asked.add(key)
        figures, missing = await self._peers.figures(at)
        self._figures |= figures
        self._missing |= missing

    def another(self, queue: QueuePort) -> str | None:
        """The node that leads it and can be asked, if it is not this one."""
        leader = self.leader_of(queue)
        return leader if self._peers is not None and leader in self._peers.others() else None

    async def act(self, leader: str, of: str, **more: str | None) -> Row:
        """At one that `another` named. Raises the ManagementError with which it refuses; Unavailable when it does not
        answer."""
        assert self._peers is not None
        return await self._peers.act(leader, of, **more)

    @property
    def clustered(self) -> bool:
        """There may be other nodes."""
        return self._peers is not None

    def others(self) -> Sequence[str]:
        """All other nodes, also those that are away."""
        return () if self._peers is None else self._peers.others()

    async def rows(self, of: str, **more: str | None) -> GatheredRows:
        """What all other nodes have of a kind."""
        return GatheredRows() if self._peers is None else await self._peers.rows(of, **more)

    def why_silent(self, name: str) -> str:
        """What is known of a node that did not answer, as the end of a sentence that begins with it."""
        if self._view is None or not self._view.lives(name):
            return "is away"
        why = self._view.why_silent(name)
        return f"does not answer: {why}" if why else "does not answer"

    def figures(self, queue: QueuePort) -> Row | None:
        """What its leader says. None: that is here, or nobody says anything."""
        return self._figures.get((queue.record.vhost, queue.record.name)) if queue.is_remote else None

    def leader_of(self, queue: QueuePort) -> str:
        """Empty: it has none, as far as that is known."""
        return self._sources.leader_of(queue.record) if queue.is_remote else self._here

    def about(self, queue: QueuePort) -> Row:
        """`node`; of a quorum queue who leads it, keeps it, and incarnations. One without a leader has the node that
        was asked, since tools look for one."""
        leader = self.leader_of(queue)
        if not queue.quorum:
            return {"node": queue.record.node or self._here}
        members = self._members(queue.record) or [self._here]
        online = [name for name in members if self._lives(name)]
        led = {"leader": leader} if leader else {}
        return {"node": leader or self._here, **led, "members": members, "online": online}

    def silence(self, queue: QueuePort) -> str:
        """The state of one of which nobody says anything."""
        members = self._members(queue.record)
        most = sum(map(self._lives, members)) > len(members) // 2
        return "minority" if members and not most else "down"

    def state(self, queue: QueuePort) -> str:
        """Of one that is led by another node. Where that was not asked, it is as well as its leader."""
        found = self.figures(queue)
        if found is not None:
            return str(found["state"])
        leader = self.leader_of(queue)
        answers = leader not in ("", self._here, *self._missing) and self._lives(leader)
        return "running" if answers else self.silence(queue)

    def _members(self, record: QueueRecord) -> list[str]:
        return [] if self._view is None or not record.source else list(self._view.members_of(record.source))

    def _lives(self, name: str) -> bool:
        view = self._view
        return name == self._here or (view is not None and view.lives(name) and not view.is_isolated(name))
