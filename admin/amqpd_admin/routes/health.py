"""Health checks: 200 with `status: ok`, or 503 with the reason.

Source: https://www.rabbitmq.com/docs/monitoring#health-checks.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.management.alarms import kinds
from amqpd.management.attention import alarms as alarms_of_all
from amqpd_admin.answers import bad_request, reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Asking
from amqpd_admin.rows.listeners import listeners

router = api_router("health", "/health/checks")
PROTOCOLS = dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1"), "amqp") | {"amqps": "amqp/ssl"}
"""other names for protocols"""


def answer(reason: str = "", **more: object) -> Response:
    """With a reason it has failed."""
    if not reason:
        return reply({"status": "ok", **more})
    return reply({"status": "failed", "reason": reason, **more}, 503)


def _alarms(rows: list[dict[str, str]], where: str) -> Response:
    return answer(f"There are alarms in effect {where}", alarms=rows) if rows else answer()


@router.get("/alarms")
async def alarms(who: Asking) -> Response:
    """None anywhere in the cluster, as far as its nodes answer."""
    found = dict.fromkeys((each["node"], each["name"]) for each in await alarms_of_all.in_cluster(who.parts))
    return _alarms([{"node": node, "resource": kind} for node, kind in found], "in the cluster")


@router.get("/local-alarms")
async def local_alarms(who: Asking) -> Response:
    """None on this node."""
    name = who.parts.on.node.identity.name
    return _alarms([{"node": name, "resource": kind} for kind in kinds(who.parts.on)], "on the node")


@router.get("/port-listener/{port}")
async def port_listener(request: Request, port: str, who: Asking) -> Response:
    """Clients can connect to it."""
    if not (port.isascii() and port.isdigit()):
        raise bad_request("Invalid port")
    ports = sorted({each["port"] for each in listeners("", who.parts.addresses, request.app.state.addresses)})
    if int(port) in ports:
        return answer(port=int(port))
    return answer("No active listener", missing=int(port), ports=ports)


@router.get("/protocol-listener/{protocol}")
async def protocol_listener(request: Request, protocol: str, who: Asking) -> Response:
    """There is a listener for it, or for each of several with commas between: amqp091, amqps, http, https."""
    found = sorted({each["protocol"] for each in listeners("", who.parts.addresses, request.app.state.addresses)})
    wanted = [PROTOCOLS.get(each, each) for each in protocol.lower().split(",")]
    missing = [each for each in wanted if each not in found]
    if not missing:
        return answer(protocol=",".join(wanted), protocols=found)
    return answer("No active listener", missing=missing[0] if len(wanted) == 1 else missing, protocols=found)


@router.get("/virtual-hosts")
async def virtual_hosts(who: Asking) -> Response:
    """All of them serve: a node that cannot serve one does not run."""
    return answer()


@router.get("/is-in-service")
@router.get("/ready-to-serve-clients")
async def in_service(who: Asking) -> Response:
    """It takes new connections."""
    return answer("the node is being shut down") if who.parts.on.node.draining else answer()
