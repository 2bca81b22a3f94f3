"""The nodes: what they use and may use, their memory; start of a virtual host, even sharing of queues."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.management.errors import Unavailable
from amqpd_admin import lists, others
from amqpd_admin.answers import bad_request, gone, not_there, reply
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row, of_made
from amqpd_admin.login import Administrator, Monitor, Who
from amqpd_admin.paths import Name
from amqpd_admin.rows import nodes as rows
from amqpd_admin.samples import Asked, SamplesAsked

router = api_router("nodes")


async def facts_of_all(who: Who) -> list[Row]:
    """What the nodes that answer say of themselves, this one first."""
    told = await others.ask(who, "node")
    return [await who.behind.facts.row(), *(row for _, row in told)]


async def facts_of(who: Who, name: str) -> Row | None:
    """None: it does not answer. Raises Refusal for one that is none."""
    if name == who.behind.on.node.identity.name:
        return await who.behind.facts.row()
    if name not in others.names(who):
        raise not_there()
    told = (await others.ask(who, "node")).rows.get(name)
    return told[0] if told else None


async def _answering(who: Who, name: str) -> Row:
    """Raises Unavailable, Refusal."""
    facts = await facts_of(who, name)
    if facts is None:
        raise Unavailable(f"node '{name}' does not answer")
    return facts


@router.get("/nodes")
async def list_all(request: Request, who: Monitor, samples: Asked) -> Response:
    """All of the cluster's, this one first; one that does not answer is not `running`."""
    answering = {facts["name"]: _running(who, facts, samples) for facts in await facts_of_all(who)}
    silent = [rows.silent(name) for name in others.names(who) if name not in answering]
    return await lists.answer(request, of_made([*answering.values(), *silent]))


@router.get("/nodes/{name}")
async def show(request: Request, name: Name, who: Monitor, samples: Asked) -> Response:
    """One node, by its name."""
    facts = await facts_of(who, name)
    return await lists.one(request, rows.silent(name) if facts is None else _running(who, facts, samples))


@router.get("/nodes/{name}/memory")
async def memory(name: Name, who: Monitor) -> Response:
    """All of the process's: amqpd does not tell apart what for."""
    resident = (await _answering(who, name))["resident_bytes"]
    return reply({"memory": {"strategy": "rss", "total": {"rss": resident}}})


@router.get("/nodes/{name}/memory/relative")
async def relative_memory(name: Name, who: Monitor) -> Response:
    """In per cent of all."""
    await _answering(who, name)
    return reply({"memory": {"total": 100}})


@router.post("/vhosts/{vhost}/start/{name}", status_code=204)
async def start_vhost(vhost: Name, name: Name, who: Administrator) -> Response:
    """A virtual host that is there is served: nothing is to be done."""
    who.behind.on.vhost(vhost)
    if name != who.behind.on.node.identity.name and name not in others.names(who):
        raise bad_request(f"Unknown node: {name}")
    return gone()


@router.post("/rebalance/queues", status_code=204)
async def rebalance(who: Administrator) -> Response:
    """On a node alone there is nothing to share."""
    if who.behind.clustered:
        raise Unavailable("a cluster's queues are moved by `amqpd queue` commands")
    return gone()


def _running(who: Who, facts: Row, samples: SamplesAsked) -> Row:
    """With samples of this node: it has none of the others."""
    row = rows.running(facts)
    if facts["name"] == who.behind.on.node.identity.name:
        samples.add(row, rows.SAMPLED, who.behind.samples.of_node, samples.range_of("node_stats"))
    return row
