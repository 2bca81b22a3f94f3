"""Writes our Grafana dashboards: `python scripts/grafana.py` puts them into docs/grafana/.

What comes in: the tables below, a line for each panel. What goes out: dashboards as Grafana imports them.
Rules: 1. The files are made here and never by hand; a test compares them, and each metric with those that are served
(`tests/admin/test_dashboards.py`). 2. The data source and the instances are variables: nothing names a machine.
Not here: RabbitMQ's own dashboards, which work as they are.

Source: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "grafana"
WIDTH, HEIGHT = 24, 8
SCHEMA = 39
"""of Grafana 10 and later"""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = '{instance=~"$instance"}'


class Panel(NamedTuple):
    """`lines`: legend -> query. In these `%s` stands for the instances that were chosen."""

    title: str
    unit: str
    lines: Mapping[str, str]
    says: str = ""
    width: int = 8
    kind: str = "timeseries"


def rate(metric: str) -> str:
    return f"sum by (instance) (rate({metric}%s[$__rate_interval]))"


def rate_by(label: str, metric: str) -> str:
    return f"sum by ({label}) (rate({metric}%s[$__rate_interval]))"


def number(title: str, query: str, unit: str = "short") -> Panel:
    return Panel(title, unit, {"": query}, width=4, kind="stat")


def quantile(part: float) -> str:
    return f"histogram_quantile({part}, sum by (le) (rate(amqpd_time_in_queue_seconds_bucket%s[$__rate_interval])))"


OVERVIEW = {
    "Now": [
        number("Ready", "sum(rabbitmq_queue_messages_ready%s)"),
        number("Unacknowledged", "sum(rabbitmq_queue_messages_unacked%s)"),
        number("Oldest message", "max(amqpd_oldest_message_age_seconds%s)", "s"),
        number("Connections", "sum(rabbitmq_connections%s)"),
        number("Consumers", "sum(rabbitmq_consumers%s)"),
        number("Alarms", "sum(amqpd_alarm%s)"),
    ],
    "Messages": [
        Panel("Published", "ops", {"{{instance}}": rate("rabbitmq_global_messages_received_total")}),
        Panel("Delivered", "ops", {"{{instance}}": rate("rabbitmq_global_messages_delivered_total")}),
        Panel("Acknowledged", "ops", {"{{instance}}": rate("rabbitmq_global_messages_acknowledged_total")}),
        Panel(
            "In queues",
            "short",
            {
                "ready {{instance}}": "rabbitmq_queue_messages_ready%s",
                "unacknowledged {{instance}}": "rabbitmq_queue_messages_unacked%s",
            },
        ),
        Panel(
            "Time in queue",
            "s",
            {"half": quantile(0.5), "95 %": quantile(0.95), "99 %": quantile(0.99)},
            "Until a message was delivered for the first time or again.",
        ),
        Panel("Left queues", "ops", {"{{reason}}": rate_by("reason", "amqpd_messages_left_total")}),
    ],
    "Not as it should be": [
        Panel(
            "Lost on the way",
            "ops",
            {
                "refused by full queues": "sum(rate(amqpd_messages_refused_total%s[$__rate_interval]))",
                "{{outcome}}": rate_by("outcome", "amqpd_messages_unroutable_total"),
                "dead-lettered": "sum(rate(amqpd_messages_dead_lettered_total%s[$__rate_interval]))",
            },
        ),
        Panel(
            "Out of order",
            "short",
            {
                "queues out of service": "sum(amqpd_queues_out_of_service%s)",
                "queues with damage": "sum(amqpd_queues_fenced%s)",
                "damaged rows": "sum(amqpd_scrub_damaged_rows%s)",
                "messages without a queue": "sum(amqpd_messages_orphaned%s)",
            },
            "All of this is nothing where all is well.",
        ),
        Panel("Bugs", "short", {"{{reach}}": "sum by (reach) (increase(amqpd_faults_total%s[$__range]))"}),
    ],
    "The machine": [
        Panel(
            "Memory",
            "bytes",
            {
                "{{instance}}": "rabbitmq_process_resident_memory_bytes%s",
                "alarm {{instance}}": "rabbitmq_resident_memory_limit_bytes%s",
                "messages {{instance}}": "amqpd_message_bytes_in_memory%s",
            },
        ),
        Panel(
            "Free on the disk",
            "bytes",
            {
                "{{instance}}": "rabbitmq_disk_space_available_bytes%s",
                "alarm {{instance}}": "rabbitmq_disk_space_available_limit_bytes%s",
            },
        ),
        Panel(
            "Waits for the disk",
            "bytes",
            {"{{instance}}": "amqpd_journal_gathered_bytes%s"},
            "Bodies that wait for the next transaction.",
        ),
        Panel(
            "Traffic",
            "Bps",
            {
                "in {{instance}}": "rate(rabbitmq_connection_incoming_bytes_total%s[$__rate_interval])",
                "out {{instance}}": "rate(rabbitmq_connection_outgoing_bytes_total%s[$__rate_interval])",
            },
        ),
        Panel(
            "Connections opened",
            "ops",
            {"{{instance}}": rate("rabbitmq_connections_opened_total")},
            "A client that connects for each message shows here.",
        ),
        Panel(
            "Open files",
            "short",
            {
                "{{instance}}": "rabbitmq_process_open_fds%s",
                "most {{instance}}": "rabbitmq_process_max_fds%s",
            },
        ),
    ],
}

CLUSTER = {
    "Copies": [
        Panel(
            "Sources",
            "short",
            {
                "leaders {{instance}}": "amqpd_cluster_sources_led%s",
                "served {{instance}}": "amqpd_cluster_sources_served%s",
                "copies {{instance}}": "amqpd_cluster_sources_copied%s",
            },
        ),
        Panel(
            "With too few copies",
            "short",
            {"{{instance}}": "amqpd_cluster_sources_under_replicated%s"},
            "One machine more that is lost may stop them.",
        ),
        Panel(
            "Without a majority",
            "short",
            {"{{instance}}": "amqpd_cluster_sources_without_majority%s"},
            "Nothing is confirmed of them.",
        ),
    ],
    "How far behind": [
        Panel("Bytes behind", "bytes", {"{{instance}} to {{peer}}": "amqpd_cluster_peer_lag_bytes%s"}, width=12),
        Panel(
            "Sources behind", "short", {"{{instance}} to {{peer}}": "amqpd_cluster_peer_sources_behind%s"}, width=12
        ),
    ],
    "What happens": [
        Panel("Whole states under way", "short", {"{{instance}}": "amqpd_cluster_transfers_under_way%s"}),
        Panel("Whole states sent", "short", {"{{instance}}": rate("amqpd_cluster_transfers_done_total")}),
        Panel("Sent again", "Bps", {"{{instance}}": rate("amqpd_cluster_resent_bytes_total")}),
    ],
}


def dashboard(uid: str, title: str, rows: Mapping[str, Sequence[Panel]]) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for head, found in rows.items():
        panels.append(_placed(len(panels), {"type": "row", "title": head, "collapsed": False}, 0, y, WIDTH, 1))
        y, x = y + 1, 0
        height = HEIGHT // 2 if found[0].kind == "stat" else HEIGHT
        for panel in found:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            panels.append(_placed(len(panels), _drawn(panel), x, y, panel.width, height))
            x += panel.width
        y += height
    return {
        "uid": uid,
        "title": title,
        "tags": ["amqpd"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _placed(number: int, panel: dict[str, Any], x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number + 1, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _drawn(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query % HERE, "legendFormat": legend or "__auto"}
        for at, (legend, query) in enumerate(panel.lines.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Node",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": "label_values(amqpd_kernel_info, instance)", "refId": "instances"},
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]


def files() -> dict[str, str]:
    """By their names."""
    boards = (
        dashboard("amqpd-overview", "amqpd: overview", OVERVIEW),
        dashboard("amqpd-cluster", "amqpd: cluster", CLUSTER),
    )
    return {f"{board['uid']}.json": json.dumps(board, indent=1) + "\n" for board in boards}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
