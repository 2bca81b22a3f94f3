"""Everything that needs attention in the cluster, gathered for somebody who asks one of its nodes.

What comes in: the running broker, for whom. What goes out: sentences; which nodes did not answer.
Rules: 1. A user who does not monitor is told of the virtual hosts that it may enter, of its own connections, and
which alarms are on; not of nodes. 2. Where something is asked of the other nodes, many who look share it
(`across_nodes/rows.py`). 3. Without other nodes nothing is asked.
Not here: sentences (`needs.py`), this node's facts (`watch.py`).
"""

from __future__ import annotations

from typing import Any

from amqpd.declarations.locating import wanted_of
from amqpd.management.alarms import kinds
from amqpd.management.attention import alarms, directories
from amqpd.management.attention.facts import MORE, WEIGHED_BY, fact_of
from amqpd.management.attention.needs import ClusterFacts, GatheredFacts, Need, needs
from amqpd.management.attention.watch import entered_by
from amqpd.management.face import BrokerParts, ClusterState
from amqpd.management.pacing import WalkPace, each


async def needs_of(parts: BrokerParts, user: str | None = None) -> list[Need]:
    """For who monitors, or for a user who does not."""
    here, peers = parts.on.node.identity.name, parts.peers
    facts = [(here, fact) for fact in await parts.samples.watch.facts(user, entered_by(parts.access, user))]
    silent: set[str] = set()
    if peers is not None:
        found = await peers.rows("attention", user=user)
        known = {*WEIGHED_BY, MORE}
        facts += [(node, fact_of(row)) for node, row in found if row["kind"] in known]
        silent = found.missing
    nodes = await alarms.facts_of_all(parts)
    seen = [alarm for row in nodes for alarm in alarms.of_node(row)]
    if user is not None:
        seen = [{**alarm, "says": "", "blocked": 0} for alarm in seen]
        return needs(GatheredFacts(parts.clustered, seen, facts))
    cluster = None if parts.cluster is None else await _cluster(parts, parts.cluster(), silent)
    not_in_use = [directory for row in nodes for directory in directories.of_node(row)]
    return needs(GatheredFacts(parts.clustered, seen, facts, cluster, not_in_use))


async def status_of(parts: BrokerParts, joined: bool) -> dict[str, Any]:
    """For `amqpd status`: `alarms` are names, of this node; what the other nodes have is in the rest. `joined`: there
    are other nodes to be asked, or this node is alone."""
    found: dict[str, Any] = {"alarms": kinds(parts.on), "alarms_of_nodes": [], "needs_attention": []}
    if joined:
        found["needs_attention"] = await needs_of(parts)
        found["alarms_of_nodes"] = await alarms.in_cluster(parts)
    return found


async def _cluster(parts: BrokerParts, view: ClusterState, silent: set[str]) -> ClusterFacts:
    found = await each(view.source_statuses({}), lambda status: status)
    if any(standing.under_replicated for standing in found):
        # Queues may ask for fewer copies than is usual, which only a walk over all of them can say.
        found = await each(view.source_statuses(await _copies_asked_for(parts)), lambda status: status)
    stopped = [standing for standing in found if not standing.has_majority]
    fewer = [standing for standing in found if standing.has_majority and _lacks_a_copy(standing)]
    queues = parts.on.node.sources.queues
    silent_living = sorted(name for name in silent if view.lives(name))
    told = parts.figures().get("cluster", {})
    return ClusterFacts(
        away=[name for name in view.others() if not view.lives(name)],
        classic=parts.on.node.registry.other_nodes(),
        stopped=len(stopped),
        stopped_queues=sum(queues[standing.source] for standing in stopped),
        fewer=len(fewer),
        fewer_queues=sum(queues[standing.source] for standing in fewer),
        silent=silent_living,
        why_silent={name: view.why_silent(name) for name in silent_living},
        isolated=view.isolated(),
        unreadable=told.get("unreadable", ()),
        store_silent=bool(told.get("store_silent")),
        store_replaced=next(iter(told.get("store_replaced", ())), ""),
        forgotten=view.forgotten_starts(),
    )


def _lacks_a_copy(standing: Any) -> bool:
    return bool(standing.under_replicated or len(standing.living) < len(standing.members))


async def _copies_asked_for(parts: BrokerParts) -> dict[int, int]:
    """By source, where each queue of it asks for a number."""
    pace, asked = WalkPace(), dict[int, int]()
    for vhost in list(parts.on.node.topology.vhosts.values()):
        for record in list(vhost.queues.values()):
            await pace.step()
            if record.source:
                copies = wanted_of(record, {}).copies
                # As many as is usual, for one that does not ask: 0 stands for that here.
                before = asked.get(record.source, copies)
                asked[record.source] = max(copies | 1, before) if copies and before else 0
    return {source: copies for source, copies in asked.items() if copies}
