"""The node itself: what it is, its process, its memory and disk, its alarms.

What comes in: the running broker, its settings. What goes out: families of one sample each.
Rules: what RabbitMQ says of Erlang is left out, except how long the node has been up, which has its name from there.
Not here: messages (`messages.py`), what only amqpd has (`ours.py`).
"""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from importlib.metadata import version

import psutil

from amqpd import __version__
from amqpd.config import Settings
from amqpd.definitions.export import FORMAT_VERSION
from amqpd.flow.alarms import NOT_CURRENT
from amqpd.management.alarms import kinds as alarm_kinds
from amqpd.management.face import BrokerParts
from amqpd_admin.cluster_name import cluster_name
from amqpd_admin.metrics.families import GAUGE, UNTYPED, Family, Part, one

ALARMS = {"disk": "free_disk_space_watermark", "memory": "memory_used_watermark"}
"""a kind of alarm: what RabbitMQ calls it"""


def identity(parts: BrokerParts, settings: Settings, endpoint: str) -> Iterator[Part]:
    """Of every endpoint: dashboards join by it."""
    build = {
        "product_name": "amqpd",
        "product_version": __version__,
        "rabbitmq_version": settings.server_version or FORMAT_VERSION,
        "erlang_version": f"none: Python {platform.python_version()}",
        "prometheus_client_version": version("prometheus-client"),
        "prometheus_plugin_version": __version__,
    }
    node = parts.on.node.identity
    who = {
        "rabbitmq_node": node.name,
        "rabbitmq_cluster": cluster_name(parts, settings),
        "rabbitmq_cluster_permanent_id": node.id,
        "rabbitmq_endpoint": endpoint,
    }
    for name, says, labels in (
        ("rabbitmq_build_info", "What runs, and whose metrics it has", build),
        ("rabbitmq_identity_info", "The node and its cluster", who),
    ):
        yield Family(name, UNTYPED, says, tuple(labels)), [(tuple(labels.values()), 1)]


def process(parts: BrokerParts, uptime_s: float) -> Iterator[Part]:
    """Costs some system calls."""
    this, figures = psutil.Process(), parts.figures()
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    gauges = (
        ("process_open_fds", "File descriptors that are open", this.num_fds()),
        ("process_max_fds", "File descriptors that may be open", descriptors),
        ("process_resident_memory_bytes", "Memory of the process", this.memory_info().rss),
        ("resident_memory_limit_bytes", "Memory with which the alarm begins", figures["resident_bytes_max"]),
        ("disk_space_available_bytes", "Free space of the data directory", figures["disk_free_bytes"]),
        (
            "disk_space_available_limit_bytes",
            "Free space with which the alarm begins",
            figures["disk_free_bytes_min"],
        ),
        ("erlang_uptime_seconds", "How long the node has been up", round(uptime_s, 3)),
    )
    for name, says, value in gauges:
        yield one(f"rabbitmq_{name}", GAUGE, says, value)


def alarms(parts: BrokerParts) -> Iterator[Part]:
    """1 for one that is on."""
    kinds = alarm_kinds(parts.on)
    for kind, name in ALARMS.items():
        yield one(f"rabbitmq_alarms_{name}", UNTYPED, f"1 while the {kind} alarm is on", int(kind in kinds))
    known = sorted({*ALARMS, "audit", *kinds})
    family = Family("amqpd_alarm", GAUGE, "1 while the alarm is on, those of operators included", ("kind",))
    yield family, [((kind,), int(kind in kinds)) for kind in known]
    waits = int(NOT_CURRENT in parts.on.node.alarms.kinds)
    yield one(
        "amqpd_not_current", GAUGE, "1 while publishers wait until all bindings of the cluster are known", waits
    )
