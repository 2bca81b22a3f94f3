"""Exchanges: lists, one, declared, deleted, published to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

from fastapi import Request
from starlette.responses import Response

from amqpd.management import bindings, exchanges
from amqpd.management.errors import AtAnotherNode, NotFound
from amqpd.management.figures.inventory import DELAYED, PASSED, added, figures_of_exchange
from amqpd.management.messages import publishing
from amqpd.management.pacing import WalkPace
from amqpd.wire.json_values import to_json
from amqpd_admin import lists, others, walks
from amqpd_admin.answers import bad_request, changed, gone, reply
from amqpd_admin.bodies import body_of, flag, need, table, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import ExchangeName, Name
from amqpd_admin.rows.bindings import Binding, Default, listing
from amqpd_admin.samples import CHECKED

router = api_router("exchanges")
NUMBERS = (*PASSED, *(f"{name}_rate" for name in PASSED))


class Exchange(NamedTuple):
    """The exchange that a request's path names; the default one has no name."""

    vhost: str
    name: str


Elsewhere = Mapping[Exchange, Row]
"""what passes exchanges at the other nodes"""


async def _elsewhere(who: Who, vhost: str | None) -> Elsewhere:
    """Of all virtual hosts, or one; of nodes that do not answer nothing."""
    found: dict[Exchange, Row] = {}
    pace = WalkPace()
    for _, row in await others.ask(who, "exchanges", vhost=vhost):
        await pace.step()
        key = Exchange(row["vhost"], row["name"])
        counts = _told(row)
        found[key] = added(found[key], counts) if key in found else counts
    return found


def _told(row: Row) -> Row:
    """What another node says, as far as these are numbers."""
    found: Row = {}
    if all(isinstance(row.get(name), int | float) for name in NUMBERS):
        found = {name: row[name] for name in NUMBERS}
    if DELAYED in row and isinstance(row[DELAYED], int | None):
        found[DELAYED] = row[DELAYED]
    return found


def _figures(who: Who, exchange: Exchange, elsewhere: Elsewhere) -> Row:
    """In RabbitMQ's fields: without anything published there are no `message_stats`."""
    found = added(figures_of_exchange(who.parts.on.node, *exchange), elsewhere.get(exchange, {}))
    row: Row = {} if found.get(DELAYED) is None else {DELAYED: found[DELAYED]}
    if "publish_in" in found:
        row["message_stats"] = {name: found[name] for name in PASSED} | {
            f"{name}_details": {"rate": found[f"{name}_rate"]} for name in PASSED
        }
    return row


def _row(who: Who, exchange: Exchange, elsewhere: Elsewhere) -> Row | None:
    """None for one that is gone."""
    vhost = who.parts.on.node.topology.vhosts.get(exchange.vhost)
    if vhost is None:
        return None
    figures = _figures(who, exchange, elsewhere)
    if not exchange.name:
        facts = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
        return {"vhost": exchange.vhost, "name": "", "type": "direct", **facts, **figures}
    state = vhost.exchanges.get(exchange.name)
    if state is None:
        return None
    record = state.record
    policy = vhost.policy_of("exchange", record.name, record.type).name
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "internal": record.internal,
        "arguments": to_json(record.arguments),
        **({"policy": policy} if policy else {}),
        **figures,
    }


def _listing(who: Who, vhosts: Iterable[str], elsewhere: Elsewhere) -> Listing[Exchange]:
    return Listing(_all(who, vhosts), Exchange._asdict, lambda each: _row(who, each, elsewhere))


def _all(who: Who, vhosts: Iterable[str]) -> Iterator[Exchange]:
    for name in vhosts:
        vhost = who.parts.on.node.topology.vhosts.get(name)
        if vhost is not None:
            yield from map(Exchange, repeat(name), ["", *vhost.exchanges])


@router.get("/exchanges", dependencies=CHECKED)
async def list_all(request: Request, who: Asking) -> Response:
    """Of all virtual hosts that the user may see."""
    return await lists.answer(request, _listing(who, await walks.seen_vhosts(who), await _elsewhere(who, None)))


@router.get("/exchanges/{vhost}", dependencies=CHECKED)
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Of one virtual host."""
    who.parts.on.vhost(vhost)
    return await lists.answer(request, _listing(who, [vhost], await _elsewhere(who, vhost)))


@router.get("/exchanges/{vhost}/{name}", dependencies=CHECKED)
async def show(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """One exchange; `amq.default` is the default one."""
    _require(who, vhost, name)
    row = _row(who, Exchange(vhost, name), await _elsewhere(who, vhost))
    assert row is not None
    # What comes from which channel and goes to which queue is counted in no broker whose `rates_mode` is basic.
    return await lists.one(request, {"incoming": [], "outgoing": [], **row})


@router.put("/exchanges/{vhost}/{name}", status_code=201)
async def declare(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """`type`, `auto_delete`, `durable`, `internal`, `arguments`."""
    body = await body_of(request)
    new = await exchanges.declare(
        who.parts.on,
        who.operator,
        vhost,
        name,
        text(body, "type", "direct"),
        durable=flag(body, "durable", True),
        auto_delete=flag(body, "auto_delete", False),
        internal=flag(body, "internal", False),
        arguments=table(body, "arguments"),
    )
    return changed(new)


@router.delete("/exchanges/{vhost}/{name}", status_code=204)
async def delete(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """`if-unused=true` keeps one that is bound to something."""
    unused = request.query_params.get("if-unused") == "true"
    await exchanges.delete(who.parts.on, who.operator, vhost, name, if_unused=unused)
    return gone()


@router.post("/exchanges/{vhost}/{name}/publish")
async def publish(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """`routing_key`, `payload`, `payload_encoding`, `properties`; the answer says whether it reached a queue."""
    body = await body_of(request, request.app.state.settings.http.body_bytes_max)
    need(body, "routing_key", "properties", "payload", "payload_encoding")
    payload = publishing.body_of(text(body, "payload"), text(body, "payload_encoding"))
    properties = table(body, "properties")
    routing_key = text(body, "routing_key")
    try:
        routed = await publishing.publish(who.parts.on, who.operator, vhost, name, routing_key, payload, properties)
    except AtAnotherNode:
        raise
    except NotFound as error:
        raise bad_request(f"404 NOT_FOUND - {error}") from error
    return reply({"routed": routed})


@router.get("/exchanges/{vhost}/{name}/bindings/source")
async def list_bindings_from(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """Those that go out from it. One that is not there has none, as in RabbitMQ: tools ask before they delete."""
    held = who.parts.on.vhost(vhost)
    found: Iterator[Binding | None] = map(Default, repeat(vhost), list(held.queues))
    if name:
        found = bindings.walked(held, source=name)
    return await lists.answer(request, listing(who, found))


@router.get("/exchanges/{vhost}/{name}/bindings/destination")
async def list_bindings_to(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """Those that come to it. One that is not there has none."""
    found = bindings.walked(who.parts.on.vhost(vhost), destination=name, destination_type="exchange")
    return await lists.answer(request, listing(who, found))


def _require(who: Who, vhost: str, name: str) -> None:
    """Raises NotFound."""
    if name and name not in who.parts.on.vhost(vhost).exchanges:
        raise NotFound(f"no exchange '{name}' in vhost '{vhost}'")
