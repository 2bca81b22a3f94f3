"""How far this node's knowledge of the metadata store is behind that of the nodes which it talks to.

A watch that has silently stopped looks like a store in which nothing happens. Every other node says which revision
it has heard of, with what it says anyway: so a node notices that the store has gone on without it.

What comes in: revisions, as peers say them; the time. What goes out: the store is asked; the log, if that brought
what the watch had not told.
Rules: 1. The store is asked again when this node has been behind for a lease time, and as often while it is. 2. A
revision counts as long as there is a link to who said it: a store that was put back from a copy has lower ones. 3. A
peer that lies makes this node ask its store once a lease time, and nothing else.
Not here: the watch (`directory.py`), who says revisions in which version of the messages (`peers/versions.py`).
"""

from __future__ import annotations

from amqpd.cluster.shell import Shell


class MetadataLag:
    """Compares the metadata revision that this node has heard of with those that its peers say."""

    def __init__(self, shell: Shell, lease_s: float) -> None:
        self._shell = shell
        self._lease_s = lease_s
        self._said: dict[str, int] = {}
        """by peer, what it said last"""
        self._since_s: float | None = None
        """when this node was behind first, or asked the store last; None: it is not behind"""
        self._asked_for = 0
        """the revision for which the store was asked, and which this node does not have yet; 0: none"""
        self._peer = ""
        """that had said it"""

    def heard(self, peer: str, revision: int) -> None:
        """0: the peer does not say."""
        if revision:
            self._said[peer] = revision

    def lost(self, peer: str) -> None:
        """There is no link to it any more."""
        self._said.pop(peer, None)

    @property
    def behind(self) -> int:
        """Revisions that some peer has heard of and this node has not."""
        return max(0, max(self._said.values(), default=0) - self._shell.revision)

    def beat(self) -> None:
        """Some times in a lease."""
        now_s = self._shell.now_s
        if 0 < self._asked_for <= self._shell.revision:
            if self._shell.heard_revision < self._asked_for:
                told = self._shell.heard_revision
                self._shell.log("metadata_behind", revision=self._asked_for, told=told, peer=self._peer)
            self._asked_for = 0
        if not self.behind:
            self._since_s, self._asked_for = None, 0
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= self._lease_s:
            self._since_s = now_s
            self._peer = max(self._said, key=lambda name: self._said[name])
            self._asked_for = self._said[self._peer]
            self._shell.catch_up_with_store()
