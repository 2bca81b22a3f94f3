"""Log-in attempts of a node: how many there were, and from where."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request
from starlette.responses import Response

from amqpd.management.errors import AtAnotherNode, NotFound
from amqpd.security.authentication.attempt_counts import LoginAttemptCounts
from amqpd_admin import lists, others
from amqpd_admin.answers import gone
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row, of_made
from amqpd_admin.login import Monitor, Who
from amqpd_admin.paths import Name

router = api_router("attempts")

OF_NODE = "/auth/attempts/{name}"
OF_SOURCES = OF_NODE + "/source"


@router.get(OF_NODE)
async def show(request: Request, name: Name, who: Monitor) -> Response:
    """By protocol, since the start or since they were deleted."""
    return await _answered(request, _counts_of(who, name).by_protocol())


@router.get(OF_SOURCES)
async def show_sources(request: Request, name: Name, who: Monitor) -> Response:
    """By address, user's name and protocol: of the 1,000 that were seen last."""
    return await _answered(request, _counts_of(who, name).by_source())


@router.delete(OF_NODE, status_code=204)
async def forget(name: Name, who: Monitor) -> Response:
    """All counts begin at zero."""
    _counts_of(who, name).forget()
    return gone()


@router.delete(OF_SOURCES, status_code=204)
async def forget_sources(name: Name, who: Monitor) -> Response:
    """Those by source begin at zero."""
    _counts_of(who, name).forget_sources()
    return gone()


async def _answered(request: Request, rows: Iterable[Row]) -> Response:
    return await lists.answer(request, of_made(list(rows)))


def _counts_of(who: Who, name: str) -> LoginAttemptCounts:
    """Raises NotFound; AtAnotherNode: each node counts its own."""
    if name == who.parts.on.node.identity.name:
        return who.parts.logins.attempt_counts
    if name in others.names(who):
        raise AtAnotherNode(f"node '{name}' counts its log-in attempts by itself: ask there")
    raise NotFound("Object Not Found")
