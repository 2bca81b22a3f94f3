"""Commands of the control socket, for `amqpd --url`. Our own; RabbitMQ has no such route.

What comes in: the name of a command, its arguments as JSON. What goes out: the same lines as over the socket, one
JSON object each, as they come.
Rules: 1. To look is for who monitors, to act for administrators. Their permissions count for what commands do in
virtual hosts. 2. What needs files of
the broker's machine, or touches its records, is not there (`amqpd/management/control/remote.py`). 3. A refusal of a
command is a line of the answer, which has begun by then.
Not here: the commands (`amqpd/management/control/commands.py`).
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amqpd.management.control.remote import ACTS, LOOKS
from amqpd.management.errors import NotFound
from amqpd_admin.answers import bad_request
from amqpd_admin.bodies import body_of
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Administrator, Monitor, Who
from amqpd_admin.paths import Name
from amqpd_admin.trail import named

router = api_router("control", "/amqpd/control")

ARGUMENTS_LENGTH_MAX = 1 << 16
PUBLISH = "message publish"
"""its body may be as long as that of the API's own route for it"""


@router.get("/{command}")
async def look(request: Request, command: Name, who: Monitor) -> Response:
    """A command that changes nothing; `arguments` is a JSON object."""
    said = request.query_params.get("arguments") or "{}"
    try:
        arguments = json.loads(said) if len(said) <= ARGUMENTS_LENGTH_MAX else None
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request("arguments must be a JSON object")
    if command not in LOOKS:
        raise NotFound("Object Not Found")
    return Lines(who, command, arguments)


@router.post("/{command}")
async def act(request: Request, command: Name, who: Administrator) -> Response:
    """A command that does something; the body is its arguments."""
    if command not in ACTS:
        raise NotFound("Object Not Found")
    if command == PUBLISH:
        arguments = await body_of(request, request.app.state.settings.http.body_bytes_max)
    else:
        arguments = await body_of(request)
    # What a message says is nobody's business who reads the trail.
    said = {name: value for name, value in arguments.items() if name not in ("payload", "properties")}
    named(request, arguments=[json.dumps(said, sort_keys=True)])
    return Lines(who, command, arguments)


class Lines(Response):
    """The lines of a command's answer, sent while the command is carried out."""

    media_type = "application/x-ndjson"

    def __init__(self, who: Who, command: str, arguments: dict[str, Any]) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._who = who
        self._line = json.dumps({"command": command, "arguments": arguments}).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def send_line(answer: dict[str, Any]) -> None:
            line = json.dumps(answer).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})

        parts = self._who.parts
        await parts.commands.only(LOOKS | ACTS).answer(self._line, self._who.operator, send_line)
        parts.on.run_effects()
        await send({"type": "http.response.body", "body": b""})
