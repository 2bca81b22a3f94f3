"""Runs what a node says and hears of applied revisions: its clock, its reads of the store, its answers.

What comes in: the node, the store, the roster; that something was applied. What goes out: all that
`applied_revisions.py` has.
Rules: 1. What is applied in one round of tasks is reported, and answered, in the next one: the topology and the
roster have a watch each, and both have had their turn then. 2. An answer that fails is a bug of its own, and of no
other one.
Not here: what is said (`applied_revisions.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import trio

from amqpd.cluster.applied_revisions import AppliedRevisions
from amqpd.cluster.data_links import Do
from amqpd.cluster.directory import Directory
from amqpd.cluster.roster import Roster
from amqpd.config import Settings
from amqpd.faults import ENDS_NODE
from amqpd.node.node import Node
from amqpd.peers.versions import HAS_DATA_LINKS
from amqpd.topology.metadata.store import MetadataStore, MetadataStoreError


class RevisionRunner:
    """The `RevisionsHost` of one node in a cluster, and its task."""

    def __init__(self, settings: Settings, store: MetadataStore, directory: Directory, do: Do) -> None:
        """`do` makes a call, and has the node act on what that made necessary."""
        self._lease_s, self._store, self._directory, self._do = settings.cluster_lease_s, store, directory, do
        self.revisions = AppliedRevisions(
            settings.node_name, settings.cluster_lease_s, self, settings.cluster_remote_queues
        )
        self.versions: dict[str, int] = {}
        """by node, of the messages, over its last link"""
        self._news = trio.Event()
        self._node: Node
        self._nursery: trio.Nursery

    def start(self, node: Node) -> None:
        self._node = node
        self._directory.on_revision = self.has_news
        if self.revisions.is_on:
            node.alarms.set_current(False)  # until somebody has answered

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        self.revisions.generation = await self._store.identity()
        self.roster_changed(self._directory.roster)
        async with trio.open_nursery() as self._nursery:
            self._do(self.revisions.beat)
            task_status.started()
            while True:
                await self._news.wait()
                await trio.lowlevel.checkpoint()
                self._news = trio.Event()
                self._do(self.revisions.flush)

    def linked(self, name: str, version: int) -> None:
        """There is a link to this node, over which this version of the messages is used."""
        if self.versions.get(name) != version:
            self.versions[name] = version
            self.roster_changed(self._directory.roster)

    def roster_changed(self, roster: Roster) -> None:
        """Other nodes are registered, or live."""
        self.revisions.roster_changed(roster, lambda name: self.versions.get(name, HAS_DATA_LINKS) >= HAS_DATA_LINKS)

    # `RevisionsHost`

    @property
    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def applied_revision(self) -> int:
        return min(self.topology_revision, self._directory.roster.revision)

    @property
    def topology_revision(self) -> int:
        return self._node.services.metadata_applied

    def has_news(self) -> None:
        self._news.set()

    def read_store(self, ended: Callable[[int | None], None]) -> None:
        self._nursery.start_soon(self._read, ended)

    async def _read(self, ended: Callable[[int | None], None]) -> None:
        revision: int | None = None
        with trio.move_on_after(self._lease_s):
            try:
                revision = await self._store.refresh()
            except MetadataStoreError:
                pass  # the directory says so
        self._do(partial(ended, revision))

    def answer(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except ENDS_NODE:
            raise
        except Exception as error:  # noqa: BLE001 - what waited for the answer failed; the log has it
            self._node.services.bug(error)

    def set_current(self, current: bool) -> None:
        self._node.alarms.set_current(current)
