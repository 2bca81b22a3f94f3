"""Limits of virtual hosts and of users: lists, set, cleared. For administrators."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.management.errors import BadArgument
from amqpd.management.metadata import limits
from amqpd.management.pacing import WalkPace, each
from amqpd.topology.limit_keys import Owner
from amqpd_admin import lists
from amqpd_admin.answers import bad_request, gone, invalid
from amqpd_admin.bodies import body_of, number
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import of_made
from amqpd_admin.login import Administrator, Asking, Entering, Who
from amqpd_admin.paths import Name

router = api_router("limits")


async def _list(request: Request, who: Who, owner: Owner, name: str | None = None) -> Response:
    """One row for each owner that has any: its name, and all its limits as `value`."""
    named = {owner: name} if name is not None else {}
    rows = await limits.listed(who.parts.metadata, vhost=named.get("vhost"), user=named.get("user"))
    by_owner: dict[str, dict[str, Any]] = defaultdict(dict)
    pace = WalkPace()
    for row in rows:
        await pace.step()
        if row["of"] == owner and (owner == "user" or who.sees(row["name"])):
            by_owner[row["name"]][row["limit"]] = row["value"]
    # In the order of the rows: by name.
    found: list[Any] = await each(by_owner.items(), lambda pair: {owner: pair[0], "value": pair[1]})
    return await lists.answer(request, of_made(found, lambda row: str(row[owner])))


async def _put(request: Request, who: Who, owner: Owner, name: str, limit: str) -> None:
    value = (await body_of(request)).get("value")
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        raise bad_request(f'Validation failed\n\n{limit} should be a number, actually was <<"{value}">>\n')
    try:
        await limits.put(who.parts.metadata, owner, name, {limit: number({"value": value}, "value")})
    except BadArgument as error:
        if owner == "user":
            raise
        raise invalid(error) from error


@router.get("/vhost-limits")
async def list_vhosts(request: Request, who: Asking) -> Response:
    """Of the virtual hosts that the user may see."""
    return await _list(request, who, "vhost")


@router.get("/vhost-limits/{vhost}")
async def list_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Of one virtual host."""
    return await _list(request, who, "vhost", vhost)


@router.put("/vhost-limits/{vhost}/{limit}", status_code=204)
async def put_vhost(request: Request, vhost: Name, limit: Name, who: Administrator) -> Response:
    """`value`; `limit` is max-connections or max-queues."""
    await _put(request, who, "vhost", vhost, limit)
    return gone()


@router.delete("/vhost-limits/{vhost}/{limit}", status_code=204)
async def clear_vhost(vhost: Name, limit: Name, who: Administrator) -> Response:
    """No such limit any more."""
    await limits.clear(who.parts.metadata, "vhost", vhost, [limit])
    return gone()


@router.get("/user-limits")
async def list_users(request: Request, who: Administrator) -> Response:
    """Of all users."""
    return await _list(request, who, "user")


@router.get("/user-limits/{user}")
async def list_user(request: Request, user: Name, who: Administrator) -> Response:
    """Of one user."""
    return await _list(request, who, "user", user)


@router.put("/user-limits/{user}/{limit}", status_code=204)
async def put_user(request: Request, user: Name, limit: Name, who: Administrator) -> Response:
    """`value`; `limit` is max-connections or max-channels."""
    if user not in who.parts.on.node.topology.users:
        raise bad_request(["no_such_user", user])
    await _put(request, who, "user", user, limit)
    return gone()


@router.delete("/user-limits/{user}/{limit}", status_code=204)
async def clear_user(user: Name, limit: Name, who: Administrator) -> Response:
    """No such limit any more."""
    await limits.clear(who.parts.metadata, "user", user, [limit])
    return gone()
