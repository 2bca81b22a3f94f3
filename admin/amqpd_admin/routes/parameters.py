"""Parameters of components in virtual hosts, for policy makers; and global ones, which administrators change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.definitions.items import OPERATOR_POLICY
from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.metadata import parameters, policies
from amqpd.management.pacing import each
from amqpd.topology.limit_keys import VHOST_LIMITS
from amqpd_admin import lists
from amqpd_admin.answers import changed, gone, invalid
from amqpd_admin.bodies import body_of, need
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row, of_made
from amqpd_admin.login import Administrator, PolicyMaker, Who
from amqpd_admin.paths import Name

router = api_router("parameters")
ONE, GLOBAL = "/parameters/{component}/{vhost}/{name}", "/global-parameters/{name}"


async def _list(request: Request, who: Who, wanted: Callable[[Row], bool], vhost: str | None = None) -> Response:
    rows: list[Any] = list(await parameters.listed(who.parts.metadata, vhost))
    # RabbitMQ keeps operator policies as parameters, and lists them here, too.
    rows += await each(await policies.listed(who.parts.metadata, True, vhost), _as_parameter)
    found = await each(rows, lambda row: row if who.sees(row["vhost"]) and wanted(row) else None)
    return await lists.answer(request, of_made(found))


def _as_parameter(policy: Any) -> Row:
    value = {name: policy[name] for name in ("pattern", "definition", "priority", "apply-to")}
    return {"vhost": policy["vhost"], "component": OPERATOR_POLICY, "name": policy["name"], "value": value}


def _refuse_limits(component: str, who: Who) -> None:
    """They are kept as a parameter, and are the administrators'. Raises Refusal."""
    who.require(component != VHOST_LIMITS or who.administers, "User not authorised to access object")


async def _value(request: Request) -> Any:
    body = await body_of(request)
    if "value" not in body:
        need(body, "value")
    return body["value"]


@router.get("/parameters")
async def list_all(request: Request, who: PolicyMaker) -> Response:
    """In all virtual hosts that the user may see."""
    return await _list(request, who, lambda row: True)


@router.get("/parameters/{component}")
async def list_of_component(request: Request, component: Name, who: PolicyMaker) -> Response:
    """Those of a component."""
    return await _list(request, who, lambda row: bool(row["component"] == component))


@router.get("/parameters/{component}/{vhost}")
async def list_of_vhost(request: Request, component: Name, vhost: Name, who: PolicyMaker) -> Response:
    """Those of a component in a virtual host."""
    return await _list(request, who, lambda row: bool(row["component"] == component), vhost)


@router.get(ONE)
async def show(request: Request, component: Name, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """One parameter."""
    for row in await parameters.listed(who.parts.metadata, vhost):
        if (row["component"], row["name"]) == (component, name):
            return await lists.one(request, dict(row))
    raise NotFound("Object Not Found")


@router.put(ONE, status_code=201)
async def put(request: Request, component: Name, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """`value`."""
    _refuse_limits(component, who)
    value = await _value(request)
    new = (component, name) not in who.parts.on.vhost(vhost).parameters
    try:
        await parameters.put(who.parts.metadata, vhost, component, name, value)
    except BadArgument as error:
        raise invalid(error) from error
    return changed(new)


@router.delete(ONE, status_code=204)
async def clear(component: Name, vhost: Name, name: Name, who: PolicyMaker) -> Response:
    """One parameter goes."""
    _refuse_limits(component, who)
    await parameters.clear(who.parts.metadata, vhost, component, name)
    return gone()


@router.get("/global-parameters")
async def list_global(request: Request, who: PolicyMaker) -> Response:
    """Those of no virtual host."""
    found: list[Any] = await parameters.listed_global(who.parts.metadata)
    return await lists.answer(request, of_made(found))


@router.get(GLOBAL)
async def show_global(request: Request, name: Name, who: PolicyMaker) -> Response:
    """One global parameter."""
    for row in await parameters.listed_global(who.parts.metadata):
        if row["name"] == name:
            return await lists.one(request, dict(row))
    raise NotFound("Object Not Found")


@router.put(GLOBAL, status_code=201)
async def put_global(request: Request, name: Name, who: Administrator) -> Response:
    """`value`."""
    new = ("", name) not in who.parts.on.node.topology.global_parameters
    await parameters.put_global(who.parts.metadata, name, await _value(request))
    return changed(new)


@router.delete(GLOBAL, status_code=204)
async def clear_global(name: Name, who: Administrator) -> Response:
    """One global parameter goes."""
    await parameters.clear_global(who.parts.metadata, name)
    return gone()
