"""RabbitMQ's feature flags, as a broker has them that does what they are about.

What comes in: a flag's name. What goes out: rows of all flags of the version that the management API is of.
Rules: 1. Clients look here for what they need, and refuse to work where it is missing: what amqpd does is enabled.
2. What amqpd does not have (streams) is listed as well: RabbitMQ has these flags on whether or not streams are used,
and clients take their absence for an old broker. 3. Nothing is turned on here: each flag is on from the start.
Not here: settings (`amqpd/config.py`).

Source: rabbit_core_ff.erl, rabbit_mgmt_ff.erl of RabbitMQ 4.2; https://www.rabbitmq.com/docs/feature-flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from amqpd.management.errors import BadArgument

REQUIRED, STABLE = "required", "stable"
DOCS = "https://www.rabbitmq.com/docs/"
ISSUES = "https://github.com/rabbitmq/rabbitmq-server/issues/"


class FeatureFlag(TypedDict):
    """One feature flag, in the fields of RabbitMQ's management API."""

    name: str
    desc: str
    doc_url: str
    state: str
    stability: str
    require_level: str
    experiment_level: str
    callbacks: Sequence[str]
    provided_by: str


def _flag(
    name: str, desc: str, doc_url: str = "", stability: str = REQUIRED, provided_by: str = "rabbit"
) -> FeatureFlag:
    return {
        "name": name,
        "desc": desc,
        "doc_url": doc_url,
        "state": "enabled",
        "stability": stability,
        "require_level": "hard" if stability == REQUIRED else "none",
        "experiment_level": "unsupported",
        "callbacks": [],
        "provided_by": provided_by,
    }


FLAGS: tuple[FeatureFlag, ...] = tuple(
    sorted(
        (
            _flag("classic_mirrored_queue_version", "Versions of mirrored classic queues"),
            _flag("classic_queue_type_delivery_support", "Deliveries of classic queues", ISSUES + "5931"),
            _flag("detailed_queues_endpoint", "GET /api/queues/detailed", "", STABLE, "rabbitmq_management"),
            _flag("direct_exchange_routing_v2", "Routes of direct exchanges, second form"),
            _flag(
                "drop_unroutable_metric", "Dropped messages are counted", "", REQUIRED, "rabbitmq_management_agent"
            ),
            _flag("empty_basic_get_metric", "Empty gets are counted", "", REQUIRED, "rabbitmq_management_agent"),
            _flag("feature_flags_v2", "Feature flags, second form"),
            _flag("implicit_default_bindings", "Bindings to the default exchange are not stored"),
            _flag("khepri_db", "The replicated metadata store", DOCS + "metadata-store", STABLE),
            _flag("listener_records_in_ets", "Listeners are in memory"),
            _flag("maintenance_mode_status", "Nodes can be drained"),
            _flag("message_containers", "Messages of any protocol"),
            _flag("message_containers_deaths_v2", "Cycles of dead letters end", ISSUES + "11159", STABLE),
            _flag("quorum_queue", "Queues of type quorum", DOCS + "quorum-queues"),
            _flag("quorum_queue_non_voters", "New members of a quorum queue catch up first", "", STABLE),
            _flag("rabbit_exchange_type_local_random", "Exchanges of type x-local-random", "", STABLE),
            _flag("rabbitmq_4.0.0", "What 4.0 brought", "", STABLE),
            _flag("rabbitmq_4.1.0", "What 4.1 brought", "", STABLE),
            _flag("rabbitmq_4.2.0", "What 4.2 brought", "", STABLE),
            _flag("restart_streams", "Streams can be started again"),
            _flag("stream_filtering", "Filters of streams"),
            _flag("stream_queue", "Queues of type stream", DOCS + "streams"),
            _flag("stream_sac_coordinator_unblock_group", "Groups of consumers of super streams", ISSUES + "7743"),
            _flag("stream_single_active_consumer", "Single active consumers of streams", DOCS + "streams"),
            _flag("stream_update_config_command", "Policies of streams"),
            _flag("tracking_records_in_ets", "Connections are tracked in memory"),
            _flag("user_limits", "Limits of connections and channels of a user"),
            _flag("virtual_host_metadata", "Descriptions and tags of virtual hosts"),
        ),
        key=lambda flag: flag["name"],
    )
)
ALL = "all"
_NAMES = frozenset(flag["name"] for flag in FLAGS)


def enable(name: str) -> None:
    """Nothing is to be done. Raises BadArgument for a flag that there is none of."""
    if name != ALL and name not in _NAMES:
        raise BadArgument("unsupported")
