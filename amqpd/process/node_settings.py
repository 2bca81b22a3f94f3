"""What the node takes from the settings: its name, its limits, and what it says of itself to clients.

What comes in: settings, and the name that the journal keeps from the first start on. What goes out: the settings with
the name that counts; values that are in no file as they are.
Rules: 1. The host's name is no part of who a node is: where the setting `node_name` has none, and only the host's
differs from what is kept, what is kept counts. A container's, or what DHCP gives, may be another one at each start.
2. A node of a cluster is counted by its name: another one is refused, before anything is written. 3. A node alone is
not: it gets the name that is set. 4. What differs is in the log, with what changes it.
Not here: reading the settings (`config_sources.py`), what a limit is for (`vocabulary/limits.py`), what the name is
for (`docs/decisions/node-identity.md`), when it is written (`broker.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from amqpd import __version__
from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.journal.sqlite.schema import INCARNATION
from amqpd.process.alarms import limits_from
from amqpd.publishing.transaction import MESSAGE_EXTRA_BYTES
from amqpd.vocabulary.limits import Limits

NODE_NAME = "node_name"
"""among the journal's names"""

log = structlog.get_logger(component="opening")


def with_node_name(settings: Settings, names: Mapping[str, str], directory: Path) -> Settings:
    """With the name that counts. `names`: the journal's. Raises StartupError."""
    wanted, kept = settings.node_name, names.get(NODE_NAME, "")
    if not kept or kept == wanted:
        return settings
    in_cluster = INCARNATION in names
    if settings.implies_host and _without_host(wanted) == _without_host(kept):
        advice = (
            "in a cluster it stays as long as the data directory does"
            if in_cluster
            else f'set node_name = "{wanted}" for the new one'
        )
        log.warning("the machine's name changed, the node keeps its own", node_name=kept, not_=wanted, advice=advice)
        named = settings.model_copy(update={"node_name": kept})
        if "node_name" not in settings.model_fields_set:
            named.model_fields_set.discard("node_name")
        return named
    if in_cluster:
        raise StartupError(
            f"node_name is {wanted}, and {directory} has the data of the cluster's node {kept}, which is counted by "
            f'that name: set node_name = "{kept}"; or, for a new node {wanted}, start it with an empty data directory'
            " and take the old one out of the cluster (docs/clustering.md, Replace a machine)"
        )
    log.info("the node has another name from now on", node_name=wanted, before=kept)
    return settings


def _without_host(name: str) -> str:
    return name.partition("@")[0]


def limits_of(settings: Settings) -> Limits:
    """Those of the limits that are settings. What clients leave unfinished is a quarter of the memory at most, or one
    message of the largest size: the memory alarm must be able to end though no client finishes."""
    limits = Limits(**{name: getattr(settings, name) for name in Limits.__slots__ if hasattr(settings, name)})
    watermark = limits_from(settings).resident_bytes_max
    most = max(watermark // 4, limits.message_bytes_max + MESSAGE_EXTRA_BYTES)
    return replace(
        limits,
        unfinished_bytes_max=min(limits.unfinished_bytes_max, most),
        outboxes_bytes_max=min(limits.outboxes_bytes_max, watermark // 4),
        vhost_topology_bytes_max=min(limits.vhost_topology_bytes_max, watermark // 2),
    )


def server_properties(settings: Settings) -> Mapping[str, Any]:
    """What connection.start says of us. The capabilities are RabbitMQ's names for what we do."""
    return {
        "product": settings.server_product,
        "version": settings.server_version or __version__,
        "platform": f"Python {platform.python_version()}",
        "information": "an AMQP 0-9-1 broker",
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "consumer_priorities": True,
            "per_consumer_qos": True,
            "direct_reply_to": True,
        },
    }
