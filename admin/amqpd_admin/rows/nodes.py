"""A node in RabbitMQ's fields.

What comes in: what it says of itself; or the name of one that does not. What goes out: a row.
Rules: `alarms` is ours and has all of them: RabbitMQ knows memory and disk only.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/nodes; fields as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqpd.definitions.export import FORMAT_VERSION
from amqpd.management.attention.alarms import of_node
from amqpd.management.figures.totals import CHURN
from amqpd_admin.rows.listeners import contexts, exchange_types

Row = dict[str, Any]

PROCESSES_MAX = 1 << 22
"""of Linux on 64 bits; the node is one of them"""

PLUGINS = (
    *("rabbitmq_consistent_hash_exchange", "rabbitmq_delayed_message_exchange", "rabbitmq_management"),
    *("rabbitmq_management_agent", "rabbitmq_prometheus", "rabbitmq_random_exchange"),
    "rabbitmq_recent_history_exchange",
)
"""RabbitMQ's that amqpd does the work of: clients look here for what they need"""

LOG = "<stderr>"
"""as RabbitMQ writes standard output"""
SAYS = "AMQP 0-9-1 broker"

SAMPLED = ("mem_used", "disk_free", "sockets_used", "context_switches", *CHURN)
MECHANISMS = (("PLAIN", "user and password"), ("AMQPLAIN", "user and password, in a field table"))


def running(facts: Row, linked: Sequence[str] = (), partitions: Sequence[str] = ()) -> Row:
    """Of a row as `amqpd/management/figures/node_facts.py` has it. `linked`: the members that it has a link to;
    `partitions`: those to which it has none."""
    alarms = facts["alarms"]
    return {
        "name": facts["name"],
        "type": "disc",
        "running": True,
        "os_pid": str(facts["pid"]),
        "fd_used": facts["files"],
        "fd_total": facts["files_max"],
        "sockets_used": facts["sockets"],
        "mem_used": facts["resident_bytes"],
        "mem_limit": facts["resident_bytes_max"],
        "mem_calculation_strategy": "rss",
        "mem_alarm": "memory" in alarms,
        "disk_free": facts["disk_free_bytes"],
        "disk_free_limit": facts["disk_free_bytes_min"],
        "disk_free_alarm": "disk" in alarms,
        "alarms": [dict(each) for each in of_node(facts)],
        "context_switches": facts["context_switches"],
        "uptime": round(facts["uptime_s"] * 1000),
        "processors": facts["processors"],
        # Clients of RabbitMQ's API do without no field of Erlang's processes: there is one here. What waits for the
        # processor are tasks in it.
        "proc_used": 1,
        "proc_total": PROCESSES_MAX,
        "run_queue": facts.get("run_queue", 0),
        "rabbitmq_version": FORMAT_VERSION,
        "db_dir": facts["data_dir"],
        "config_files": facts.get("config_files", []),
        "log_files": [LOG],
        "applications": [{"name": "amqpd", "description": SAYS, "version": facts["version"]}],
        **runtime(facts),
        "enabled_plugins": list(PLUGINS),
        "exchange_types": exchange_types(),
        "auth_mechanisms": [{"name": name, "description": said, "enabled": True} for name, said in MECHANISMS],
        "partitions": list(partitions),
        "cluster_links": [{"name": name} for name in linked],
        "contexts": contexts(facts["http"]),
        "being_drained": facts["draining"],
        "rates_mode": "basic",
        **facts["churn"],
        **{f"{name}_details": {"rate": facts["rates"][name]} for name in SAMPLED},
    }


def runtime(facts: Row) -> Row:
    """What it runs on, where RabbitMQ says Erlang; nothing of a node of an earlier version."""
    if "python" not in facts:
        return {}
    version = f"none: Python {facts['python']}"
    return {"erlang_version": version, "erlang_full_version": version, "crypto_lib_version": facts["openssl"]}


def silent(name: str) -> Row:
    """One that is gone, or does not answer."""
    return {"name": name, "type": "disc", "running": False, "partitions": [], "cluster_links": []}
