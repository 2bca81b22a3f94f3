"""A sample for each exchange and each virtual host.

What comes in: the node, which groups of families are wanted, which virtual hosts. What goes out: families.
Rules: of what is published to an exchange amqpd counts what reached no queue, and nothing else.
Not here: which endpoint has which (`endpoints.py`).

Source: prometheus_rabbitmq_core_metrics_collector.erl of RabbitMQ (groups and names).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from amqpd.node.node import Node
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd_admin.metrics.families import COUNTER, GAUGE, Family, Part, Row

UNROUTABLE, VHOSTS, NAMES, BINDINGS = "exchange_metrics", "vhost_status", "exchange_names", "exchange_bindings"
CLUSTER = "rabbitmq_cluster_"
LABELS = ("vhost", "exchange", "type")
OUTCOMES = (
    (UnroutableOutcome.RETURNED, "exchange_messages_unroutable_returned", "Mandatory messages that reached no queue"),
    (
        UnroutableOutcome.DROPPED,
        "exchange_messages_unroutable_dropped",
        "Messages that reached no queue, and nobody was told",
    ),
)


def each_of_them(node: Node, groups: Sequence[str], wanted: Callable[[str], bool], prefix: str) -> Iterator[Part]:
    """`wanted` is asked with a virtual host."""
    if UNROUTABLE in groups:
        for outcome, name, says in OUTCOMES:
            yield Family(prefix + name, COUNTER, says, ("vhost", "exchange")), _unroutable(node, wanted, outcome)
    if VHOSTS in groups:
        rows: list[Row] = [((vhost,), 1) for vhost in node.topology.vhosts if wanted(vhost)]
        yield Family(f"{CLUSTER}vhost_status", GAUGE, "1 for each virtual host", ("vhost",)), rows
    if NAMES in groups:
        yield Family(f"{CLUSTER}exchange_name", GAUGE, "1 for each exchange", LABELS), _named(node, wanted)
    if BINDINGS in groups:
        yield Family(f"{CLUSTER}exchange_bindings", GAUGE, "Bindings from the exchange", LABELS), _bound(node, wanted)


def _exchanges(node: Node, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """Virtual host, name and type. Others may come and go between them."""
    for vhost, contents in list(node.topology.vhosts.items()):
        for state in list(contents.exchanges.values()) if wanted(vhost) else ():
            if not state.record.internal:
                yield vhost, state.record.name, state.record.type


def _unroutable(node: Node, wanted: Callable[[str], bool], outcome: UnroutableOutcome) -> Iterator[Row]:
    for vhost in list(node.topology.vhosts):
        if wanted(vhost):
            yield (vhost, ""), node.unroutable.of_exchange(vhost, "")[outcome]
    for vhost, name, _ in _exchanges(node, wanted):
        yield (vhost, name), node.unroutable.of_exchange(vhost, name)[outcome]


def _named(node: Node, wanted: Callable[[str], bool]) -> Iterator[Row]:
    for labels in _exchanges(node, wanted):
        yield labels, 1


def _bound(node: Node, wanted: Callable[[str], bool]) -> Iterator[Row]:
    for labels in _exchanges(node, wanted):
        contents = node.topology.vhosts.get(labels[0])
        if contents is not None:
            yield labels, len(contents.bindings_from(labels[1]))
