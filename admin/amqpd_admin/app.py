"""The application: all routes, and what becomes of what they raise.

What comes in: the running broker, settings. What goes out: an ASGI application.
Rules: 1. Every route under /api asks who it is that asks, except those that say otherwise here. 2. The OpenAPI
document is what FastAPI makes of the routes: nothing is written twice.
Not here: the server (`server.py`), what a request may be at all (`shield.py`).
"""

from __future__ import annotations

import trio
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from amqpd import __version__
from amqpd.config import Settings
from amqpd.management.errors import ManagementError
from amqpd.management.face import Behind
from amqpd_admin import answers
from amqpd_admin.login import log_in
from amqpd_admin.routes import (
    bindings,
    connections,
    definitions,
    exchanges,
    health,
    limits,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    users,
    vhosts,
)
from amqpd_admin.shield import Shield

ROUTERS = (
    overview.router,
    health.router,
    connections.router,
    exchanges.router,
    queues.router,
    bindings.router,
    vhosts.router,
    users.router,
    permissions.router,
    policies.router,
    parameters.router,
    limits.router,
    definitions.router,
)


def make_app(behind: Behind, settings: Settings) -> ASGIApp:
    """Its document is at /api/openapi.json."""
    app = FastAPI(
        title="amqpd management API",
        version=__version__,
        description="RabbitMQ's management API, of amqpd.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.behind = behind
    app.state.settings = settings
    app.state.began = trio.current_time()
    for router in ROUTERS:
        app.include_router(router, prefix="/api", dependencies=[Depends(log_in)])
    app.add_exception_handler(answers.Refusal, answers.of_refusal)
    app.add_exception_handler(ManagementError, answers.of_use_case)
    app.add_exception_handler(RequestValidationError, answers.of_form)
    app.add_exception_handler(HTTPException, answers.of_route)
    app.add_exception_handler(Exception, answers.of_bug)
    return Shield(app, settings.http.body_bytes_max)
