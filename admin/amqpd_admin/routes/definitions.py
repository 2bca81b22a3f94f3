"""Definitions: everything that exists as one document, and a broker made to have what one says.

What comes in: a document, as a body or as the part `file` of a form. What goes out: documents; 400 that names what
cannot be made; 204, with what was passed over in a header and in the log.
Rules: 1. Either everything that can be made is made, or nothing. 2. What RabbitMQ passes over without a word (things
that exist otherwise, bindings of which an end is missing) is passed over here, too, with a word.
Not here: plans (`definition_plans.py`), the comparison (`amqpd/definitions/`).
"""

from __future__ import annotations

import structlog
import trio
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from amqpd.definitions.difference import Difference, Place
from amqpd.definitions.document import BadDefinitions, Definitions, read_definitions
from amqpd.definitions.export import explanation_in
from amqpd.management.metadata import definitions
from amqpd.management.metadata.imported_queues import make_sources, placed_in_cluster, placed_on, sourceless
from amqpd.vocabulary.escapes import escaped
from amqpd.vocabulary.records import QueueRecord
from amqpd_admin.answers import bad_request
from amqpd_admin.forms import BadForm, boundary_of, part_of
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Administrator, PolicyMaker, Who
from amqpd_admin.paths import Name
from amqpd_admin.pieces import in_pieces
from amqpd_admin.walks import declared

NAMED_MAX = 20
"""so many things that are wrong, or were passed over, are named; the others are counted"""
HEADER_CHARACTERS_MAX = 2_000
FILE = "file"
"""the part of a form that is the document"""

router = api_router("definitions")
log = structlog.get_logger(component="http")


@router.get("/all-configuration")
@router.get("/definitions")
async def export(who: Administrator) -> Response:
    """Of all virtual hosts."""
    parts = await definitions.exported_parts(who.parts.metadata)
    answer, explanation = in_pieces(parts), explanation_in(parts[0].decode())
    if explanation is not None:
        answer.headers["x-amqpd-explanation"] = _in_a_header(explanation)
    return answer


@router.get("/definitions/{vhost}")
async def export_of_vhost(vhost: Name, who: PolicyMaker) -> Response:
    """Of one virtual host."""
    if vhost not in who.parts.on.node.topology.vhosts:
        raise bad_request("vhost_not_found")
    return in_pieces(await definitions.exported_parts(who.parts.metadata, vhost))


@router.post("/all-configuration", status_code=204)
@router.post("/definitions", status_code=204)
async def take_in(request: Request, who: Administrator) -> Response:
    """What is there and otherwise stays as it is, as in RabbitMQ; `x-amqpd-passed-over` says so."""
    return await _take_in(request, who, None)


@router.post("/definitions/{vhost}", status_code=204)
async def take_in_vhost(request: Request, vhost: Name, who: Administrator) -> Response:
    """The same, of one virtual host."""
    who.parts.on.vhost(vhost)
    return await _take_in(request, who, vhost)


async def _take_in(request: Request, who: Who, vhost: str | None) -> Response:
    wanted = await read(request, vhost)
    place = await placing(who, wanted, request.app.state.settings.cluster_copies)
    metadata = who.parts.metadata
    found = await definitions.import_definitions(metadata, wanted, as_rabbitmq=True, place=place)
    return Response(status_code=204, headers=_passed_over(found))


def _passed_over(found: Difference) -> dict[str, str]:
    """Nothing, when everything is now as the document says."""
    passed = [*found.conflicts, *found.left_out]
    if not passed:
        return {}
    said = named(passed)
    log.warning("definitions imported in part", passed_over=len(passed), what=said)
    return {"x-amqpd-passed-over": _in_a_header(said)}


def _in_a_header(said: str) -> str:
    return escaped(said)[:HEADER_CHARACTERS_MAX].encode("ascii", "backslashreplace").decode()


def named(sentences: list[str]) -> str:
    """The first ones, and how many more there are."""
    rest = len(sentences) - NAMED_MAX
    return "; ".join(sentences[:NAMED_MAX]) + (f"; and {rest} more" if rest > 0 else "")


async def read(request: Request, vhost: str | None) -> Definitions:
    """The body. `vhost`: what everything in it is in; None for a whole broker. Raises Refusal."""
    try:
        body = await request.body()
        boundary = boundary_of(request.headers.get("content-type", ""))
        document = body if boundary is None else part_of(body, boundary, FILE)
        # Away from the loop: 20 MB of JSON are a second.
        return await trio.to_thread.run_sync(read_definitions, document, vhost)
    except ClientDisconnect:
        raise bad_request("Exceeded HTTP request body size limit") from None
    except BadForm as error:
        raise bad_request(str(error)) from None
    except BadDefinitions as error:
        raise bad_request(named(error.problems)) from None


async def placing(who: Who, wanted: Definitions, copies: int) -> Place:
    """Where the queues of a document go: classic ones to this node, as RabbitMQ does, quorum queues to sources. In a
    cluster that has none for them yet, some are made first."""
    cluster, node = who.parts.cluster, who.parts.on.node
    if cluster is None:
        return placed_on(lambda _: node.sources.node)
    records = (record for record in wanted.records["queues"].values() if isinstance(record, QueueRecord))
    queues, _ = await declared(node.topology, copies)
    await make_sources(node.cluster, sourceless(records, cluster().imported(queues).source_for))
    queues, _ = await declared(node.topology, copies)
    return placed_in_cluster(cluster().imported(queues).source_for, lambda _: node.sources.node)
