"""Connections, their channels and consumers: lists, one, closed.

A user sees its own; who monitors sees all, and an administrator may close them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import trio
from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management import connections, inventory
from amqpd.management.errors import NotFound
from amqpd_admin import lists
from amqpd_admin.answers import gone, reply
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import Name
from amqpd_admin.rows import connections as rows
from amqpd_admin.rows.queues import consumer

router = APIRouter(tags=["connections"])


def _connections(who: Who, vhost: str | None = None, user: str | None = None) -> Iterator[Row]:
    on, now_ms = who.behind.on, round(time.time() * 1000)
    for row in inventory.connections(on.node, {"vhost": vhost, "user": user}, trio.current_time()):
        if who.monitors or row["user"] == who.user:
            yield rows.connection(row, now_ms, on.node.identity.name)


def _channels(who: Who, vhost: str | None = None, connection: str | None = None) -> Iterator[Row]:
    node = who.behind.on.node
    for row in inventory.channels(node, {"vhost": vhost}):
        if (who.monitors or row["user"] == who.user) and connection in (None, row["connection"]):
            yield rows.channel(row, node.identity.name)


def _consumers(who: Who, vhosts: Iterable[str]) -> Iterator[Row]:
    for vhost in vhosts:
        node = who.behind.on.node
        yield from (consumer(node, each) for each in inventory.consumers(node, {"vhost": vhost}))


async def _list(request: Request, found: Iterable[Row]) -> Response:
    return await lists.answer(request, Listing(found, dict, dict))


def _one(who: Who, name: str, *, to_close: bool = False) -> Row:
    """Raises NotFound, Refusal."""
    on = who.behind.on
    for row in inventory.connections(on.node, {}, trio.current_time()):
        if row["name"] == name:
            allowed = who.administers if to_close else who.monitors
            who.require(allowed or row["user"] == who.user, "User not authorised to access object")
            return rows.connection(row, round(time.time() * 1000), on.node.identity.name)
    raise NotFound("Object Not Found")


@router.get("/connections")
async def list_all(request: Request, who: Asking) -> Response:
    """All, or one's own."""
    return await _list(request, _connections(who))


@router.get("/connections/username/{user}")
async def list_of_user(request: Request, user: Name, who: Asking) -> Response:
    """Those of a user."""
    return await _list(request, _connections(who, user=user))


@router.delete("/connections/username/{user}", status_code=204)
async def close_of_user(request: Request, user: Name, who: Asking) -> Response:
    """All of a user's are closed."""
    who.require(who.administers or user == who.user, "User not authorised to access object")
    await connections.close(who.behind.on, who.operator, user=user, reason=_reason(request))
    return gone()


@router.get("/connections/{name}")
async def show(request: Request, name: Name, who: Asking) -> Response:
    """One connection, by its name."""
    return await lists.one(request, _one(who, name))


@router.delete("/connections/{name}", status_code=204)
async def close(request: Request, name: Name, who: Asking) -> Response:
    """It is closed; its client is told the header `X-Reason`."""
    _one(who, name, to_close=True)
    await connections.close(who.behind.on, who.operator, which=name, reason=_reason(request))
    return gone()


@router.get("/connections/{name}/channels")
async def list_channels_of(request: Request, name: Name, who: Asking) -> Response:
    """The channels of one."""
    _one(who, name)
    return await _list(request, _channels(who, connection=name))


@router.get("/vhosts/{vhost}/connections")
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.behind.on.vhost(vhost)
    return await _list(request, _connections(who, vhost))


@router.get("/channels")
async def list_channels(request: Request, who: Asking) -> Response:
    """All, or those of one's own connections."""
    return await _list(request, _channels(who))


@router.get("/vhosts/{vhost}/channels")
async def list_channels_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.behind.on.vhost(vhost)
    return await _list(request, _channels(who, vhost))


@router.get("/channels/{name}")
async def show_channel(name: Name, who: Asking) -> Response:
    """One channel, by its name, with its consumers."""
    node = who.behind.on.node
    for row in inventory.channels(node, {}):
        found = rows.channel(row, node.identity.name)
        if found["name"] == name:
            who.require(who.monitors or row["user"] == who.user, "User not authorised to access object")
            mine = (each for each in inventory.consumers(node, {"vhost": row["vhost"]}))
            found["consumer_details"] = [
                consumer(node, each)
                for each in mine
                if (each["connection"], each["channel"]) == (row["connection"], row["number"])
            ]
            return reply(found)
    raise NotFound("Object Not Found")


@router.get("/consumers")
async def list_consumers(request: Request, who: Asking) -> Response:
    """In all virtual hosts that the user may see."""
    return await _list(request, _consumers(who, [n for n in who.behind.on.node.topology.vhosts if who.sees(n)]))


@router.get("/consumers/{vhost}")
async def list_consumers_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """In one virtual host."""
    who.behind.on.vhost(vhost)
    return await _list(request, _consumers(who, [vhost]))


def _reason(request: Request) -> str:
    return request.headers.get("x-reason") or "Closed via management plugin"
