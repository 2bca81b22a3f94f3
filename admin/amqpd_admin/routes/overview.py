"""The node at a glance, and who asks."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

import psutil
import trio
from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd import __version__
from amqpd.definitions.export import FORMAT_VERSION
from amqpd.exchanges import EXCHANGE_TYPES
from amqpd.management import inventory
from amqpd.management.errors import NotFound
from amqpd_admin import lists
from amqpd_admin.answers import reply
from amqpd_admin.lists import SLICE, Listing, Row
from amqpd_admin.login import Asking, Monitor, Who
from amqpd_admin.paths import Name

router = APIRouter(tags=["overview"])

# Whose API this is: tools compare it, and look for what a release brought.
RABBITMQ_VERSION = FORMAT_VERSION
RATES = {"publish": "accepted", "deliver_get": "delivered", "redeliver": "redelivered", "ack": "acked"}


@router.get("/overview")
async def overview(request: Request, who: Asking) -> Response:
    """Versions, totals and rates, listeners."""
    node, settings = who.behind.on.node, request.app.state.settings
    vhosts = {name for name in node.topology.vhosts if who.sees(name)}
    messages, stats = await _totals(who, vhosts)
    facts = who.behind.status()
    row = {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": settings.server_version or RABBITMQ_VERSION,
        "product_name": "amqpd",
        "product_version": __version__,
        "erlang_version": f"none: Python {platform.python_version()}",
        "rates_mode": "basic",
        "exchange_types": [{"name": name, "description": "", "enabled": True} for name in sorted(EXCHANGE_TYPES)],
        "cluster_name": node.identity.name,
        "node": node.identity.name,
        "disable_stats": False,
        "enable_queue_totals": False,
        "queue_totals": messages,
        "message_stats": stats,
        "object_totals": {
            "channels": facts["channels"],
            "connections": facts["connections"],
            "consumers": sum(1 for name in vhosts for _ in inventory.consumers(node, {"vhost": name})),
            "exchanges": sum(
                1 + len(each.exchanges) for name, each in node.topology.vhosts.items() if name in vhosts
            ),
            "queues": sum(1 for each in node.ports.ports() if each.record.vhost in vhosts),
        },
        "listeners": [_listener(node.identity.name, *each) for each in who.behind.addresses],
        "contexts": [],
    }
    return reply(row)


async def _totals(who: Who, vhosts: set[str]) -> tuple[Row, Row]:
    """Of all queues in these: messages; message statistics."""
    node = who.behind.on.node
    counts: Counter[str] = Counter()
    for at, queue in enumerate(list(node.ports.ports()), 1):
        if queue.record.vhost in vhosts and not queue.deleted:
            said = queue.statistics(node.now_ms)
            counts["messages_ready"] += said.ready
            counts["messages_unacknowledged"] += said.unacked
            for name, ours in RATES.items():
                counts[name] += said.totals[ours]
                counts[f"{name} rate"] += said.rates[ours]  # type: ignore[assignment]
            counts["publish"] -= said.totals["recovered"]
        if at % SLICE == 0:
            await trio.lowlevel.checkpoint()
    messages = {name: counts[name] for name in ("messages_ready", "messages_unacknowledged")}
    stats: Row = {}
    for name in RATES:
        stats |= {name: counts[name], f"{name}_details": {"rate": round(counts[f"{name} rate"], 1)}}
    return {"messages": sum(messages.values()), **messages}, stats


def _listener(node: str, host: str, port: int, tls: bool) -> Row:
    return {"node": node, "protocol": "amqp/ssl" if tls else "amqp", "ip_address": host, "port": port}


@router.get("/whoami")
async def whoami(who: Asking) -> dict[str, Any]:
    """The user of this request, and its tags."""
    return {"name": who.user, "tags": list(who.tags), "is_internal_user": True}


@router.get("/extensions")
async def extensions(who: Asking) -> list[Any]:
    """Of the web pages of RabbitMQ: none."""
    return []


@router.get("/cluster-name")
async def cluster_name(who: Asking) -> dict[str, str]:
    """What `overview` says, too."""
    return {"name": who.behind.on.node.identity.name}


@router.get("/nodes")
async def nodes(request: Request, who: Monitor) -> Response:
    """This one."""
    return await lists.answer(request, Listing([_node(request, who)], dict, dict))


@router.get("/nodes/{name}")
async def show_node(request: Request, name: Name, who: Monitor) -> Response:
    """One node, by its name."""
    if name != who.behind.on.node.identity.name:
        raise NotFound("Object Not Found")
    return reply(_node(request, who))


def _node(request: Request, who: Who) -> Row:
    node, facts = who.behind.on.node, who.behind.status()
    process = psutil.Process()
    return {
        "name": node.identity.name,
        "type": "disc",
        "running": True,
        "os_pid": str(process.pid),
        "fd_used": process.num_fds(),
        "mem_used": process.memory_info().rss,
        "mem_alarm": "memory" in facts["alarms"],
        "disk_free_alarm": "disk" in facts["alarms"],
        "uptime": round((trio.current_time() - request.app.state.began) * 1000),
        "processors": psutil.cpu_count() or 1,
        "net_ticktime": 0,
        "db_dir": str(request.app.state.settings.data_dir),
        "config_files": [],
        "enabled_plugins": [],
        "partitions": [],
        "being_drained": node.draining,
        "rates_mode": "basic",
    }
