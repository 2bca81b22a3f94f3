"""Bindings: lists, made, removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Path, Request
from starlette.responses import Response

from amqpd.management import bindings
from amqpd.management.errors import NotFound, NotPermitted
from amqpd.management.pacing import WalkPace
from amqpd.vocabulary.records import DestinationType
from amqpd_admin import lists, walks
from amqpd_admin.answers import gone, reply
from amqpd_admin.bodies import body_of, table, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import ExchangeName, Name
from amqpd_admin.rows.bindings import Binding, Default, listing, names, row_of

router = api_router("bindings")
Kind = Annotated[Literal["q", "e"], Path(description="q for a queue, e for an exchange")]
KINDS: dict[str, DestinationType] = {"q": "queue", "e": "exchange"}
BETWEEN = "/bindings/{vhost}/e/{source}/{kind}/{destination}"


def _all(who: Who, vhosts: Iterable[str]) -> Iterator[Binding | None]:
    """Those to the default exchange first."""
    for name in vhosts:
        vhost = who.parts.on.node.topology.vhosts.get(name)
        if vhost is not None:
            yield from map(Default, repeat(name), list(vhost.queues))
            yield from bindings.walked(vhost)


def _between(who: Who, vhost: str, source: str, kind: str, destination: str) -> Iterator[Binding | None]:
    held = who.parts.on.vhost(vhost)
    if source:
        return bindings.walked(held, source=source, destination=destination, destination_type=KINDS[kind])
    return iter([Default(vhost, destination)] if kind == "q" and destination in held.queues else [])


@router.get("/bindings")
async def list_all(request: Request, who: Asking) -> Response:
    """Of all virtual hosts that the user may see."""
    return await lists.answer(request, listing(who, _all(who, await walks.seen_vhosts(who))))


@router.get("/bindings/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Of one virtual host."""
    who.parts.on.vhost(vhost)
    return await lists.answer(request, listing(who, _all(who, [vhost])))


@router.get(BETWEEN)
async def list_between(
    request: Request, vhost: Name, source: ExchangeName, kind: Kind, destination: Name, who: Entering
) -> Response:
    """Those from an exchange to a queue, or another exchange."""
    return await lists.answer(request, listing(who, _between(who, vhost, source, kind, destination)))


@router.post(BETWEEN, status_code=201)
async def bind(
    request: Request, vhost: Name, source: ExchangeName, kind: Kind, destination: Name, who: Entering
) -> Response:
    """`routing_key`, `arguments`. `Location` names the binding."""
    body = await body_of(request)
    bound = await bindings.bind(
        who.parts.on,
        who.operator,
        vhost,
        source,
        destination,
        KINDS[kind],
        text(body, "routing_key", ""),
        table(body, "arguments"),
    )
    # As a reference from the request's own path, which may end with a slash; the key is a part of a path, so it is
    # encoded once more.
    last, key = request.scope["raw_path"].decode("ascii").rpartition("/")[2], quote(bound["properties_key"], safe="~")
    return Response(status_code=201, headers={"location": f"{last}/{key}" if last else key})


@router.get(BETWEEN + "/{key}")
async def show(
    vhost: Name, source: ExchangeName, kind: Kind, destination: Name, key: Name, who: Entering
) -> Response:
    """One binding."""
    return reply(await _named(who, _between(who, vhost, source, kind, destination), key))


@router.delete(BETWEEN + "/{key}", status_code=204)
async def unbind(
    vhost: Name, source: ExchangeName, kind: Kind, destination: Name, key: Name, who: Entering
) -> Response:
    """One binding goes."""
    if not source:
        raise NotPermitted("Access refused.")
    row = await _named(who, _between(who, vhost, source, kind, destination), key)
    on, properties_key = who.parts.on, row["properties_key"]
    await bindings.unbind(on, who.operator, vhost, source, destination, KINDS[kind], properties_key)
    return gone()


async def _named(who: Who, found: Iterator[Binding | None], key: str) -> Row:
    """By its `properties_key`. Raises NotFound."""
    pace = WalkPace()
    for each in found:
        await pace.step()
        if each is not None and names(each, key):
            row = row_of(who, each)
            if row is not None:
                return row
    raise NotFound("Not Found")
