"""Policies and operator policies: lists, set, cleared. The first are for policy makers, the others
for administrators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.metadata import policies, policy_previews
from amqpd.management.pacing import each
from amqpd.topology.policies import PATTERN_BYTES_MAX as PATTERN_LENGTH_MAX
from amqpd.vocabulary.records import PolicyRecord
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, changed, gone, invalid, reply
from amqpd_admin.bodies import Body, body_of, need, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import of_made
from amqpd_admin.login import Administrator, Asking, Entering, PolicyMaker, Who
from amqpd_admin.paths import Name

router = api_router("policies")

NAME_LENGTH_MAX = 255


async def _listed(request: Request, who: Who, *, operator: bool, vhost: str | None = None) -> Response:
    rows: list[Any] = await policies.listed(who.parts.metadata, operator, vhost)
    found = await each(rows, lambda row: row if who.sees(row["vhost"]) else None)
    return await lists.answer(request, of_made(found))


async def _one(request: Request, who: Who, vhost: str, name: str, *, operator: bool) -> Response:
    for row in await policies.listed(who.parts.metadata, operator, vhost):
        if row["name"] == name:
            return await lists.one(request, dict(row))
    raise NotFound("Object Not Found")


async def _put(who: Who, vhost: str, name: str, body: Body, *, operator: bool) -> Response:
    need(body, "pattern", "definition")
    definition, priority = body["definition"], body.get("priority", 0)
    if not isinstance(definition, dict):
        raise bad_request("definition must be an object")
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise bad_request(f'Validation failed\n\npriority should be a number, actually was <<"{priority}">>\n')
    known = who.parts.on.vhost(vhost).policies
    new = name not in (known.operator_policies if operator else known.policies)
    pattern, apply_to = text(body, "pattern"), text(body, "apply-to", "all")
    try:
        await policies.put(
            *(who.parts.metadata, operator, vhost, name, pattern, definition), priority=priority, apply_to=apply_to
        )
    except BadArgument as error:
        raise invalid(error) from error
    return changed(new)


@router.get("/policies")
async def list_all(request: Request, who: Asking) -> Response:
    """In all virtual hosts that the user may see."""
    return await _listed(request, who, operator=False)


@router.get("/policies/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """In one virtual host."""
    return await _listed(request, who, operator=False, vhost=vhost)


@router.get("/amqpd/policies/preview/{vhost}")
async def preview_of(
    vhost: Name,
    who: PolicyMaker,
    pattern: Annotated[str, Query(max_length=PATTERN_LENGTH_MAX)],
    apply_to: Annotated[str, Query(alias="apply-to", max_length=20)] = "all",
    name: Annotated[str, Query(max_length=NAME_LENGTH_MAX)] = "",
    priority: Annotated[int, Query(ge=-(2**31), lt=2**31)] = 0,
    operator: bool = False,
) -> Response:
    """Our own: what a policy would apply to among the others, if it were set: `queues` and `exchanges` (that its
    pattern matches), `applies`, the first `names`, and the `winners` of the others."""
    record = PolicyRecord(vhost, name, pattern, apply_to, {}, priority, operator)
    return reply(dict(await policy_previews.preview(who.parts.on, record)))


@router.get("/policies/{vhost}/{name}")
async def show(request: Request, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """One policy."""
    return await _one(request, who, vhost, name, operator=False)


@router.put("/policies/{vhost}/{name}", status_code=201)
async def put(request: Request, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """`pattern`, `definition`, `priority`, `apply-to`."""
    return await _put(who, vhost, name, await body_of(request), operator=False)


@router.delete("/policies/{vhost}/{name}", status_code=204)
async def clear(vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """What it applied to falls back to the next one that matches."""
    await policies.clear(who.parts.metadata, False, vhost, name)
    return gone()


@router.get("/operator-policies")
async def list_operator(request: Request, who: Asking) -> Response:
    """In all virtual hosts that the user may see."""
    return await _listed(request, who, operator=True)


@router.get("/operator-policies/{vhost}")
async def list_operator_of_vhost(request: Request, vhost: Name, who: PolicyMaker) -> Response:
    """In one virtual host."""
    return await _listed(request, who, operator=True, vhost=vhost)


@router.get("/operator-policies/{vhost}/{name}")
async def show_operator(request: Request, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """One operator policy."""
    return await _one(request, who, vhost, name, operator=True)


@router.put("/operator-policies/{vhost}/{name}", status_code=201)
async def put_operator(request: Request, vhost: Name, name: Name, who: Administrator) -> Response:
    """As a policy."""
    return await _put(who, vhost, name, await body_of(request), operator=True)


@router.delete("/operator-policies/{vhost}/{name}", status_code=204)
async def clear_operator(vhost: Name, name: Name, who: Administrator) -> Response:
    """As a policy."""
    await policies.clear(who.parts.metadata, True, vhost, name)
    return gone()
