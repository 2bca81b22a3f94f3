"""What the node takes from the settings: its limits, and what it says of itself to clients.

What comes in: settings. What goes out: values that are in no file as they are.
Not here: reading the settings (`config_sources.py`), what a limit is for (`vocabulary/limits.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amqpd import __version__
from amqpd.config import Settings
from amqpd.process.alarms import limits_from
from amqpd.publishing.transaction import MESSAGE_EXTRA_BYTES
from amqpd.vocabulary.limits import Limits


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
