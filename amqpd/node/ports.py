"""What the parts of the node know of the whole.

What comes in: nothing. What goes out: a base class, which `node.py` fills.
Rules: 1. What is here is what the parts of the leader's queues need (dispatch, registry, orphans, quarantine), and no
more. 2. A part that knows another one is given it.
Not here: what publishing knows of the node (`publishing/ports.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from mypy_extensions import mypyc_attr

from amqpd.audit.coverage.audited import Audited
from amqpd.audit.coverage.coverage import Coverage
from amqpd.flow.congestion import MemoryShares
from amqpd.node.cluster import Cluster
from amqpd.node.queue_ports import QueuePorts
from amqpd.node.sources import ServedSources
from amqpd.node.totals import Totals
from amqpd.publishing.ports import PublishingNode
from amqpd.queues.delayed import DelayedMessages
from amqpd.queues.dispatchable import Dispatchable, Paged
from amqpd.queues.queue import Queue
from amqpd.remote.edges import RemoteEdges
from amqpd.session.holds import Holds
from amqpd.vocabulary.records import QueueRecord


@mypyc_attr(allow_interpreted_subclasses=True)
class NodePort(PublishingNode):
    """The node, as its own parts know it: dispatch, the registry of queues, orphans, the quarantine."""

    books: Coverage
    holds: Holds
    shares: MemoryShares
    cluster: Cluster
    sources: ServedSources
    queues: dict[tuple[str, str], Queue]
    """by virtual host and name: those of this node"""
    ports: QueuePorts
    """with those that are remote"""
    active: dict[Dispatchable, None]
    """what was dispatched lately, queues and all else (`management/figures/sampling.py`)"""
    edges: RemoteEdges
    """at sources of other nodes"""
    delayed: dict[str, DelayedMessages]
    """by virtual host; made when it is needed"""
    totals: Totals

    @abstractmethod
    def make_queue(self, record: QueueRecord, policy: Mapping[str, Any]) -> Queue:
        """`policy`: the definition of its effective one."""

    @abstractmethod
    def make_delayed(self, vhost: str, number: int) -> DelayedMessages:
        """`number`: under which the journal has them."""

    @abstractmethod
    def paged(self) -> list[Paged]:
        """All that messages stand in and leave again: queues, delayed messages."""

    @abstractmethod
    def audited(self) -> list[Audited]:
        """The same and orphans: all that messages stand in."""
