"""Answers of one form: refusals, and what became of a change.

What comes in: refusals of use cases. What goes out: RabbitMQ's status codes, with `error` and `reason`.
Rules: 1. A refusal's `reason` is the use case's sentence. 2. What is none of these is a bug, and ends as 500 with
nothing of it but where to look.
Not here: which use case raises what (`amqpd/management/errors.py`).

Source: https://www.rabbitmq.com/docs/http-api-reference (which code for what); `error` as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

import json
from typing import Any

import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from amqpd.management.errors import (
    AlreadyExists,
    AtAnotherNode,
    BadArgument,
    Conflict,
    ManagementError,
    NotFound,
    NotPermitted,
    Unavailable,
)
from amqpd.management.plain_words import plain
from amqpd_admin.paths import decoded

STATUS: dict[type[ManagementError], tuple[int, str]] = {
    BadArgument: (400, "bad_request"),
    NotFound: (404, "not_found"),
    AlreadyExists: (400, "bad_request"),
    NotPermitted: (401, "not_authorised"),
    Conflict: (400, "bad_request"),
    Unavailable: (503, "service_unavailable"),
}
BUG = (500, "internal_server_error")
NAMES = {404: "Object Not Found", 405: "method_not_allowed"}
# RabbitMQ's order in `Allow`; each route answers OPTIONS, and HEAD where it answers GET.
METHODS = ("HEAD", "GET", "PUT", "POST", "DELETE", "OPTIONS")

log = structlog.get_logger(component="http")


class Refusal(Exception):
    """A request is refused by this package itself, with a response of its own."""

    def __init__(
        self, status: int, error: str, reason: str | list[str], headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(str(reason))
        self.response = refusal(status, error, reason, headers)


class Json(Response):
    """A response of JSON. Names that are no UTF-8, which clients may give, are written in escapes (RFC 8259
    section 8.2)."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def reply(content: Any, status: int = 200) -> Response:
    return Json(content, status, {"cache-control": "no-cache"})


def refusal(status: int, error: str, reason: str | list[str], headers: dict[str, str] | None = None) -> Response:
    said = plain(reason) if isinstance(reason, str) else reason
    # Tools compare the reason: what our pages show instead stands beside it.
    beside = {} if said == reason else {"says": said}
    return Json({"error": error, "reason": reason, **beside}, status, headers)


def bad_request(reason: str | list[str]) -> Refusal:
    return Refusal(400, "bad_request", reason)


def invalid(error: BadArgument) -> Refusal:
    """A policy, a parameter or a limit that the broker could not use, in RabbitMQ's form: `error` says in front of a
    colon what is not valid."""
    said = str(error)
    return bad_request(f"Validation failed\n\n{said.partition(' is not valid: ')[2] or said}\n")


def not_there() -> Refusal:
    """What RabbitMQ says of anything that is not there."""
    return Refusal(404, "Object Not Found", "Not Found")


def changed(new: bool) -> Response:
    """Of a PUT: whether the thing is new."""
    return Response(status_code=201 if new else 204)


def gone() -> Response:
    return Response(status_code=204)


async def of_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response


async def of_use_case(request: Request, error: Exception) -> Response:
    status, name = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), BUG)
    if not isinstance(error, NotFound) or isinstance(error, AtAnotherNode):
        return refusal(status, name, str(error))
    if request.method not in ("PUT", "POST"):
        return not_there().response
    vhost = request.path_params.get("vhost")
    if vhost is not None and decoded(vhost) not in request.app.state.parts.on.node.topology.vhosts:
        return refusal(status, name, "vhost_not_found")
    return refusal(status, name, str(error))


async def of_form(_: Request, error: Exception) -> Response:
    """What FastAPI refuses: a body or a parameter that is not of its form."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return refusal(400, "bad_request", "not_json")
    where = ".".join(str(each) for each in first["loc"] if each not in ("body", "query"))
    return refusal(400, "bad_request", f"{where}: {first['msg']}" if where else first["msg"])


async def of_route(request: Request, error: Exception) -> Response:
    """No such route, or no such method; OPTIONS asks which there are, and needs no log-in."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        headers = {"allow": ", ".join(_allowed(request))}
        if request.method == "OPTIONS":
            return Response(headers=headers)
        return refusal(405, NAMES[405], "Method Not Allowed", headers)
    name = NAMES.get(error.status_code, "bad_request")
    reason = "Not Found" if error.status_code == 404 else str(error.detail)
    return refusal(error.status_code, name, reason, dict(error.headers or {}))


def _allowed(request: Request) -> list[str]:
    found = {"OPTIONS"}
    for path, methods in request.app.state.methods:
        if path.match(request.scope["path"]):
            found |= methods
    if "GET" in found:
        found.add("HEAD")
    return [each for each in METHODS if each in found]


async def of_bug(request: Request, _: Exception) -> Response:
    """The server has the exception, too, and logs it."""
    return refusal(500, "internal_server_error", f"{request.method} failed inside the broker: see its log")
