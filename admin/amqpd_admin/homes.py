"""Where queues are at home in the cluster, and what their homes say of them, for one request.

What comes in: queues. What goes out: of each the node, who leads and keeps it, and its figures.
Rules: 1. A home is asked only for queues whose rows are wanted. 2. Where it does not answer, the state is RabbitMQ's
word: `down`, or `minority` when most of those that keep the queue are gone; numbers are left out, not made up.
Not here: the questions (`amqpd/management/peers/rows.py`), rows (`rows/queues.py`).

Source for words: rabbit_quorum_queue.erl, rabbit_amqqueue.erl (`state`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amqpd.management.face import Behind
from amqpd.management.peers.rows import Key
from amqpd.queues.port import QueuePort
from amqpd.vocabulary.records import QueueRecord

Row = dict[str, Any]


class Homes:
    """As of one request; without a cluster this node is the home of all."""

    def __init__(self, behind: Behind) -> None:
        self._here = behind.on.node.identity.name
        self._peers = behind.peers
        self._view = behind.cluster() if behind.cluster is not None else None
        self._figures: dict[Key, Row] = {}
        self._missing: set[str] = set()
        self._asked: set[Key] = set()

    @property
    def missing(self) -> list[str]:
        """Members that did not answer."""
        return sorted(name for name in self._missing if self._view is not None and self._view.lives(name))

    async def ask(self, queues: Iterable[QueuePort]) -> None:
        """For those that are not here, once."""
        if self._view is None or self._peers is None:
            return
        at: dict[str, list[Key]] = {}
        for queue in queues:
            home = self._view.home_of(queue.record.source) if queue.elsewhere else self._here
            key = queue.record.vhost, queue.record.name
            if home not in ("", self._here) and key not in self._asked:
                at.setdefault(home, []).append(key)
                self._asked.add(key)
        figures, missing = await self._peers.figures(at)
        self._figures |= figures
        self._missing |= missing

    def figures(self, queue: QueuePort) -> Row | None:
        """What its home says. None: it is here, or nobody says anything."""
        return self._figures.get((queue.record.vhost, queue.record.name)) if queue.elsewhere else None

    def home_of(self, queue: QueuePort) -> str:
        """Empty: it has none, as far as that is known."""
        if self._view is None or not queue.elsewhere:
            return self._here
        return self._view.home_of(queue.record.source)

    def about(self, queue: QueuePort) -> Row:
        """`node`; of a quorum queue who leads it, keeps it, and lives. One without a home has the node that was
        asked, since tools look for one."""
        home = self.home_of(queue)
        if not queue.quorum:
            return {"node": home or self._here}
        members = self._members(queue.record) or [self._here]
        online = [name for name in members if self._lives(name)]
        led = {"leader": home} if home else {}
        return {"node": home or self._here, **led, "members": members, "online": online}

    def silence(self, queue: QueuePort) -> str:
        """The state of one of which nobody says anything."""
        members = self._members(queue.record)
        most = sum(map(self._lives, members)) > len(members) // 2
        return "minority" if members and not most else "down"

    def state(self, queue: QueuePort) -> str:
        """Of one that is not here. Where its home was not asked, it is as well as its home."""
        found = self.figures(queue)
        if found is not None:
            return str(found["state"])
        home = self.home_of(queue)
        answers = home not in ("", self._here, *self._missing) and self._lives(home)
        return "running" if answers else self.silence(queue)

    def _members(self, record: QueueRecord) -> list[str]:
        return [] if self._view is None or not record.source else list(self._view.members_of(record.source))

    def _lives(self, name: str) -> bool:
        return name == self._here or (self._view is not None and self._view.lives(name))
