"""The name of the cluster.

What comes in: the running broker, settings. What goes out: the name that an operator gave it, or one that is its own.
Rules: every face says the same one.
Not here: who gives it (`routes/overview.py`, `amqpd ctl set_cluster_name`).
"""

from __future__ import annotations

from amqpd.config import Settings
from amqpd.management.face import BrokerParts
from amqpd.vocabulary.store_address import parse_store_address

PARAMETER = "cluster_name"
"""the global parameter that has it, as in RabbitMQ"""


def cluster_name(parts: BrokerParts, settings: Settings) -> str:
    """Without a name that somebody gave it: nodes with one store are one cluster, and a node alone has its own."""
    given = parts.on.node.topology.global_parameters.get(("", PARAMETER))
    if given is not None and isinstance(given.value, str) and given.value:
        return given.value
    if settings.cluster_store:
        return parse_store_address(settings.cluster_store).name
    return parts.on.node.identity.name
