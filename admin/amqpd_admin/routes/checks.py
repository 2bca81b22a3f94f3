"""Older health checks of RabbitMQ's, and those about certificates.

Source: https://www.rabbitmq.com/docs/monitoring#health-checks.
"""

from __future__ import annotations

import time

from fastapi import Request
from starlette.responses import Response

from amqpd.management.alarms import kinds
from amqpd_admin.answers import bad_request, reply
from amqpd_admin.certificates import expiry_s
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Asking, Entering
from amqpd_admin.paths import Name
from amqpd_admin.routes.health import answer
from amqpd_admin.routes.nodes import facts_of

router = api_router("health")
DAY_S = 86_400
UNITS = {"days": DAY_S, "weeks": 7 * DAY_S, "months": 30 * DAY_S, "years": 365 * DAY_S}


@router.get("/aliveness-test/{vhost}")
async def aliveness(vhost: Name, who: Entering) -> Response:
    """The virtual host is served. (RabbitMQ 3 sent a message, RabbitMQ 4 does not any more.)"""
    who.parts.on.vhost(vhost)
    return answer()


@router.get("/healthchecks/node")
async def this_node(who: Asking) -> Response:
    """It has no alarm."""
    found = kinds(who.parts.on)
    return answer(f"resource alarm(s) in effect: {', '.join(found)}") if found else answer()


@router.get("/healthchecks/node/{name}")
async def named_node(name: Name, who: Asking) -> Response:
    """It answers, and has no alarm."""
    facts = await facts_of(who, name)
    if facts is None:
        return answer("it does not answer")
    found = facts["alarms"]
    return answer(f"resource alarm(s) in effect: {', '.join(found)}") if found else answer()


@router.get("/health/checks/certificate-expiration/{within}/{unit}")
async def certificate(request: Request, within: str, unit: str, who: Asking) -> Response:
    """The certificate that clients see is good for so long."""
    if not (within.isascii() and within.isdigit()):
        raise bad_request("Invalid expiration value.")
    if unit.lower() not in UNITS:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    file, until_s = request.app.state.settings.tls.certificate, time.time() + int(within) * UNITS[unit.lower()]
    if file is not None and expiry_s(file) < until_s:
        return answer("Certificates expiring", expired=[])
    return answer()


@router.get("/health/checks/node-is-mirror-sync-critical")
async def mirrors(who: Asking) -> Response:
    """There are no mirrors of classic queues."""
    return reply({"status": "ok", **({} if who.parts.clustered else {"reason": "single node cluster"})})


@router.get("/health/checks/metadata-store/initialized")
@router.get("/health/checks/metadata-store/initialized/with-data")
@router.get("/health/checks/reached-target-cluster-size")
async def started(who: Asking) -> Response:
    """A node that answers has read its metadata; no number of nodes is waited for."""
    return answer()


@router.get("/health/checks/below-node-connection-limit")
async def below_limit(request: Request, who: Asking) -> Response:
    """A client more could connect."""
    most = request.app.state.settings.node_connections_max
    if 0 <= most <= len(who.parts.on.node.connections):
        return answer("node connection limit is reached")
    return answer()
