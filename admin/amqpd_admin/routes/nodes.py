"""The nodes: what they use and may use, their memory; start of a virtual host, even sharing of queues."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.management.attention.alarms import facts_of_all
from amqpd.management.errors import Unavailable
from amqpd.management.face import ClusterState
from amqpd.management.figures.memory import NAMES, UNUSED, memory_of
from amqpd_admin import lists, others
from amqpd_admin.answers import bad_request, gone, not_there, reply
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row, of_made
from amqpd_admin.login import Administrator, Monitor, Who
from amqpd_admin.paths import Name
from amqpd_admin.rows import nodes as rows
from amqpd_admin.samples import Asked, SamplesAsked

router = api_router("nodes")


async def facts_of(who: Who, name: str) -> Row | None:
    """None: it does not answer. Raises Refusal for one that is none."""
    if name == who.parts.on.node.identity.name:
        return await who.parts.facts.row()
    if name not in others.names(who):
        raise not_there()
    told = (await others.ask(who, "node")).rows.get(name)
    return told[0] if told else None


@router.get("/nodes")
async def list_all(request: Request, who: Monitor, samples: Asked) -> Response:
    """All of the cluster's, this one first; one that does not answer is not `running`."""
    answering = {facts["name"]: _running(who, facts, samples) for facts in await facts_of_all(who.parts)}
    silent = [rows.silent(name) for name in others.names(who) if name not in answering]
    return await lists.answer(request, of_made([*answering.values(), *silent]))


@router.get("/nodes/{name}")
async def show(request: Request, name: Name, who: Monitor, samples: Asked) -> Response:
    """One node, by its name; with `memory=true` what its memory is used for, too."""
    facts = await facts_of(who, name)
    row = rows.silent(name) if facts is None else _running(who, facts, samples)
    if facts is not None and request.query_params.get("memory") == "true":
        row["memory"] = _absolute(await _memory_of(who, name))
    return await lists.one(request, row)


async def _memory_of(who: Who, name: str) -> dict[str, int]:
    """Bytes by RabbitMQ's names. Raises Unavailable, Refusal."""
    if name == who.parts.on.node.identity.name:
        return await memory_of(who.parts.on.node)
    if name not in others.names(who):
        raise not_there()
    told = (await others.ask(who, "memory")).rows.get(name)
    if not told:
        raise Unavailable(f"node '{name}' does not answer")
    return {each: told[0].get(each, 0) for each in NAMES}


@router.get("/nodes/{name}/memory")
async def memory(name: Name, who: Monitor) -> Response:
    """What it is used for; the figures add up to `total.rss`."""
    return reply({"memory": _absolute(await _memory_of(who, name))})


def _absolute(found: dict[str, int]) -> Row:
    resident = sum(found.values())
    total = {"erlang": resident - found[UNUSED], "rss": resident, "allocated": resident}
    return {**found, "strategy": "rss", "total": total}


@router.get("/nodes/{name}/memory/relative")
async def relative_memory(name: Name, who: Monitor) -> Response:
    """In per cent of all, rounded; what is not 0 is 1 at least, as in RabbitMQ."""
    found = await _memory_of(who, name)
    resident = max(1, sum(found.values()))
    shares = {each: round(100 * nbytes / resident) or int(nbytes > 0) for each, nbytes in found.items()}
    return reply({"memory": {"total": 100, **shares}})


@router.post("/vhosts/{vhost}/start/{name}", status_code=204)
async def start_vhost(vhost: Name, name: Name, who: Administrator) -> Response:
    """A virtual host that is there is served: nothing is to be done."""
    who.parts.on.vhost(vhost)
    if name != who.parts.on.node.identity.name and name not in others.names(who):
        raise bad_request(f"Unknown node: {name}")
    return gone()


@router.post("/rebalance/queues", status_code=204)
async def rebalance(who: Administrator) -> Response:
    """On a node alone there is nothing to share."""
    if who.parts.clustered:
        raise Unavailable("in a cluster leaders are shared out with `amqpd quorum rebalance`")
    return gone()


def _running(who: Who, facts: Row, samples: SamplesAsked) -> Row:
    """With samples of this node: it has none of the others."""
    view, name = who.parts.cluster() if who.parts.cluster is not None else None, facts["name"]
    partitions = view.without_link(name) if view is not None else []
    others_of = {*others.names(who), who.parts.on.node.identity.name} - {name}
    linked = [each for each in sorted(others_of - set(partitions)) if view is not None and _lives(who, view, each)]
    row = rows.running(facts, linked, partitions)
    if facts["name"] == who.parts.on.node.identity.name:
        samples.add(row, rows.SAMPLED, who.parts.samples.of_node, samples.range_of("node_stats"))
    return row


def _lives(who: Who, view: ClusterState, name: str) -> bool:
    return name == who.parts.on.node.identity.name or view.lives(name)
