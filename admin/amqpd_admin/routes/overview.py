"""The cluster at a glance, and who asks."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd import __version__
from amqpd.definitions.export import FORMAT_VERSION
from amqpd.management.figures.totals import CHURN, RATES
from amqpd.management.pacing import Pace
from amqpd_admin import others
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row
from amqpd_admin.login import Asking, Who
from amqpd_admin.routes.nodes import facts_of_all
from amqpd_admin.rows.listeners import contexts, exchange_types, listeners
from amqpd_admin.samples import LENGTHS, MESSAGE_RATES, RETENTION, Asked, SamplesAsked
from amqpd_admin.walks import seen_vhosts

router = api_router("overview")

# Whose API this is: tools compare it, and look for what a release brought.
RABBITMQ_VERSION = FORMAT_VERSION


@router.get("/overview")
async def overview(request: Request, who: Asking, samples: Asked) -> Response:
    """Versions, totals and rates; listeners and samples, for who monitors. Others have the totals of what they may
    see."""
    node, settings = who.behind.on.node, request.app.state.settings
    vhosts = await seen_vhosts(who)
    by_vhost, told = await others.sums_of_queues(who, vhosts)
    clients, of_clients = await others.sums_of_clients(who)
    counts, pace = Counter[str](), Pace()
    for each in by_vhost.values():
        await pace.step()
        counts.update(each)
    nodes = await facts_of_all(who) if who.monitors else []
    for facts in nodes:
        counts.update(facts["gone_queues"])
    messages, stats = _messages(counts)
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
        "object_totals": await _objects(who, vhosts, counts, clients),
    }
    if missing := others.missing(who, told, of_clients):
        row["nodes_missing"] = missing
    if who.monitors:
        came_and_went = _came_and_went(nodes)
        _add_rates_and_samples(who, samples, nodes, messages, stats, came_and_went)
        row |= {
            "churn_rates": came_and_went,
            "node": node.identity.name,
            "listeners": [row for each in nodes for row in listeners(each["name"], each["amqp"], each["http"])],
            "contexts": [row for each in nodes for row in contexts(each["http"], each["name"])],
        }
    return reply(row)


def _came_and_went(nodes: list[Row]) -> Row:
    counts: Counter[str] = Counter()
    for each in nodes:
        counts.update(each["churn"])
    return dict(counts)


def _add_rates_and_samples(
    who: Who, samples: SamplesAsked, nodes: list[Row], messages: Row, stats: Row, came_and_went: Row
) -> None:
    """Rates are those of all nodes together. There are samples where there is no other node: each has its own only,
    and a chart would go on with numbers of another size."""
    rates: Counter[str] = Counter()
    for each in nodes:
        rates.update(each["rates"])
    alone, lengths, series = not others.names(who), samples.range_of("lengths"), who.behind.samples.of_node
    for named, names, wanted in (
        (messages, LENGTHS, lengths),
        (stats, MESSAGE_RATES, samples.range_of("msg_rates")),
        (came_and_went, CHURN, lengths),
    ):
        for name in names:
            named.setdefault(f"{name}_details", {"rate": round(rates[name], 1)})
        if alone:
            samples.add(named, names, series, wanted)


async def _objects(who: Who, vhosts: list[str], counts: Counter[str], clients: Counter[str]) -> Row:
    """Of connections, channels and consumers a user who does not monitor has its own."""
    node, pace, exchanges = who.behind.on.node, Pace(), 0
    for name in vhosts:
        await pace.step()
        vhost = node.topology.vhosts.get(name)
        exchanges += 0 if vhost is None else 1 + len(vhost.exchanges)
    consumers = counts["consumers"] if who.monitors else clients["consumers"]
    return {
        "channels": clients["channels"],
        "connections": clients["connections"],
        "consumers": consumers,
        "exchanges": exchanges,
        "queues": counts["queues"],
    }


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
