"""The node at a glance, and who asks."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd import __version__
from amqpd.definitions.export import FORMAT_VERSION
from amqpd.management.pacing import Pace, each
from amqpd_admin import walks
from amqpd_admin.answers import reply
from amqpd_admin.lists import Row
from amqpd_admin.login import Asking, Who
from amqpd_admin.rows.churn import CHURN, churn
from amqpd_admin.rows.listeners import contexts, exchange_types, listeners
from amqpd_admin.samples import LENGTHS, MESSAGE_RATES, RETENTION, Asked

router = APIRouter(tags=["overview"])

# Whose API this is: tools compare it, and look for what a release brought.
RABBITMQ_VERSION = FORMAT_VERSION
RATES = {"publish": "accepted", "deliver_get": "delivered", "redeliver": "redelivered", "ack": "acked"}


@router.get("/overview")
async def overview(request: Request, who: Asking, samples: Asked) -> Response:
    """Versions, totals and rates; listeners and samples, for who monitors. Others have the totals of what they may
    see."""
    node, settings = who.behind.on.node, request.app.state.settings
    vhosts = await walks.seen_vhosts(who)
    sums = await _sums(who, vhosts)
    messages, stats = _messages(sums)
    row = {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": settings.server_version or RABBITMQ_VERSION,
        "product_name": "amqpd",
        "product_version": __version__,
        "erlang_version": f"none: Python {platform.python_version()}",
        "rates_mode": "basic",
        "sample_retention_policies": RETENTION,
        "exchange_types": exchange_types(),
        "cluster_name": node.identity.name,
        "disable_stats": False,
        "enable_queue_totals": False,
        "queue_totals": messages,
        "message_stats": stats,
        "object_totals": await _objects(who, vhosts, sums),
    }
    if who.monitors:
        row["churn_rates"] = came_and_went = churn(node)
        lengths, series = samples.range_of("lengths"), who.behind.samples.of_node
        for named, names, wanted in (
            (messages, LENGTHS, lengths),
            (stats, MESSAGE_RATES, samples.range_of("msg_rates")),
            (came_and_went, CHURN, lengths),
        ):
            samples.add(named, names, series, wanted)
        row |= {
            "node": node.identity.name,
            "listeners": listeners(node.identity.name, who.behind.addresses, request.app.state.addresses),
            "contexts": contexts(request.app.state.addresses, node.identity.name),
        }
    return reply(row)


async def _objects(who: Who, vhosts: list[str], sums: Counter[str]) -> Row:
    """What is counted anyway is not counted again. Of connections, channels and consumers a user who does not monitor
    has its own."""
    node, pace, exchanges = who.behind.on.node, Pace(), 0
    for name in vhosts:
        await pace.step()
        vhost = node.topology.vhosts.get(name)
        exchanges += 0 if vhost is None else 1 + len(vhost.exchanges)
    if who.monitors:
        clients = {
            "channels": node.census.channels,
            "connections": len(node.connections),
            "consumers": sums["consumers"],
        }
    else:
        mine = await each(walks.consumers(node, lambda connection: connection.user == who.user), lambda found: found)
        clients = {
            "channels": node.census.channels_by_user[who.user],
            "connections": node.census.connections_by_user[who.user],
            "consumers": len(mine),
        }
    return {**clients, "exchanges": exchanges, "queues": sums["queues"]}


async def _sums(who: Who, vhosts: list[str]) -> Counter[str]:
    """Over all queues in these."""
    node = who.behind.on.node
    counts: Counter[str] = Counter()
    pace = Pace()
    for queue in walks.queues(node, vhosts):
        await pace.step()
        if queue is None:
            continue
        said = queue.statistics(node.now_ms)
        counts["queues"] += 1
        counts["consumers"] += said.consumers
        counts["messages_ready"] += said.ready
        counts["messages_unacknowledged"] += said.unacked
        for name, ours in RATES.items():
            counts[name] += said.totals[ours]
            counts[f"{name} rate"] += said.rates[ours]  # type: ignore[assignment]
        counts["publish"] -= said.totals["recovered"]
        counts["messages rate"] += said.rates["accepted"] - said.rates["left"]  # type: ignore[assignment]
    if who.monitors:
        # Of all virtual hosts: what has been counted does not become less when a queue is deleted.
        for gone in node.totals.of_queues.values():
            counts["publish"] += gone.accepted - gone.recovered
            counts["deliver_get"] += gone.delivered
            counts["redeliver"] += gone.redelivered
            counts["ack"] += gone.acked_by_clients + gone.auto_acked + gone.got_auto_acked
    return counts


def _messages(counts: Counter[str]) -> tuple[Row, Row]:
    """Messages; message statistics."""
    messages = {name: counts[name] for name in ("messages_ready", "messages_unacknowledged")}
    stats: Row = {}
    for name in RATES:
        stats |= {name: counts[name], f"{name}_details": {"rate": round(counts[f"{name} rate"], 1)}}
    details = {"rate": round(counts["messages rate"], 1)}
    return {"messages": sum(messages.values()), "messages_details": details, **messages}, stats


@router.get("/whoami")
async def whoami(who: Asking) -> dict[str, Any]:
    """The user of this request, and its tags."""
    return {"name": who.user, "tags": list(who.tags), "is_internal_user": True}


@router.get("/extensions")
async def extensions(who: Asking) -> list[Any]:
    """Of the web pages of RabbitMQ: none."""
    return []


@router.get("/version")
async def version(who: Asking) -> str:
    """amqpd's own, as `product_version` of the overview."""
    return __version__


@router.get("/cluster-name")
async def cluster_name(who: Asking) -> dict[str, str]:
    """What `overview` says, too."""
    return {"name": who.behind.on.node.identity.name}
