"""The name that a data directory keeps from its first start on.

What comes in: the setting `node_name`, and the name that the journal keeps. What goes out: the settings with the name
that counts; what is to be kept.
Rules: 1. The host's name is no part of who a node is: where the setting has none, and only the host's differs from
what is kept, what is kept counts. A container's, or what DHCP gives, may be another one at each start. 2. A node of a
cluster is counted by its name: another one is refused, before anything is written. 3. A node alone is not: it
gets the name that is set. 4. What differs is in the log, with what changes it.
Not here: what the name is for (`docs/decisions/node-identity.md`), when it is written (`broker.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.journal.sqlite.schema import INCARNATION

NODE_NAME = "node_name"
"""among the journal's names"""

log = structlog.get_logger(component="opening")


def settled(settings: Settings, names: Mapping[str, str], directory: Path) -> Settings:
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
