"""Log-in for a page in a browser: a user and a password for what the page sends with its requests from then on.

What comes in: a form. What goes out: a token for the header `Authorization`, and who it is.
Rules: 1. A password is checked as everywhere (`login.py`). 2. There is no session: the token is the user and the
password, as in RabbitMQ without an encryption secret.
"""

from __future__ import annotations

import base64
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd_admin.answers import gone, reply
from amqpd_admin.bodies import octets_of
from amqpd_admin.guarded import API
from amqpd_admin.login import by_password, log_in

router = APIRouter(prefix=API, tags=["login"])
# A name and a password, which anybody may send.
BYTES_MAX = 1 << 14


@router.post("/login")
async def enter(request: Request) -> Response:
    """`username` and `password`, as a form; without them, the header `Authorization` counts."""
    form = parse_qs((await octets_of(request, BYTES_MAX)).decode("utf-8", "replace"))
    if "username" not in form:
        who = await log_in(request)
        value = request.headers.get("authorization", "").partition(" ")[2]
    else:
        user, password = form["username"][0], form.get("password", [""])[0]
        who = await by_password(request, user, password.encode())
        value = base64.b64encode(f"{user}:{password}".encode()).decode()
    return reply({"token": {"type": "basic", "value": value}, "user": {"name": who.user, "tags": list(who.tags)}})


@router.delete("/login", status_code=204)
async def leave(request: Request) -> Response:
    """There is nothing to end."""
    await log_in(request)
    return gone()
