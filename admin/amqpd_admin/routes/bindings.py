"""Bindings: lists, made, removed."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from amqpd.management import bindings
from amqpd.management.errors import NotFound, Refused
from amqpd.vocabulary.records import DestinationType
from amqpd_admin import lists
from amqpd_admin.answers import gone, reply
from amqpd_admin.bodies import body_of, table, text
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import ExchangeName, Name, decoded
from amqpd_admin.rows.bindings import of_binding, of_default

router = APIRouter(tags=["bindings"])
Kind = Annotated[Literal["q", "e"], Path(description="q for a queue, e for an exchange")]
KINDS: dict[str, DestinationType] = {"q": "queue", "e": "exchange"}
BETWEEN = "/bindings/{vhost}/e/{source}/{kind}/{destination}"


def _rows(who: Who, vhost: str) -> list[Row]:
    on = who.behind.on
    return [
        *(of_default(vhost, queue) for queue in on.vhost(vhost).queues),
        *map(of_binding, bindings.listed(on, vhost)),
    ]


def _between(who: Who, vhost: str, source: str, kind: str, destination: str) -> list[Row]:
    on, type_name = who.behind.on, KINDS[kind]
    if not source:
        return [of_default(vhost, destination)] if kind == "q" and destination in on.vhost(vhost).queues else []
    found = bindings.listed(on, vhost, source=source, destination=destination, destination_type=type_name)
    return list(map(of_binding, found))


@router.get("/bindings")
async def list_all(request: Request, who: Asking) -> Response:
    """Of all virtual hosts that the user may see."""
    vhosts = [name for name in who.behind.on.node.topology.vhosts if who.sees(name)]
    found = [row for vhost in vhosts for row in _rows(who, vhost)]
    return await lists.answer(request, Listing(found, dict, dict))


@router.get("/bindings/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Of one virtual host."""
    return await lists.answer(request, Listing(_rows(who, vhost), dict, dict))


@router.get(BETWEEN)
async def list_between(
    request: Request, vhost: Name, source: ExchangeName, kind: Kind, destination: Name, who: Entering
) -> Response:
    """Those from an exchange to a queue, or another exchange."""
    return await lists.answer(request, Listing(_between(who, vhost, source, kind, destination), dict, dict))


@router.post(BETWEEN, status_code=201)
async def bind(
    request: Request, vhost: Name, source: ExchangeName, kind: Kind, destination: Name, who: Entering
) -> Response:
    """`routing_key`, `arguments`. `Location` names the binding."""
    body = await body_of(request)
    bound = await bindings.bind(
        who.behind.on,
        who.operator,
        vhost,
        source,
        destination,
        KINDS[kind],
        text(body, "routing_key", ""),
        table(body, "arguments"),
    )
    # As a reference from the request's own path; the key is a part of a path, so it is encoded once more.
    last, key = request.url.path.rpartition("/")[2], quote(bound["properties_key"], safe="~")
    return Response(status_code=201, headers={"location": f"{last}/{key}"})


@router.get(BETWEEN + "/{key}")
async def show(vhost: Name, source: ExchangeName, kind: Kind, destination: Name, key: str, who: Entering) -> Response:
    """One binding."""
    row = _named(_between(who, vhost, source, kind, destination), key)
    return reply(row)


@router.delete(BETWEEN + "/{key}", status_code=204)
async def unbind(
    vhost: Name, source: ExchangeName, kind: Kind, destination: Name, key: str, who: Entering
) -> Response:
    """One binding goes."""
    if not source:
        raise Refused("Access refused.")
    row = _named(_between(who, vhost, source, kind, destination), key)
    on, properties_key = who.behind.on, row["properties_key"]
    await bindings.unbind(on, who.operator, vhost, source, destination, KINDS[kind], properties_key)
    return gone()


def _named(rows: list[Row], key: str) -> Row:
    """By its key, encoded as a part of a path or as it stands in a row. Raises NotFound."""
    wanted = decoded(decoded(key))
    for row in rows:
        if wanted in (decoded(row["properties_key"]), row["properties_key"]):
            return row
    raise NotFound("Not Found")
