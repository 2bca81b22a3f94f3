"""Definitions: everything that exists as one document, and a broker made to have what one says."""

from __future__ import annotations

from collections.abc import Callable

import trio
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from amqpd.definitions.difference import local_source
from amqpd.definitions.document import BadDefinitions, Definitions, read_definitions
from amqpd.management.metadata import definitions
from amqpd.management.metadata.imported_queues import sources_by
from amqpd.vocabulary.records import QueueRecord
from amqpd_admin.answers import bad_request, gone
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Administrator, PolicyMaker, Who
from amqpd_admin.paths import Name
from amqpd_admin.pieces import in_pieces
from amqpd_admin.walks import declared

router = api_router("definitions")


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
    wanted = await read(request, vhost)
    source_of = await sources(who, request.app.state.settings.cluster_copies)
    await definitions.import_definitions(who.behind.metadata, wanted, skip_conflicts=True, source_of=source_of)
    return gone()


async def read(request: Request, vhost: str | None) -> Definitions:
    """The body. `vhost`: what everything in it is in; None for a whole broker. Raises Refusal."""
    try:
        # Away from the loop: 20 MB of JSON are a second.
        return await trio.to_thread.run_sync(read_definitions, await request.body(), vhost)
    except ClientDisconnect:
        raise bad_request("Exceeded HTTP request body size limit") from None
    except BadDefinitions as error:
        raise bad_request(str(error)) from None


async def sources(who: Who, copies: int) -> Callable[[QueueRecord], int]:
    """Of the quorum queues of a document."""
    if who.behind.cluster is None:
        return local_source
    queues, _ = await declared(who.behind.on.node.topology, copies)
    return sources_by(who.behind.cluster().imported(queues).source_for)
