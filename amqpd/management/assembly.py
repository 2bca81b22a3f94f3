"""All that operators can ask of a running broker's components.

What comes in: the node, the reader of the journal, what components answer themselves (backup, scrub, audit log). What
goes out: commands; the running broker as a face knows it, and what the other nodes of a cluster may ask of it.
Not here: the commands (`control/commands.py`), ways in (`control/socket.py`, `face.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from amqpd.journal.writer import BacklogReader
from amqpd.management.across_nodes.answers import PeerAnswers
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.across_nodes.rows import PeerRows, Peers
from amqpd.management.control import commands as control_commands
from amqpd.management.control import declaration_commands
from amqpd.management.control.answers import Commands, Handler, Stream
from amqpd.management.damage.damaged_rows import DamagedRows
from amqpd.management.damage.orphan_operations import OrphanOperations
from amqpd.management.face import BrokerParts, ClusterState
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.queue_names import QueueNames
from amqpd.management.figures.sampling import Sampler
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.metadata.live import LiveMetadata
from amqpd.management.running import Running
from amqpd.security.authentication.logins import Logins
from amqpd.topology.metadata.store import MetadataStore
from amqpd.topology.metadata.sync import TopologySync


def all_commands(
    on: Running,
    reader: BacklogReader,
    data_dir: Path,
    handlers: Mapping[str, Handler],
    streams: Mapping[str, Stream],
    cluster: ClusterPlace | None,
    peers: PeerRows | None,
) -> Commands:
    """`handlers` and `streams` are those of the broker's other components, by the commands' names."""
    node, run_effects = on.node, on.run_effects

    def leaders() -> Leaders:
        return Leaders(node.identity.name, node.sources, None if cluster is None else cluster.view(), peers)

    return Commands(
        {
            **control_commands.handlers(on),
            **declaration_commands.led_handlers(on, leaders),
            **control_commands.client_handlers(on, leaders),
            **handlers,
        },
        control_commands.listings(on),
        {
            **declaration_commands.led_streams(on, leaders),
            **control_commands.client_streams(on, leaders),
            **control_commands.message_streams(MessageOperations(node, reader, run_effects)),
            **control_commands.damage_streams(DamagedRows(node, reader, run_effects, data_dir)),
            **control_commands.orphan_streams(OrphanOperations(node, reader, run_effects)),
            **streams,
        },
    )


class PeerQueries(Peers, Protocol):
    """The way of operators' questions to the other nodes, and from them."""

    answer: Callable[[str], Awaitable[str]]


class ClusterPlace(Protocol):
    """This node's place in a cluster."""

    @property
    def queries(self) -> PeerQueries: ...

    def view(self) -> ClusterState: ...


def peer_rows(cluster: ClusterPlace | None) -> PeerRows | None:
    """What the other nodes say; None: there are none."""
    return None if cluster is None else PeerRows(cluster.queries, lambda: cluster.view().others())


def behind_of(
    on: Running,
    reader: BacklogReader,
    store: MetadataStore,
    sync: TopologySync,
    logins: Logins,
    figures: Callable[[], dict[str, Any]],
    addresses: Sequence[tuple[str, int, bool]],
    facts: NodeFacts,
    sampler: Sampler,
    commands: Commands,
    cluster: ClusterPlace | None,
    peers: PeerRows | None,
) -> BrokerParts:
    """From now on other nodes are answered."""
    if cluster is not None:
        cluster.queries.answer = PeerAnswers(on, facts, sampler.watch).answer
    messages = MessageOperations(on.node, reader, on.run_effects)
    view = None if cluster is None else cluster.view
    metadata = LiveMetadata(on, store, sync)
    parts = (on, metadata, logins, on.node.access, figures, view, addresses, messages, commands)
    return BrokerParts(*parts, sampler, facts, QueueNames(on.node.topology), peers)
