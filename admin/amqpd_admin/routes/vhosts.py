"""Virtual hosts: lists, one, made, deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.management import traces
from amqpd.management.errors import Conflict, NotFound
from amqpd.management.figures.totals import RATES
from amqpd.management.metadata import permissions, vhosts
from amqpd_admin import lists, others
from amqpd_admin.answers import Refusal, bad_request, changed, gone, not_there, reply
from amqpd_admin.bodies import Body, body_of, flag, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Listing, Row, of_made
from amqpd_admin.login import Administrator, Asking, Who
from amqpd_admin.paths import Name
from amqpd_admin.samples import Asked, SamplesAsked, add_to_queue
from amqpd_admin.walks import seen_vhosts

router = api_router("vhosts")


def _row(who: Who, name: str, held: Mapping[str, Counter[str]]) -> Row | None:
    """None for one that is gone."""
    node, counts = who.parts.on.node, held.get(name) or Counter[str]()
    record = node.topology.vhost_records.get(name)
    ready, unacked = counts["messages_ready"], counts["messages_unacknowledged"]
    if record is None:
        return None
    kind, tags = str(record.metadata.get("default_queue_type", "classic")), list(record.metadata.get("tags", ()))
    return {
        "name": name,
        "description": record.description,
        "tags": tags,
        "default_queue_type": kind,
        "metadata": {"description": record.description, "tags": tags, "default_queue_type": kind},
        "tracing": name in node.firehose.taps,
        "cluster_state": _states(who),
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "messages_details": {"rate": round(counts["messages rate"], 1)},
        "protected_from_deletion": record.metadata.get("protected_from_deletion") is True,
        **_rated(counts, ("recv_oct", "send_oct")),
        # As a queue: where nothing came yet there are no statistics.
        **({"message_stats": _rated(counts, RATES)} if any(counts[each] for each in RATES) else {}),
    }


def _rated(counts: Counter[str], names: Iterable[str]) -> Row:
    row: Row = {}
    for each in names:
        row |= {each: counts[each], f"{each}_details": {"rate": round(counts[f"{each} rate"], 1)}}
    return row


def _add_samples(who: Who, samples: SamplesAsked, name: str, row: Row, *, alone: bool = False) -> None:
    """Not where other nodes have some of it."""
    if not ("lengths" in samples or "msg_rates" in samples) or others.names(who):
        return
    series = who.parts.samples.of_vhost(name, alone=alone)
    add_to_queue(row, series, samples)


def _states(who: Who) -> dict[str, str]:
    """By node, of those that live: each of them serves all virtual hosts."""
    names = [who.parts.on.node.identity.name]
    if who.parts.cluster is not None:
        view = who.parts.cluster()
        names += filter(view.lives, view.others())
    return dict.fromkeys(names, "running")


async def _one(who: Who, name: str) -> Row:
    """Raises NotFound."""
    row = _row(who, name, (await others.sums_of_queues(who, [name]))[0])
    if row is None:
        raise NotFound("Object Not Found")
    return row


def _tags(body: Body) -> list[str] | None:
    """A list, or one text with commas; None when there is nothing of it."""
    given = body.get("tags")
    if given is None:
        return None
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise bad_request("tags must be names")
    return [each.strip() for each in names if each.strip()]


def _queue_type(body: Body) -> str | None:
    """By either name; RabbitMQ's files say `undefined` where nothing is said."""
    kind = text(body, "default_queue_type", "") or text(body, "defaultqueuetype", "")
    return None if kind in ("", "undefined") else kind


def _small(name: str) -> Row:
    return {"name": name}


@router.get("/vhosts")
async def list_all(request: Request, who: Asking, samples: Asked) -> Response:
    """Those that the user may see."""
    found = await seen_vhosts(who)
    held, told = await others.sums_of_queues(who, found)
    missing, more = others.missing(who, told), partial(_add_samples, who, samples)
    listing = Listing(found, _small, lambda name: _row(who, name, held), more=more, missing=lambda: missing)
    return await lists.answer(request, listing)


@router.get("/vhosts/{vhost}")
async def show(request: Request, vhost: Name, who: Asking, samples: Asked) -> Response:
    """One virtual host."""
    if vhost not in who.parts.on.node.topology.vhost_records:
        raise NotFound("Object Not Found")
    who.require(who.sees(vhost), "User not authorised to access virtual host")
    row = await _one(who, vhost)
    _add_samples(who, samples, vhost, row, alone=True)
    return await lists.one(request, row)


@router.put("/vhosts/{vhost}", status_code=201)
async def put(request: Request, vhost: Name, who: Administrator) -> Response:
    """`description`, `default_queue_type`, `tracing`. Who makes it has all permissions in it."""
    body = await body_of(request)
    # All of it is looked at before anything is changed, and changed together.
    tracing = flag(body, "tracing", False) if "tracing" in body else None
    protected = flag(body, "protected_from_deletion", False) if "protected_from_deletion" in body else None
    description = text(body, "description") if "description" in body else None
    wanted = vhosts.VhostProperties(description, _queue_type(body), _tags(body), protected)
    new = await vhosts.put(who.parts.metadata, vhost, wanted, owner=who.user)
    if tracing is not None:
        traces.put(who.parts.on, who.operator, vhost, tracing)
    return changed(new)


@router.delete("/vhosts/{vhost}", status_code=204)
async def delete(vhost: Name, who: Administrator) -> Response:
    """With all that is in it, unless it is protected."""
    try:
        await vhosts.delete(who.parts.metadata, vhost)
    except Conflict as error:
        raise Refusal(412, "precondition_failed", str(error)) from error
    return gone()


@router.get("/vhosts/{vhost}/deletion/protection")
async def show_protection(vhost: Name, who: Administrator) -> Response:
    """Whether it may be deleted. (RabbitMQ has no answer to this method.)"""
    record = who.parts.on.node.topology.vhost_records.get(vhost)
    if record is None:
        raise not_there()
    return reply({"protected_from_deletion": record.metadata.get("protected_from_deletion") is True})


@router.post("/vhosts/{vhost}/deletion/protection", status_code=204)
async def protect(vhost: Name, who: Administrator) -> Response:
    """It cannot be deleted."""
    await vhosts.protect(who.parts.metadata, vhost, True)
    return gone()


@router.delete("/vhosts/{vhost}/deletion/protection", status_code=204)
async def unprotect(vhost: Name, who: Administrator) -> Response:
    """It can be deleted again."""
    await vhosts.protect(who.parts.metadata, vhost, False)
    return gone()


@router.get("/vhosts/{vhost}/permissions")
async def list_permissions(request: Request, vhost: Name, who: Administrator) -> Response:
    """Of all users there."""
    found: list[Any] = await permissions.listed(who.parts.metadata, vhost)
    return await lists.answer(request, of_made(found, lambda row: str(row["user"])))


@router.get("/vhosts/{vhost}/topic-permissions")
async def list_topic_permissions(request: Request, vhost: Name, who: Administrator) -> Response:
    """Of all users there."""
    found: list[Any] = await permissions.listed_topics(who.parts.metadata, vhost)
    return await lists.answer(request, of_made(found))
