"""The application: all routes, and what becomes of what they raise.

What comes in: the running broker, settings. What goes out: an ASGI application.
Rules: 1. Every route under /api asks who it is that asks (`guarded.py`); those of `routes/metrics.py` say it
themselves. 2. The OpenAPI document is what FastAPI makes of the routes: nothing is written twice.
Not here: the server (`server.py`), what a request may be at all (`shield.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import trio
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp

from amqpd import __version__
from amqpd.config import Settings
from amqpd.management.errors import ManagementError
from amqpd.management.face import BrokerParts
from amqpd.management.figures.recent import Recent, recent_acts
from amqpd_admin import answers
from amqpd_admin.document import document_of
from amqpd_admin.fatal import Fatal
from amqpd_admin.hosts import Hosts
from amqpd_admin.login import log_in
from amqpd_admin.pieces import written
from amqpd_admin.routes import (
    absent,
    access,
    alarms,
    attempts,
    attention,
    bindings,
    checks,
    cluster,
    connections,
    control,
    definition_plans,
    definitions,
    downloads,
    exchanges,
    health,
    limits,
    logs,
    messages,
    metrics,
    nodes,
    overview,
    pages,
    parameters,
    permissions,
    policies,
    queues,
    quorum_checks,
    rabbitmq_login,
    reference,
    session,
    users,
    vhosts,
    why,
)
from amqpd_admin.sessions import Sessions
from amqpd_admin.shield import Shield
from amqpd_admin.trail import Trail

ROUTERS = (
    overview.router,
    nodes.router,
    attempts.router,
    health.router,
    checks.router,
    quorum_checks.router,
    connections.router,
    exchanges.router,
    queues.router,
    messages.router,
    why.router,
    alarms.router,
    attention.router,
    logs.router,
    cluster.router,
    control.router,
    bindings.router,
    vhosts.router,
    users.router,
    permissions.router,
    access.router,
    policies.router,
    parameters.router,
    limits.router,
    definitions.router,
    definition_plans.router,
    absent.router,
    rabbitmq_login.router,
    metrics.router,
    session.router,
    reference.router,
    downloads.router,
    pages.router,
)
ROUTES: list[BaseRoute] = [*chain.from_iterable(router.routes for router in ROUTERS)]


def make_app(
    parts: BrokerParts,
    settings: Settings,
    addresses: Sequence[str],
    *,
    hosts: Hosts,
    fatal: Callable[[BaseException], None],
    recent_lines: Recent[str],
) -> ASGIApp:
    """Its document is at /api/openapi.json. `addresses`: where it is served, as URLs. `fatal` is told of what ends
    the node. `recent_lines`: of the log."""
    app = FastAPI(
        title="amqpd management API",
        version=__version__,
        description="RabbitMQ's management API, of amqpd.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=ROUTES.copy(),
    )
    app.state.parts = parts
    app.state.settings = settings
    app.state.addresses = addresses
    app.state.began = trio.current_time()
    app.state.sessions = Sessions()
    app.state.recent_lines = recent_lines
    app.state.recent_acts = recent_acts(parts.on)
    app.state.methods = [
        (compile_path(route.path)[0], route.methods) for route in app.routes if isinstance(route, APIRoute)
    ]
    app.add_api_route("/api/openapi.json", document, dependencies=[Depends(log_in)], include_in_schema=False)
    app.add_exception_handler(answers.Refusal, answers.of_refusal)
    app.add_exception_handler(ManagementError, answers.of_use_case)
    app.add_exception_handler(RequestValidationError, answers.of_form)
    app.add_exception_handler(HTTPException, answers.of_route)
    app.add_exception_handler(Exception, answers.of_bug)
    # Inside of what answers 500 to any exception, which would first send that.
    app.add_middleware(Fatal, tell=fatal)
    return Shield(Trail(app, parts), settings.http.body_bytes_max, hosts)


async def document(request: Request) -> Response:
    """All routes. It is made once, which takes some tenths of a second, away from the loop."""
    app: FastAPI = request.app
    if not hasattr(app.state, "document"):
        app.state.document = await trio.to_thread.run_sync(lambda: written(document_of(app)))
    return Response(app.state.document, media_type="application/json")
