"""Health checks: 200 with `status: ok`, or 503 with the reason.

Source: https://www.rabbitmq.com/docs/monitoring#health-checks.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from amqpd_admin.answers import reply
from amqpd_admin.login import Asking, Who

router = APIRouter(prefix="/health/checks", tags=["health"])
AMQP = ("amqp", "amqp091", "amqp0.9.1")


def _answer(reason: str = "", **more: object) -> Response:
    if not reason:
        return reply({"status": "ok", **more})
    return reply({"status": "failed", "reason": reason, **more}, 503)


def _alarms(who: Who, where: str) -> Response:
    kinds = sorted(who.behind.on.node.alarms.kinds)
    name = who.behind.on.node.identity.name
    rows = [{"node": name, "resource": kind} for kind in kinds]
    return _answer(f"There are alarms in effect {where}", alarms=rows) if rows else _answer()


@router.get("/alarms")
async def alarms(who: Asking) -> Response:
    """None anywhere in the cluster."""
    return _alarms(who, "in the cluster")


@router.get("/local-alarms")
async def local_alarms(who: Asking) -> Response:
    """None on this node."""
    return _alarms(who, "on the node")


@router.get("/port-listener/{port}")
async def port_listener(port: int, who: Asking) -> Response:
    """Clients can connect to it."""
    ports = sorted({number for _, number, _ in who.behind.addresses})
    if port in ports:
        return _answer(port=port)
    return _answer("No active listener", missing=port, ports=ports)


@router.get("/protocol-listener/{protocol}")
async def protocol_listener(protocol: str, who: Asking) -> Response:
    """There is a listener for it: amqp091, or amqps."""
    kinds = {tls for _, _, tls in who.behind.addresses}
    wanted = protocol.lower()
    if (wanted in AMQP and False in kinds) or (wanted in ("amqps", "amqp/ssl") and True in kinds):
        return _answer(protocol=protocol)
    found = [name for name, tls in (("amqp", False), ("amqps", True)) if tls in kinds]
    return _answer("No active listener", missing=protocol, protocols=found)


@router.get("/virtual-hosts")
async def virtual_hosts(who: Asking) -> Response:
    """All of them serve: a node that cannot serve one does not run."""
    return _answer()


@router.get("/is-in-service")
@router.get("/ready-to-serve-clients")
async def in_service(who: Asking) -> Response:
    """It takes new connections."""
    return _answer("the node is being shut down") if who.behind.on.node.draining else _answer()
