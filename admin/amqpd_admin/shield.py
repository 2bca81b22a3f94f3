"""What a request may be at all, before anybody looks at who sent it.

What comes in: requests as the server has read them. What goes out: the same with their path as routes know it
(`paths.py`), or an answer that refuses them.
Rules: 1. A path's parts are told apart before they are decoded: the virtual host "/" is one part, `%2F`. 2. A change
that a browser makes on behalf of another site is refused: it would come with the password that the browser remembers.
3. A body has a bound, and all bodies together. Nothing of one is held before somebody asks for it, which is after the
log-in. 4. HEAD is GET without the body. 5. A session's cookie comes by itself, too: with it, a change must prove that
it is of this site (`is_own`, which `login.py` asks). 6. A browser asks under one of the broker's names (`hosts.py`).
7. A request that only looks ends with its client; one that changes something goes on to its end.
Not here: who may do what (`login.py`), how long a request may take (`connection.py`).

Source: https://developer.mozilla.org/docs/Web/HTTP/Headers/Sec-Fetch-Site (Fetch Metadata), RFC 6454 (Origin).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import structlog
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpd_admin import held
from amqpd_admin.answers import Refusal, bad_request, refusal
from amqpd_admin.held import Held
from amqpd_admin.hosts import Hosts
from amqpd_admin.paths import is_escaped, routed

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# Of a body that is too long: a client that still sends when it is answered may see no answer, but a reset.
DRAINED_BYTES_MIN = 1 << 20
DRAIN_S = 2.0
RETRY_AFTER_S = 5

log = structlog.get_logger(component="http")


class Shield:
    """A wrapper of the whole application that refuses requests which must not reach it, whoever sent them."""

    def __init__(self, app: ASGIApp, body_bytes_max: int, hosts: Hosts) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max
        self._hosts = hosts
        self._held = Held(max(held.BYTES_MAX, body_bytes_max))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # nothing is served that way
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        body = _Body(receive, self._body_bytes_max, self._held)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.ended:
                # Else the server closes the connection, and the client's next request on it fails without a word.
                await body.drain()
                if not body.ended:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        strange = self._hosts.refuse(headers)
        if strange is not None:
            log.warning("http access denied", reason=strange, address=(scope["client"] or ("",))[0])
            await refusal(421, "misdirected_request", strange)(scope, receive, answer)
            return
        if scope["method"] not in SAFE and _is_foreign(headers):
            foreign = refusal(403, "forbidden", "a request on behalf of another site changes nothing")
            await foreign(scope, receive, answer)
            return
        if int(headers.get(b"content-length", b"0") or b"0") > self._body_bytes_max:
            await refusal(400, "bad_request", "Exceeded HTTP request body size limit")(scope, receive, answer)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        if not is_escaped(raw):
            reason = "a percent sign of the path is not followed by two hexadecimal digits: itself it is %25"
            await refusal(400, "bad_request", reason)(scope, receive, answer)
            return
        inner = {**scope, "path": routed(raw)}
        outward: Send = answer
        if scope["method"] == "HEAD":
            inner["method"], outward = "GET", _without_body(answer)
        try:
            if scope["method"] in SAFE:
                await self._until_left(inner, body, outward)
            else:
                await self._app(inner, body.receive, outward)
        finally:
            body.give_back()

    async def _until_left(self, scope: Scope, body: _Body, send: Send) -> None:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(body.wait_left, nursery.cancel_scope)
            try:
                await self._app(scope, body.receive, send)
            except Exception as error:  # noqa: BLE001 - as it is, and not in a nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


class _Body:
    """The body of one request, received up to its bound."""

    def __init__(self, receive: Receive, bytes_max: int, all_held: Held) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._all_held = all_held
        self._came = self._counted = 0
        self._left = self._drained = False
        self._turn, self._leaving = trio.Lock(), trio.Lock()
        self.ended = False
        """all of it has come, or the client has left"""

    async def receive(self) -> Message:
        """For what holds it. Raises Refusal."""
        before = self._came
        message = await self._next()
        if self._drained:
            # Somebody waits for the client to leave, and holds nothing.
            return message
        if self._came > self._bytes_max:
            raise bad_request("Exceeded HTTP request body size limit")
        counted = self._all_held.take(before, self._came - before)
        if counted is None:
            reason = "the requests that come just now are too large all together: try again"
            raise Refusal(503, "service_unavailable", reason, {"retry-after": str(RETRY_AFTER_S)})
        self._counted += counted
        return message

    async def drain(self) -> None:
        """What is left of it, up to a bound. Nobody holds what comes from here on."""
        self._drained = True
        with trio.move_on_after(DRAIN_S):
            while not self.ended and self._came <= max(self._bytes_max, DRAINED_BYTES_MIN):
                await self._next(unless_ended=True)

    async def wait_left(self, scope: trio.CancelScope) -> None:
        """Cancels it when the client has left. A body that comes meanwhile is held by nobody."""
        self._drained = True
        while not self._left:
            await self._next()
        scope.cancel()

    def give_back(self) -> None:
        """The request ends."""
        self._all_held.give_back(self._counted)
        self._counted = 0

    async def _next(self, *, unless_ended: bool = False) -> Message:
        # Several listen for the client to leave: they may take the last of the body from under what drains, which
        # must not wait behind them.
        async with self._turn:
            if not self.ended:
                return await self._take()
        if unless_ended:
            return {"type": "http.disconnect"}
        async with self._leaving:
            return {"type": "http.disconnect"} if self._left else await self._take()

    async def _take(self) -> Message:
        message = await self._receive()
        self._left = message["type"] == "http.disconnect"
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
