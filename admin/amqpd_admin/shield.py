"""What a request may be at all, before anybody looks at who sent it.

What comes in: requests as the server has read them. What goes out: the same with their path as it was written, or an
answer that refuses them.
Rules: 1. A path's parts are told apart before they are decoded: the virtual host "/" is one part, `%2F`. 2. A change
that a browser makes on behalf of another site is refused: it would come with the password that the browser remembers.
3. A body has a bound. 4. HEAD is GET without the body. 5. A session's cookie comes by itself, too: with it, a change
must prove that it is of this site (`is_own`, which `login.py` asks).
Not here: who may do what (`login.py`).

Source: https://developer.mozilla.org/docs/Web/HTTP/Headers/Sec-Fetch-Site (Fetch Metadata), RFC 6454 (Origin).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpd_admin.answers import refusal

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# Of a body that is too long: a client that still sends when it is answered may see no answer, but a reset.
DRAINED_BYTES_MIN = 1 << 20
DRAIN_S = 2.0


class Shield:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, body_bytes_max: int) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # nothing is served that way
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        body = _Body(receive, self._body_bytes_max)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.ended:
                # Else the server closes the connection, and the client's next request on it fails without a word.
                await body.drain()
                if not body.ended:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        if scope["method"] not in SAFE and _is_foreign(headers):
            foreign = refusal(403, "forbidden", "a request on behalf of another site changes nothing")
            await foreign(scope, receive, answer)
            return
        if int(headers.get(b"content-length", b"0") or b"0") > self._body_bytes_max:
            await refusal(400, "bad_request", "Exceeded HTTP request body size limit")(scope, receive, answer)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        inner = {**scope, "path": raw.decode("ascii", "replace")}
        outward: Send = answer
        if scope["method"] == "HEAD":
            inner["method"], outward = "GET", _without_body(answer)
        await self._app(inner, body.receive, outward)


class _Body:
    """Of one request. One that says no length ends where it is too long, and is not JSON then."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._came = 0
        self.ended = False
        """all of it has come, or the client has left"""

    async def receive(self) -> Message:
        message = await self._next()
        return {"type": "http.disconnect"} if self._came > self._bytes_max else message

    async def drain(self) -> None:
        """What is left of it, up to a bound."""
        with trio.move_on_after(DRAIN_S):
            while not self.ended and self._came <= max(self._bytes_max, DRAINED_BYTES_MIN):
                await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._came += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        return message


def _is_foreign(headers: dict[bytes, bytes]) -> bool:
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return True
    origin = headers.get(b"origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode("latin-1") != headers.get(b"host", b"")
    except ValueError:
        return True


def is_own(headers: Mapping[str, str]) -> bool:
    """The browser says that a page of this broker asks. Without TLS it leaves out Sec-Fetch-Site, never Origin."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
        return False
    return headers.get("sec-fetch-site", "same-origin" if origin is not None else "") == "same-origin"


def _without_body(send: Send) -> Send:
    async def headers_alone(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return headers_alone
