"""Exchanges: lists, one, declared, deleted, published to."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management import bindings, exchanges, publishing
from amqpd.management.errors import NotFound
from amqpd.topology.exchange_state import ExchangeState
from amqpd.wire.json_values import to_json
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, changed, gone, reply
from amqpd_admin.bodies import body_of, flag, need, table, text
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import ExchangeName, Name
from amqpd_admin.rows.bindings import of_binding, of_default

router = APIRouter(tags=["exchanges"])


def _default(vhost: str) -> Row:
    facts = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    return {"vhost": vhost, "name": "", "type": "direct", **facts}


def _row(who: Who, state: ExchangeState) -> Row:
    record = state.record
    policy = who.behind.on.node.topology.vhosts[record.vhost].policy_of("exchange", record.name, record.type).name
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "internal": record.internal,
        "arguments": to_json(record.arguments),
        **({"policy": policy} if policy else {}),
    }


def _rows(who: Who, vhosts: Iterable[str]) -> list[Row]:
    topology, found = who.behind.on.node.topology, []
    for vhost in vhosts:
        found += [_default(vhost), *(_row(who, each) for each in topology.vhosts[vhost].exchanges.values())]
    return found


@router.get("/exchanges")
async def list_all(request: Request, who: Asking) -> Response:
    """Of all virtual hosts that the user may see."""
    found = _rows(who, [name for name in who.behind.on.node.topology.vhosts if who.sees(name)])
    return await lists.answer(request, Listing(found, dict, dict))


@router.get("/exchanges/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Of one virtual host."""
    who.behind.on.vhost(vhost)
    return await lists.answer(request, Listing(_rows(who, [vhost]), dict, dict))


@router.get("/exchanges/{vhost}/{name}")
async def show(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """One exchange; `amq.default` is the default one."""
    _require(who, vhost, name)
    state = who.behind.on.vhost(vhost).exchanges.get(name)
    return await lists.one(request, _default(vhost) if state is None else _row(who, state))


@router.put("/exchanges/{vhost}/{name}", status_code=201)
async def declare(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """`type`, `auto_delete`, `durable`, `internal`, `arguments`."""
    body = await body_of(request)
    new = await exchanges.declare(
        who.behind.on,
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
    await exchanges.delete(who.behind.on, who.operator, vhost, name, if_unused=unused)
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
        routed = await publishing.publish(who.behind.on, who.operator, vhost, name, routing_key, payload, properties)
    except NotFound as error:
        raise bad_request(f"404 NOT_FOUND - {error}") from error
    return reply({"routed": routed})


@router.get("/exchanges/{vhost}/{name}/bindings/source")
async def list_bindings_from(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """Those that go out from it."""
    _require(who, vhost, name)
    on = who.behind.on
    if name:
        found = list(map(of_binding, bindings.listed(on, vhost, source=name)))
    else:
        found = [of_default(vhost, queue) for queue in on.vhost(vhost).queues]
    return await lists.answer(request, Listing(found, dict, dict))


@router.get("/exchanges/{vhost}/{name}/bindings/destination")
async def list_bindings_to(request: Request, vhost: Name, name: ExchangeName, who: Entering) -> Response:
    """Those that come to it."""
    _require(who, vhost, name)
    rows = bindings.listed(who.behind.on, vhost, destination=name, destination_type="exchange")
    return await lists.answer(request, Listing(list(map(of_binding, rows)), dict, dict))


def _require(who: Who, vhost: str, name: str) -> None:
    """Raises NotFound."""
    if name and name not in who.behind.on.vhost(vhost).exchanges:
        raise NotFound(f"no exchange '{name}' in vhost '{vhost}'")
