"""Permissions, and topic permissions: lists, set, cleared. For administrators."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.management.errors import NotFound
from amqpd.management.metadata import permissions
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, changed, gone
from amqpd_admin.bodies import body_of, need, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import of_made
from amqpd_admin.login import Administrator, Who
from amqpd_admin.paths import ExchangeName, Name

router = api_router("permissions")
ONE, TOPIC = "/permissions/{vhost}/{user}", "/topic-permissions/{vhost}/{user}"


def _require(who: Who, vhost: str, user: str) -> None:
    """Both are there. Raises NotFound."""
    topology = who.parts.on.node.topology
    if vhost not in topology.vhost_records or user not in topology.users:
        raise NotFound("Object Not Found")


def _require_to_change(who: Who, vhost: str, user: str) -> None:
    """As `_require`, with RabbitMQ's other answer. Raises Refusal."""
    topology = who.parts.on.node.topology
    if vhost not in topology.vhost_records or user not in topology.users:
        raise bad_request("vhost_or_user_not_found")


@router.get("/permissions")
async def list_all(request: Request, who: Administrator) -> Response:
    """Of all users."""
    found: list[Any] = await permissions.listed(who.parts.metadata)
    return await lists.answer(request, of_made(found))


@router.get(ONE)
async def show(request: Request, vhost: Name, user: Name, who: Administrator) -> Response:
    """Of a user in a virtual host."""
    _require(who, vhost, user)
    found = await permissions.listed(who.parts.metadata, vhost, user)
    if not found:
        raise NotFound("Object Not Found")
    return await lists.one(request, dict(found[0]))


@router.put(ONE, status_code=201)
async def put(request: Request, vhost: Name, user: Name, who: Administrator) -> Response:
    """`configure`, `write` and `read`: regular expressions for names."""
    _require_to_change(who, vhost, user)
    body = await body_of(request)
    need(body, "configure", "write", "read")
    new = (vhost, user) not in who.parts.on.node.topology.permissions
    said = (text(body, "configure"), text(body, "write"), text(body, "read"))
    await permissions.put(who.parts.metadata, vhost, user, *said)
    return changed(new)


@router.delete(ONE, status_code=204)
async def clear(vhost: Name, user: Name, who: Administrator) -> Response:
    """The user may not enter any more."""
    _require(who, vhost, user)
    await permissions.clear(who.parts.metadata, vhost, user)
    return gone()


@router.get("/topic-permissions")
async def list_topics(request: Request, who: Administrator) -> Response:
    """Of all users."""
    found: list[Any] = await permissions.listed_topics(who.parts.metadata)
    return await lists.answer(request, of_made(found))


@router.get(TOPIC)
@router.get(TOPIC + "/{exchange}")
async def show_topics(request: Request, vhost: Name, user: Name, who: Administrator) -> Response:
    """Of a user in a virtual host, for each exchange: for all of them, as in RabbitMQ, also where one is named."""
    _require(who, vhost, user)
    found: list[Any] = await permissions.listed_topics(who.parts.metadata, vhost, user)
    if not found:
        raise NotFound("Object Not Found")
    return await lists.answer(request, of_made(found))


@router.put(TOPIC, status_code=201)
@router.put(TOPIC + "/{exchange}", status_code=201)
async def put_topic(request: Request, vhost: Name, user: Name, who: Administrator) -> Response:
    """`exchange`, the body's in any case; `write` and `read`: regular expressions for routing keys."""
    _require_to_change(who, vhost, user)
    body = await body_of(request)
    need(body, "exchange", "write", "read")
    exchange = text(body, "exchange")
    held = who.parts.on.node.topology.topic_permissions.get((vhost, user), {})
    new = not held
    await permissions.put_topic(who.parts.metadata, vhost, user, exchange, text(body, "write"), text(body, "read"))
    return changed(new)


@router.delete(TOPIC, status_code=204)
async def clear_topics(vhost: Name, user: Name, who: Administrator) -> Response:
    """On all exchanges."""
    _require(who, vhost, user)
    await permissions.clear_topic(who.parts.metadata, vhost, user)
    return gone()


@router.delete(TOPIC + "/{exchange}", status_code=204)
async def clear_topic(vhost: Name, user: Name, exchange: ExchangeName, who: Administrator) -> Response:
    """On one exchange."""
    _require(who, vhost, user)
    await permissions.clear_topic(who.parts.metadata, vhost, user, exchange)
    return gone()
