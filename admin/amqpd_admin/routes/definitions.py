"""Definitions: everything that exists as one document, and a broker made to have what one says."""

from __future__ import annotations

import trio
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from amqpd.definitions.document import BadDefinitions, read_definitions
from amqpd.management import definitions
from amqpd.management.errors import Unavailable
from amqpd_admin.answers import bad_request, gone
from amqpd_admin.login import Administrator, PolicyMaker, Who
from amqpd_admin.paths import Name
from amqpd_admin.pieces import in_pieces

router = APIRouter(tags=["definitions"])


@router.get("/all-configuration")
@router.get("/definitions")
async def export(who: Administrator) -> Response:
    """Of all virtual hosts."""
    return in_pieces(await definitions.exported_parts(who.behind.metadata))


@router.get("/definitions/{vhost}")
async def export_of_vhost(vhost: Name, who: PolicyMaker) -> Response:
    """Of one virtual host."""
    if vhost not in who.behind.on.node.topology.vhosts:
        raise bad_request("vhost_not_found")
    return in_pieces(await definitions.exported_parts(who.behind.metadata, vhost))


@router.post("/all-configuration", status_code=204)
@router.post("/definitions", status_code=204)
async def take_in(request: Request, who: Administrator) -> Response:
    """What is there and otherwise stays as it is, as in RabbitMQ."""
    return await _take_in(request, who, None)


@router.post("/definitions/{vhost}", status_code=204)
async def take_in_vhost(request: Request, vhost: Name, who: Administrator) -> Response:
    """The same, of one virtual host."""
    who.behind.on.vhost(vhost)
    return await _take_in(request, who, vhost)


async def _take_in(request: Request, who: Who, vhost: str | None) -> Response:
    if who.behind.clustered:
        # TODO(issue 19): where the quorum queues of a file belong is decided by the command only.
        raise Unavailable("definitions are imported into a cluster by `amqpd definitions import`")
    try:
        # Away from the loop: 20 MB of JSON are a second.
        wanted = await trio.to_thread.run_sync(read_definitions, await request.body(), vhost)
    except ClientDisconnect:
        raise bad_request("Exceeded HTTP request body size limit") from None
    except BadDefinitions as error:
        raise bad_request(str(error)) from None
    await definitions.import_definitions(who.behind.metadata, wanted, skip_conflicts=True)
    return gone()
