"""A node in RabbitMQ's fields.

What comes in: what it says of itself; or the name of one that does not. What goes out: a row.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/nodes; fields as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

from typing import Any

from amqpd.management.figures.totals import CHURN
from amqpd_admin.rows.listeners import contexts, exchange_types

Row = dict[str, Any]

SAMPLED = ("mem_used", "disk_free", "sockets_used", "context_switches", *CHURN)
MECHANISMS = (("PLAIN", "user and password"), ("AMQPLAIN", "user and password, in a field table"))


def running(facts: Row) -> Row:
    """Of a row as `amqpd/management/figures/node_facts.py` has it."""
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
        "context_switches": facts["context_switches"],
        "uptime": round(facts["uptime_s"] * 1000),
        "processors": facts["processors"],
        "db_dir": facts["data_dir"],
        "config_files": [],
        "enabled_plugins": [],
        "exchange_types": exchange_types(),
        "auth_mechanisms": [{"name": name, "description": said, "enabled": True} for name, said in MECHANISMS],
        "partitions": [],
        "cluster_links": [],
        "contexts": contexts(facts["http"]),
        "being_drained": facts["draining"],
        "rates_mode": "basic",
        **facts["churn"],
        **{f"{name}_details": {"rate": facts["rates"][name]} for name in SAMPLED},
    }


def silent(name: str) -> Row:
    """One that is gone, or does not answer."""
    return {"name": name, "type": "disc", "running": False, "partitions": [], "cluster_links": []}
