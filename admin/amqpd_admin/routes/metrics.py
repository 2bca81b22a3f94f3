"""Metrics for Prometheus, and whether the node lives and takes connections: outside `/api`.

What comes in: requests. What goes out: text in Prometheus' format, as it is made; `/healthz` and `/readyz`.
Rules: 1. Metrics need the tag monitoring, unless `http.metrics_open` is set. 2. `/healthz` and `/readyz` need no
password, and tell nothing else. 3. An alarm does not make a node unready: publishers wait, and consumers must be able
to come, since what they take ends the alarm. The answer names it.
Not here: what is in them (`metrics/`), RabbitMQ's health checks (`health.py`).

Source: https://www.rabbitmq.com/docs/prometheus; https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import re2
import trio
from fastapi import APIRouter, Depends, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from amqpd.management.alarms import kinds
from amqpd.management.face import BrokerParts
from amqpd_admin.answers import bad_request, reply
from amqpd_admin.login import log_in
from amqpd_admin.metrics.endpoints import Asked, Broker
from amqpd_admin.metrics.families import CONTENT_TYPE, Part
from amqpd_admin.metrics.text import text

QUEUE_BYTES_MAX = 2000
# Python's own engine may take for ever for some expressions. Unlike those of lists these regard case, as in RabbitMQ.
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20


async def may_read(request: Request) -> None:
    """Raises Refusal."""
    if not request.app.state.settings.http.metrics_open:
        who = await log_in(request)
        who.require(who.monitors, "Not monitor user")


router = APIRouter(tags=["metrics"])
READABLE = [Depends(may_read)]


def _broker(request: Request) -> Broker:
    state = request.app.state
    return Broker(state.parts, state.settings, trio.current_time() - state.began)


def _answer(parts: AsyncIterator[Part]) -> Response:
    return StreamingResponse(text(parts), headers={"content-type": CONTENT_TYPE, "cache-control": "no-cache"})


@router.get("/metrics", dependencies=READABLE, response_class=PlainTextResponse)
async def aggregated(request: Request) -> Response:
    """Sums over all connections, channels and queues of this node."""
    return _answer(_broker(request).aggregated())


@router.get("/metrics/per-object", dependencies=READABLE, response_class=PlainTextResponse)
async def per_object(request: Request) -> Response:
    """A sample for each connection, channel and queue."""
    return _answer(_broker(request).per_object())


@router.get("/metrics/detailed", dependencies=READABLE, response_class=PlainTextResponse)
async def detailed(request: Request) -> Response:
    """What is asked for: `family` and `vhost`, each once or more; `queue`, a regular expression."""
    given = request.query_params
    vhosts = tuple(given.getlist("vhost"))
    asked = Asked(tuple(given.getlist("family")), vhosts or None, _matcher(given.getlist("queue")))
    return _answer(_broker(request).detailed(asked))


def _matcher(given: Sequence[str]) -> Callable[[str], bool]:
    """Raises Refusal."""
    if not any(given):
        return lambda name: True
    if len(given) > 1:
        raise bad_request("Only one 'queue' query parameter is allowed")
    if len(given[0].encode("utf-8", "surrogatepass")) > QUEUE_BYTES_MAX:
        raise bad_request("'queue' regex too long")
    try:
        expression = re2.compile(given[0], options=_OPTIONS)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if error.args else "it is none"
        raise bad_request(f"Invalid 'queue' regex: {said}") from None
    # Octets of a name that are no UTF-8 match nothing.
    return lambda name: expression.search(name.encode("utf-8", "surrogateescape")) is not None


@router.get("/healthz")
async def alive(request: Request) -> Response:
    """The process answers. `cut_off`: how many sources it leads of which no majority of the nodes answers; that is no
    reason to start it again."""
    parts: BrokerParts = request.app.state.parts
    cut_off = parts.on.node.cluster.cut_off_count()
    return reply({"status": "ok", **({"cut_off": cut_off} if cut_off else {})})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """The node takes connections. `alarms`: publishers wait for these to end. 503, too, while it has no part in its
    cluster: the others refuse it, or do not reach it."""
    parts: BrokerParts = request.app.state.parts
    node = parts.on.node
    alarms = kinds(parts.on)
    if node.draining:
        return reply({"status": "failed", "reason": "the node is being shut down", "alarms": alarms}, 503)
    if isolated := node.cluster.isolation():
        return reply({"status": "failed", "reason": isolated, "alarms": alarms}, 503)
    cut_off = node.cluster.cut_off_count()
    if cut_off and len(node.sources.serving) <= len(node.cut_off_lanes):
        sources = "1 source" if cut_off == 1 else f"{cut_off} sources"
        reason = f"the node is cut off: no majority of the nodes that keep its quorum queues answers ({sources})"
        return reply({"status": "failed", "reason": reason, "alarms": alarms, "cut_off": cut_off}, 503)
    return reply({"status": "ok", "alarms": alarms, **({"cut_off": cut_off} if cut_off else {})})
