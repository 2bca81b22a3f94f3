"""Virtual hosts: lists, one, made, deleted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management import overview, permissions, vhosts
from amqpd.management.errors import AlreadyExists, Conflict, NotFound
from amqpd_admin import lists
from amqpd_admin.answers import Refusal, bad_request, changed, gone, not_there, reply
from amqpd_admin.bodies import Body, body_of, flag, text
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Administrator, Asking, Who
from amqpd_admin.paths import Name

router = APIRouter(tags=["vhosts"])


def _row(who: Who, name: str) -> Row:
    node = who.behind.on.node
    record = node.topology.vhost_records[name]
    (facts,) = overview.vhosts(node, {"vhost": name})
    ready, unacked = facts["messages_ready"], facts["messages_unacknowledged"]
    kind, tags = str(record.metadata.get("default_queue_type", "classic")), list(record.metadata.get("tags", ()))
    return {
        "name": name,
        "description": record.description,
        "tags": tags,
        "default_queue_type": kind,
        "metadata": {"description": record.description, "tags": tags, "default_queue_type": kind},
        "tracing": name in node.firehose.taps,
        "cluster_state": {node.identity.name: "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "protected_from_deletion": record.metadata.get("protected_from_deletion") is True,
    }


def _tags(body: Body) -> list[str] | None:
    """A list, or one text with commas; None when there is nothing of it."""
    given = body.get("tags")
    if given is None:
        return None
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise bad_request("tags must be names")
    return [each.strip() for each in names if each.strip()]


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
    new, tags = True, _tags(body)
    try:
        await vhosts.add(metadata, vhost, text(body, "description", ""), kind or None, tags or ())
        await permissions.put(metadata, vhost, who.user, ".*", ".*", ".*")
    except AlreadyExists:
        new = False
        if kind:
            await vhosts.set_default_queue_type(metadata, vhost, kind)
        if tags is not None:
            await vhosts.set_tags(metadata, vhost, tags)
        if "description" in body:
            await vhosts.set_description(metadata, vhost, text(body, "description"))
    if "protected_from_deletion" in body:
        await vhosts.protect(metadata, vhost, flag(body, "protected_from_deletion", False))
    if "tracing" in body:
        (on.node.firehose.start if flag(body, "tracing", False) else on.node.firehose.stop)(vhost)
    return changed(new)


@router.delete("/vhosts/{vhost}", status_code=204)
async def delete(vhost: Name, who: Administrator) -> Response:
    """With all that is in it, unless it is protected."""
    try:
        await vhosts.delete(who.behind.metadata, vhost)
    except Conflict as error:
        raise Refusal(412, "precondition_failed", str(error)) from error
    return gone()


@router.get("/vhosts/{vhost}/deletion/protection")
async def show_protection(vhost: Name, who: Administrator) -> Response:
    """Whether it may be deleted. (RabbitMQ has no answer to this method.)"""
    row = _row(who, vhost) if vhost in who.behind.on.node.topology.vhost_records else None
    if row is None:
        raise not_there()
    return reply({"protected_from_deletion": row["protected_from_deletion"]})


@router.post("/vhosts/{vhost}/deletion/protection", status_code=204)
async def protect(vhost: Name, who: Administrator) -> Response:
    """It cannot be deleted."""
    await vhosts.protect(who.behind.metadata, vhost, True)
    return gone()


@router.delete("/vhosts/{vhost}/deletion/protection", status_code=204)
async def unprotect(vhost: Name, who: Administrator) -> Response:
    """It can be deleted again."""
    await vhosts.protect(who.behind.metadata, vhost, False)
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
