"""Who changed what: each request that is to change something, in the log and in the audit log.

What comes in: requests on their way to their routes, whatever these are; answers on their way back. What goes out:
both as they are; a line of the log and an act of the audit log for each, before its answer is sent.
Rules: 1. It stands in front of all routes, so that none can be forgotten. 2. It says who, from where, what is done to
which thing, and what became of it; nothing of a body, a query or a header, so no password and no message. 3. What was
refused is in the log, and in the audit log too where permissions were the reason. 4. A request without an answer may
have changed something: it counts as one that did.
Not here: log-ins (`login.py`), what a use case says itself (`amqpd/management/`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpd.management.face import BrokerParts
from amqpd_admin.login import TRAIL, Who
from amqpd_admin.paths import decoded
from amqpd_admin.shield import SAFE

# By the first part of a route's path; of others that part is said. As the audit log names the same things elsewhere.
CALLED = {
    "queues": "queue",
    "exchanges": "exchange",
    "bindings": "binding",
    "connections": "connection",
    "users": "user",
    "alarms": "alarm of",
    "vhosts": "vhost",
    "permissions": "permission of",
    "topic-permissions": "topic permission of",
    "policies": "policy",
    "operator-policies": "operator policy",
    "parameters": "parameter",
    "global-parameters": "global parameter",
    "vhost-limits": "limit of vhost",
    "user-limits": "limit of user",
    "all-configuration": "definitions",
}
NOT_ALLOWED = (401, 403)
NO_ANSWER = 0
UNSAID = ("/login", "/amqpd/session", "/amqpd/definitions/plan")
"""they change nothing of the broker, and log-ins are told elsewhere"""

log = structlog.get_logger(component="operations")


class Trail:
    """A wrapper of the application, inside of `Shield`, that records requests which change something."""

    def __init__(self, app: ASGIApp, parts: BrokerParts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        status = NO_ANSWER
        said: dict[str, Any] = {}
        scope[TRAIL] = said

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start" and not status:
                status = message["status"]
                self._tell(said, status)
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            if not status:
                self._tell(said, status)

    def _tell(self, said: Mapping[str, Any], status: int) -> None:
        who: Who | None = said.get("who")
        if who is None:
            return  # nobody has logged in, or there is no such route
        request: Request = said["request"]
        # FastAPI may say it with the prefix of all of them, or without.
        route = request.scope["route"].path.removeprefix("/api")
        address = request.client.host if request.client is not None else ""
        if route in UNSAID:
            return
        vhost, thing = _thing(route, request.path_params)
        about = {"act": f"{request.method} {route}", "object": thing, "status": status, **said.get("named", {})}
        at = {} if vhost is None else {"vhost": vhost}
        if status >= 400:
            log.warning("change over http refused", user=who.user, address=address, **at, **about)
        else:
            log.info("changed over http", user=who.user, address=address, **at, **about)
        if status in NOT_ALLOWED or status < 400 or status >= 500:
            event = "permission_refused" if status in NOT_ALLOWED else "http_request"
            detail = json.dumps({name: value for name, value in about.items() if name != "object"}, sort_keys=True)
            columns = {"user": who.user, "address": address, "object": thing, "detail": detail, **at}
            self._parts.on.node.acts.over_http(event, columns)
            self._parts.on.run_effects()


def named(request: Request, **names: list[str]) -> None:
    """Things that a route's path does not name, for the log. Never what is secret."""
    request.scope[TRAIL]["named"] = names


def _thing(route: str, given: Mapping[str, Any]) -> tuple[str | None, str]:
    """The virtual host, and what it is called."""
    parts = route.removeprefix("/").removeprefix("amqpd/").split("/")
    names = {name.partition(":")[0]: decoded(str(value)) for name, value in given.items()}
    vhost = names.get("vhost")
    said = [value for name, value in names.items() if name not in ("vhost", "kind")]
    if parts[0] == "bindings" and "kind" in names:
        said = [names["source"], names["kind"], *said[1:]]
    if parts[0] in ("vhosts", "vhost-limits") and vhost is not None:
        said = [vhost, *said]
    return vhost, " ".join([CALLED.get(parts[0], parts[0]), *said])
