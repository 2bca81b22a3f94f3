"""The cookie of a session.

What comes in: requests, tokens. What goes out: the token of a request; headers that set and take back the cookie.
Rules: 1. No script reads it (HttpOnly), no other site's request carries it (SameSite=Strict), and under TLS nothing
goes without (Secure; the prefix `__Host-` keeps neighbours in the same domain from setting it). 2. Its name has the
port, because browsers give cookies to every port of a host: brokers on one machine must not log each other out.

Source: https://developer.mozilla.org/docs/Web/HTTP/Headers/Set-Cookie.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.config import Settings


def name_of(settings: Settings) -> str:
    return f"{'__Host-' if settings.http.tls else ''}amqpd-session-{settings.http.port}"


def token_of(request: Request) -> str:
    """Empty without one."""
    return request.cookies.get(name_of(request.app.state.settings), "")


def give(response: Response, settings: Settings, token: str) -> None:
    """Until the browser ends; the broker ends the session sooner or later."""
    response.set_cookie(
        name_of(settings), token, path="/", secure=settings.http.tls, httponly=True, samesite="strict"
    )


def take_back(response: Response, settings: Settings) -> None:
    response.delete_cookie(name_of(settings), path="/", secure=settings.http.tls, httponly=True, samesite="strict")
