"""Virtual hosts: lists, one, made, deleted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management import overview, permissions, vhosts
from amqpd.management.errors import AlreadyExists, NotFound
from amqpd_admin import lists
from amqpd_admin.answers import changed, gone, reply
from amqpd_admin.bodies import body_of, flag, text
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Administrator, Asking, Who
from amqpd_admin.paths import Name

router = APIRouter(tags=["vhosts"])


def _row(who: Who, name: str) -> Row:
    node = who.behind.on.node
    record = node.topology.vhost_records[name]
    (facts,) = overview.vhosts(node, {"vhost": name})
    ready, unacked = facts["messages_ready"], facts["messages_unacknowledged"]
    kind = str(record.metadata.get("default_queue_type", "classic"))
    return {
        "name": name,
        "description": record.description,
        "tags": [],
        "default_queue_type": kind,
        "metadata": {"description": record.description, "tags": [], "default_queue_type": kind},
        "tracing": name in node.firehose.taps,
        "cluster_state": {node.identity.name: "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "protected_from_deletion": False,
    }


def _small(name: str) -> Row:
    return {"name": name}


@router.get("/vhosts")
async def list_all(request: Request, who: Asking) -> Response:
    """Those that the user may see."""
    found = [name for name in sorted(who.behind.on.node.topology.vhost_records) if who.sees(name)]
    return await lists.answer(request, Listing(found, _small, lambda name: _row(who, name)))


@router.get("/vhosts/{vhost}")
async def show(vhost: Name, who: Asking) -> Response:
    """One virtual host."""
    if vhost not in who.behind.on.node.topology.vhost_records:
        raise NotFound("Object Not Found")
    who.require(who.sees(vhost), "User not authorised to access virtual host")
    return reply(_row(who, vhost))


@router.put("/vhosts/{vhost}", status_code=201)
async def put(request: Request, vhost: Name, who: Administrator) -> Response:
    """`description`, `default_queue_type`, `tracing`. Who makes it has all permissions in it."""
    body, metadata, on = await body_of(request), who.behind.metadata, who.behind.on
    kind = text(body, "default_queue_type", "") or text(body, "defaultqueuetype", "")
    new = True
    try:
        await vhosts.add(metadata, vhost, text(body, "description", ""), kind or None)
        await permissions.put(metadata, vhost, who.user, ".*", ".*", ".*")
    except AlreadyExists:
        new = False
        if kind:
            await vhosts.set_default_queue_type(metadata, vhost, kind)
    if "tracing" in body:
        (on.node.firehose.start if flag(body, "tracing", False) else on.node.firehose.stop)(vhost)
    return changed(new)


@router.delete("/vhosts/{vhost}", status_code=204)
async def delete(vhost: Name, who: Administrator) -> Response:
    """With all that is in it."""
    await vhosts.delete(who.behind.metadata, vhost)
    return gone()


@router.get("/vhosts/{vhost}/permissions")
async def list_permissions(request: Request, vhost: Name, who: Administrator) -> Response:
    """Of all users there."""
    found: list[Any] = await permissions.listed(who.behind.metadata, vhost)
    return await lists.answer(request, Listing(found, dict, dict))


@router.get("/vhosts/{vhost}/topic-permissions")
async def list_topic_permissions(request: Request, vhost: Name, who: Administrator) -> Response:
    """Of all users there."""
    found: list[Any] = await permissions.listed_topics(who.behind.metadata, vhost)
    return await lists.answer(request, Listing(found, dict, dict))
