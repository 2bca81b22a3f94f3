"""Figures of the remote queues of one node, at both ends, for operators.

What comes in: its edges and leaders, when somebody asks; the time. What goes out: numbers by name.
Rules: 1. Names are those that metrics have: `_total` for counters, units last. 2. Counters never go back while the
node runs.
Not here: connections between nodes (`amqpd/cluster/data_links.py`), single queues.
"""

from __future__ import annotations

from amqpd.remote.edges import RemoteEdges
from amqpd.remote.leaders import RemoteLeaders

UNDECIDED_MS_MAX = 10_000
"""An operation that is not decided for so long, though its session lives, is worth a look: a leader decides within
milliseconds, and one that has lost its majority ends its sessions within a lease."""


def edge_figures(edges: RemoteEdges, now_ms: int) -> dict[str, int | float]:
    """What clients of this node do with queues that other nodes lead."""
    found = list(edges)
    operations = [of.edge.operations for of in found]
    oldest_ms = max([of.undecided_ms(now_ms) for of in found], default=0)
    return {
        "edges": len(found),
        "edges_attached": sum([of.is_attached for of in found]),
        "edge_subscriptions": sum([of.edge.subscription_count for of in found]),
        "edge_operations_undecided": sum([each.last - each.decided for each in operations]),
        "edge_operations_undecided_bytes": sum([each.nbytes for each in operations]),
        "edge_oldest_undecided_seconds": oldest_ms / 1000,
        "edge_operations_resent_total": sum([of.edge.resent for of in found]),
        "edge_claims_refused_total": sum([of.edge.claims_refused for of in found]),
        "edge_differences_total": sum([of.edge.differences for of in found]),
    }


def leader_figures(leaders: RemoteLeaders) -> dict[str, int | float]:
    """What clients of all nodes do with queues that this one leads, through edges."""
    incarnations = [each for leader in leaders for each in leader.incarnations.values()]
    subscribers = [each for incarnation in incarnations for each in incarnation.subscribers.values()]
    return {
        "leader_sessions": sum([each.attached for each in incarnations]),
        "leader_subscriptions": len(subscribers),
        "leader_subscriptions_credit": sum([max(each.messages - each.delivered, 0) for each in subscribers]),
        "leader_messages_held": sum([each.held.count for each in subscribers]),
        "leader_claims_refused_total": leaders.claims_refused,
        "leader_differences_total": leaders.differences,
    }


def stuck_sentences(edges: RemoteEdges, now_ms: int) -> list[str]:
    """Of sources whose leader does not decide what was asked of it, though the session with it lives: one each."""
    return [
        f"Node {of.leader} has not decided for {of.undecided_ms(now_ms) // 1000} s what clients of this node asked of"
        f" its source {of.source}. Operations that wait: {of.edge.operations.last - of.edge.operations.decided}."
        for of in edges
        if of.is_attached and of.undecided_ms(now_ms) >= UNDECIDED_MS_MAX
    ]
