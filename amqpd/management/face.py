"""A way in for operators beside the control socket, such as an HTTP API, as the broker knows it.

What comes in: settings, before the broker opens anything; later the running broker. What goes out: a server that runs
in the broker's nursery.
Rules: 1. Its ports are bound with the broker's own, before anything is touched on disk, and listen when the broker
is ready. 2. It reaches the node only through use cases. 3. It fails alone: the broker begins it again.
Not here: what it serves (`admin/amqpd_admin/`), which face a broker has (`commands/serve.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from amqpd.management.across_nodes.rows import PeerRows
from amqpd.management.control.answers import Commands
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.queue_names import QueueNames
from amqpd.management.figures.sampling import Sampler
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.metadata.interface import ManagedMetadata
from amqpd.management.running import Running
from amqpd.security.access import Access
from amqpd.security.authentication.logins import Logins


@dataclass(frozen=True)
class BrokerParts:
    """The parts of the running broker that a face uses."""

    on: Running
    metadata: ManagedMetadata
    logins: Logins
    access: Access
    figures: Callable[[], dict[str, Any]]
    """what costs nothing to say: `disk_free_bytes`, `disk_free_bytes_min`, `resident_bytes_max`, `scrub`, `audit`,
    `directories` that are not in use, `spans` where they are on, and `cluster` where there is one"""
    cluster: Callable[[], ClusterState] | None
    """how it is now; None: there are no other nodes"""
    addresses: Sequence[tuple[str, int, bool]]
    """where clients connect: host, port, whether through TLS"""
    messages: MessageOperations
    """those in queues"""
    commands: Commands
    """of the control socket"""
    samples: Sampler
    """how it was in the last minutes to hours"""
    facts: NodeFacts
    """of this node"""
    queue_names: QueueNames
    """of all queues of the cluster"""
    peers: PeerRows | None = None
    """what the other nodes say; None: there are none"""

    @property
    def clustered(self) -> bool:
        """There may be other nodes."""
        return self.cluster is not None


class ClusterState(Protocol):
    """The state of the cluster, as this node sees it."""

    def source_statuses(self, asked: Mapping[int, int]) -> Iterator[Any]:
        """How each source stands; None at a step at which there is none. `asked`: how many copies each is to have, of
        those that have a queue that says so."""

    def imported(self, queues: Counter[int]) -> Any:
        """Has `source_for`, for `management/metadata/imported_queues.py`. `queues`: how many each source has."""

    def others(self) -> list[str]:
        """All other nodes that are members, or were and are not forgotten."""

    def lives(self, name: str) -> bool:
        """It is a member."""

    def is_isolated(self, name: str) -> bool:
        """It is a member and has no link to a majority of the others."""

    def isolated(self) -> dict[str, str]:
        """Members that are: of each who refuses it and why, and the way out."""

    def without_link(self, name: str) -> list[str]:
        """Members to which this one has no link."""

    def forgotten_starts(self) -> dict[str, tuple[str, int]]:
        """Nodes that were forgotten and ask to be let in: of each a sentence with the way out, and since when."""

    def why_silent(self, name: str) -> str:
        """Why a member may not have answered, as far as that is known."""

    def members_of(self, source: int) -> tuple[str, ...]:
        """The nodes that keep the source."""

    def rows(self, found: Sequence[Any], queues: Mapping[int, int]) -> dict[str, Any]:
        """`node`, `says`, `members`, `sources`, `statistics`. `found`: what came of `source_statuses`; `queues`:
        how many each source has."""


class Face(Protocol):
    """A way in for operators beside the control socket, such as an HTTP API. Its methods are called in this order:
    `bind`, `listen`, `run` any number of times, `end`, `close`; `end` may be left out."""

    @property
    def addresses(self) -> list[str]:
        """As in a URI, once it is bound."""

    def bind(self) -> None:
        """Raises StartupError; then nothing stays open."""

    def listen(self) -> None:
        """The bound ports accept connections from now on. Raises StartupError."""

    async def run(self, parts: BrokerParts) -> None:
        """Until cancelled, or ended."""

    async def end(self) -> None:
        """Nobody is let in any more; what runs is given a short time. When this returns, nothing of it runs."""

    def close(self) -> None:
        """Its ports are free."""
