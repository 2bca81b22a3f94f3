"""The cluster at a glance, and who asks."""

from __future__ import annotations

import platform
import ssl
from collections import Counter
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd import __version__
from amqpd.definitions.export import FORMAT_VERSION
from amqpd.management.attention.alarms import facts_of_all
from amqpd.management.figures.totals import CHURN, RATES
from amqpd.management.metadata import parameters
from amqpd.management.pacing import WalkPace
from amqpd_admin import lists, others
from amqpd_admin.answers import bad_request, gone
from amqpd_admin.bodies import body_of, text
from amqpd_admin.cluster_name import PARAMETER, cluster_name
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row
from amqpd_admin.login import Administrator, Asking, Who
from amqpd_admin.routes.alarms import rows_for
from amqpd_admin.rows.listeners import contexts, exchange_types, listeners
from amqpd_admin.rows.nodes import runtime
from amqpd_admin.samples import LENGTHS, RETENTION, Asked, SamplesAsked
from amqpd_admin.walks import seen_vhosts

router = api_router("overview")

STATISTICS = {"message_stats", "queue_totals", "churn_rates", "listeners", "contexts", "statistics_db_event_queue"}
"""what is left out with `disable_stats`"""

# Whose API this is: tools compare it, and look for what a release brought.
RABBITMQ_VERSION = FORMAT_VERSION


@router.get("/overview")
async def overview(request: Request, who: Asking, samples: Asked) -> Response:
    """Versions, totals and rates; listeners and samples, for who monitors. Others have the totals of what they may
    see."""
    node, settings = who.parts.on.node, request.app.state.settings
    without = request.query_params.get("disable_stats") == "true"
    vhosts = await seen_vhosts(who)
    by_vhost, told = await others.sums_of_queues(who, vhosts)
    clients, of_clients = await others.sums_of_clients(who)
    counts, pace = Counter[str](), WalkPace()
    for each in by_vhost.values():
        await pace.step()
        counts.update(each)
    nodes = await facts_of_all(who.parts) if who.monitors else []
    for facts in nodes:
        counts.update(facts["gone_queues"])
    messages, stats = _messages(counts)
    row = {
        "management_version": RABBITMQ_VERSION,
        "rabbitmq_version": settings.server_version or RABBITMQ_VERSION,
        "product_name": "amqpd",
        "product_version": __version__,
        "rates_mode": "basic",
        "sample_retention_policies": RETENTION,
        "exchange_types": exchange_types(),
        "cluster_name": cluster_name(who.parts, settings),
        "cluster_tags": _tags(who),
        # There is no setting for them.
        "node_tags": {},
        "default_queue_type": "classic",
        "is_op_policy_updating_enabled": True,
        "disable_stats": without,
        "enable_queue_totals": request.query_params.get("enable_queue_totals") == "true",
        # Nothing waits to be counted: what is asked for is looked at then.
        "statistics_db_event_queue": 0,
        **runtime({"python": platform.python_version(), "openssl": ssl.OPENSSL_VERSION}),
        "queue_totals": messages,
        "message_stats": stats,
        "object_totals": await _objects(who, vhosts, counts, clients),
    }
    row["alarms"] = await rows_for(who)
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
    return await lists.one(request, {name: row[name] for name in row.keys() - STATISTICS} if without else row)


def _tags(who: Who) -> Row:
    """Of the cluster: the global parameter `cluster_tags`, as in RabbitMQ."""
    given = who.parts.on.node.topology.global_parameters.get(("", "cluster_tags"))
    return dict(given.value) if given is not None and isinstance(given.value, dict) else {}


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
    alone, lengths, series = not others.names(who), samples.range_of("lengths"), who.parts.samples.of_node
    for named, names, wanted in (
        (messages, LENGTHS, lengths),
        (stats, RATES, samples.range_of("msg_rates")),
        (came_and_went, CHURN, lengths),
    ):
        for name in names:
            named.setdefault(f"{name}_details", {"rate": round(rates[name], 1)})
        if alone:
            samples.add(named, names, series, wanted)


async def _objects(who: Who, vhosts: list[str], counts: Counter[str], clients: Counter[str]) -> Row:
    """Of connections, channels and consumers a user who does not monitor has its own."""
    node, pace, exchanges = who.parts.on.node, WalkPace(), 0
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
async def whoami(request: Request, who: Asking) -> Response:
    """The user of this request, and its tags."""
    return await lists.one(request, {"name": who.user, "tags": list(who.tags), "is_internal_user": True})


@router.get("/extensions")
async def extensions(who: Asking) -> list[Any]:
    """Scripts of the pages under /js, of which RabbitMQ's plugins have one each: here it is one for all."""
    return [{"javascript": "main.js"}]


@router.get("/version")
async def version(who: Asking) -> str:
    """amqpd's own, as `product_version` of the overview."""
    return __version__


@router.get("/cluster-name")
async def show_cluster_name(request: Request, who: Asking) -> Response:
    """What `overview` says, too."""
    return await lists.one(request, {"name": cluster_name(who.parts, request.app.state.settings)})


@router.put("/cluster-name", status_code=204)
async def put_cluster_name(request: Request, who: Administrator) -> Response:
    """`name`: for people. It is the global parameter `cluster_name`, with which it goes."""
    name = text(await body_of(request), "name")
    if not name:
        raise bad_request("a cluster needs a name that is not empty: delete the global parameter cluster_name")
    await parameters.put_global(who.parts.metadata, PARAMETER, name)
    return gone()
