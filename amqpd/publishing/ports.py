"""What publishing knows of the node, and of a channel that publishes.

What comes in: nothing. What goes out: base classes, which `amqpd.node` and `amqpd.channels` fill.
Rules: 1. What is here is what publishing needs beside what sessions need (`session/ports.py`), and no more. 2. What
is named here lies below: routes, replies, counts; whatever needs this class comes after it. 3. Compiled base
classes: every publish goes by them.
Not here: the node itself (`node/node.py`), what its own parts ask of it (`node/ports.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from mypy_extensions import mypyc_attr

from amqpd.audit.publication import Publication
from amqpd.flow.disk_space import DiskSpace
from amqpd.journal.lane import Lanes
from amqpd.kernel import Run
from amqpd.message.properties import PropertiesReader
from amqpd.publishing.histories import Histories
from amqpd.publishing.replies import Replies, ReplyConsumer
from amqpd.publishing.routes import RouteCache, Routes
from amqpd.publishing.unroutable import Unroutable
from amqpd.queues.dispatchable import Dispatchable
from amqpd.queues.port import QueuePort
from amqpd.session.ports import ChannelBase, SessionNode
from amqpd.session.services import Read
from amqpd.tracing.tracer import Publishing
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.identity import Identity


@mypyc_attr(allow_interpreted_subclasses=True)
class DispatchingBase(ABC):
    """The dispatch of a node, as publishing knows it; `node/dispatching.py` implements it."""

    def __init__(self) -> None:
        self.source: Dispatchable | None = None
        """while something is published for it, in whose name that begins what takes long"""
        self.publisher: Client | None = None
        """while what it publishes is turned away: that is its own work"""

    @property
    @abstractmethod
    def behind(self) -> bool:
        """There is more to do than the last tick had time for."""

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Something has begun that holds the journal until it has ended."""

    @abstractmethod
    def run(self, reads: list[Read]) -> None:
        """Look at the queues to which something happened."""

    @abstractmethod
    def carry_out(self, steps: Iterator[None], queue: Dispatchable | None) -> None:
        """What the queue has begun and may take longer than the tick has time for."""

    @abstractmethod
    def later(self, steps: Iterator[None]) -> None:
        """Carry out these steps in order: the first now, the others as ticks have time for them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishingNode(SessionNode):
    """The node, as publishing knows it. It is the `QueueHost` of its queues, too."""

    identity: Identity
    properties: PropertiesReader
    chance: Callable[[], float]
    """a random number from 0.0 to below 1.0"""
    now_ms: int
    """since the epoch; never goes back within a run"""
    work_left: int
    """see `QueueHost`"""
    dispatching: DispatchingBase
    disk_space: DiskSpace
    routes: Routes
    replies: Replies
    unroutable: Unroutable
    histories: Histories
    remote: dict[tuple[str, str], QueuePort]
    """queues whose leaders are other nodes, by virtual host and name"""

    @property
    @abstractmethod
    def makes_queues(self) -> bool:
        """A look at a name may make its queue: a source begins here."""

    @abstractmethod
    def queues_named(self, vhost: str, names: Iterable[str]) -> tuple[QueuePort, ...]:
        """Those that there are."""

    @abstractmethod
    def serves(self, vhost: str, name: str) -> bool:
        """Clients of this node may use the queue: its messages are here, it is not another node's exclusive one, and
        it is not fenced."""

    @abstractmethod
    def delay(self, vhost: str, run: Run, delay_ms: int, publication: Publication | None) -> Lanes | None:
        """Publish the run after this time; the lanes that its confirm must wait for; None: it cannot be kept."""

    @abstractmethod
    def trace_publish(self, channel: ChannelBase, run: Run, keys: Sequence[str], queues: Sequence[QueuePort]) -> None:
        """A client published it with these routing keys, in a virtual host that is traced."""


class PublishingChannel(ChannelBase):
    """A channel, as publishing knows it."""

    routes: RouteCache
    """its connection's"""
    reply_consumer: ReplyConsumer | None
    traced_publish: Publishing | None
    """the last publish that came frame by frame or as a run, if the tracer tells of it"""
