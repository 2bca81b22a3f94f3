"""What RabbitMQ's plugins and newer releases list, and amqpd has none of: the lists are empty, which is true.

Federation links and shovels do not run here; streams are no protocol of amqpd; nothing that is deprecated is in use.
Feature flags are listed as of a RabbitMQ of the version that the API is of (`amqpd/management/feature_flags.py`).
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.management.feature_flags import FLAGS
from amqpd.management.feature_flags import enable as enable_flag
from amqpd_admin import lists
from amqpd_admin.answers import gone, not_there, reply
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import of_made
from amqpd_admin.login import Administrator, Asking, Entering, Monitor
from amqpd_admin.paths import Name

router = api_router("absent")


@router.get("/federation-links")
@router.get("/federation-links/state/down")
@router.get("/shovels")
async def plugins(who: Monitor) -> Response:
    """None."""
    return reply([])


@router.get("/federation-links/{vhost}")
@router.get("/federation-links/{vhost}/state/down")
@router.get("/shovels/{vhost}")
async def plugins_of_vhost(vhost: Name, who: Monitor) -> Response:
    """None."""
    who.parts.on.vhost(vhost)
    return reply([])


@router.get("/stream/connections")
@router.get("/stream/consumers")
@router.get("/stream/publishers")
async def streams(who: Asking) -> Response:
    """None."""
    return reply([])


@router.get("/stream/connections/{vhost}")
@router.get("/stream/consumers/{vhost}")
@router.get("/stream/publishers/{vhost}")
async def streams_of_vhost(vhost: Name, who: Entering) -> Response:
    """None."""
    who.parts.on.vhost(vhost)
    return reply([])


@router.get("/stream/publishers/{vhost}/{queue}")
async def publishers_of_stream(vhost: Name, queue: Name, who: Entering) -> Response:
    """None, of a queue that is there."""
    who.parts.on.queue(vhost, queue)
    return reply([])


@router.get("/deprecated-features")
@router.get("/deprecated-features/used")
async def features(who: Asking) -> Response:
    """None."""
    return reply([])


@router.get("/feature-flags")
async def flags(request: Request, who: Asking) -> Response:
    """All of them, enabled."""
    return await lists.answer(request, of_made([dict(flag) for flag in FLAGS]))


@router.put("/feature-flags/{name}/enable", status_code=204)
async def enable(name: Name, who: Administrator) -> Response:
    """It is, if there is one of that name."""
    enable_flag(name)
    return gone()


@router.get("/shovels/vhost/{vhost}/{name}")
async def shovel(vhost: Name, name: Name, who: Monitor) -> Response:
    """None."""
    raise not_there()
