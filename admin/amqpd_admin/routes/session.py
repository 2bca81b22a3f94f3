"""The session of a browser: whose it is, begun, ended. Our own; RabbitMQ has no such route.

These routes ask nobody to log in before: that is what they are for.
"""

from __future__ import annotations

import secrets
from typing import Any

import structlog
import trio
from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd_admin import cookies
from amqpd_admin.answers import gone, reply
from amqpd_admin.bodies import body_of, text
from amqpd_admin.guarded import API
from amqpd_admin.login import SESSION_REALM, Asking, Who, by_password, by_session
from amqpd_admin.sessions import Sessions

router = APIRouter(prefix=API + "/amqpd/session", tags=["session"])
TOKEN_BYTES = 32
# A name and a password, which anybody may send.
BYTES_MAX = 1 << 14

log = structlog.get_logger(component="http")


def _row(who: Who | None) -> dict[str, Any]:
    return {"name": who.user if who else None, "tags": list(who.tags) if who else []}


@router.get("")
async def show(request: Request) -> Response:
    """Whose it is; `name` is null without one, which is no error: the pages ask it first."""
    return reply(_row(by_session(request)))


@router.post("", status_code=201)
async def begin(request: Request) -> Response:
    """`name`, `password`. The answer sets the cookie."""
    body = await body_of(request, BYTES_MAX)
    password = text(body, "password").encode("utf-8", "surrogatepass")
    who = await by_password(request, text(body, "name"), password, SESSION_REALM)
    token, sessions = secrets.token_urlsafe(TOKEN_BYTES), _sessions(request)
    sessions.end(cookies.token_of(request))
    sessions.begin(token, who.user, who.parts.on.node.topology.users[who.user].password_hash, trio.current_time())
    log.info("http session begun", user=who.user, address=request.client.host if request.client else "")
    response = reply(_row(who), 201)
    cookies.give(response, request.app.state.settings, token)
    return response


@router.delete("", status_code=204)
async def end(request: Request, who: Asking) -> Response:
    """Logged out."""
    _sessions(request).end(cookies.token_of(request))
    response = gone()
    cookies.take_back(response, request.app.state.settings)
    return response


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions
