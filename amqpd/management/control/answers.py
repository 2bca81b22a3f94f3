"""How a command is answered: which of them there are, and the lines of an answer.

What comes in: a line with a command, who gives it, where its answer goes. What goes out: lines: any number with
`rows`, then one with `result`, or with `error`.
Rules: 1. A handler refuses by raising a `ManagementError`; any other exception is a bug of ours: it is logged with
its traceback, answered, and the broker goes on. Unless it says that the node cannot: a failure of its own, or damage
in what it reads. 2. Rows go in pages, so that no list is too long, and the broker goes on between them.
Not here: the commands (`commands.py`), the ways in: the control socket (`socket.py`), HTTP (`admin/`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import structlog
import trio

from amqpd.faults import ENDS_NODE
from amqpd.management.errors import BadArgument, ManagementError
from amqpd.management.operators import Operator

# A page of a listing ends at this size: some hundred rows, so a millisecond or two in which the broker does
# nothing else.
PAGE_BYTES = 64 << 10
# Or when it has taken this long.
PAGE_S = 0.005
# A value of a row that takes more (somebody's field table of megabytes) is left out, with a text in its place.
VALUE_BYTES_MAX = 256 << 10

Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Listing = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
Stream = Callable[[dict[str, Any]], AsyncGenerator[list[dict[str, Any]], None]]


class Result(dict[str, Any]):
    """The last element of a stream of rows, with the nodes that did not answer."""


EndedStream = Callable[[dict[str, Any]], AsyncGenerator[list[dict[str, Any]] | Result, None]]
Send = Callable[[Answer], Awaitable[None]]


_caller: ContextVar[Operator | None] = ContextVar("caller", default=None)

log = structlog.get_logger(component="control")


def caller() -> Operator:
    """The operator whose command is being carried out."""
    return _caller.get() or Operator()


class Commands:
    """The commands that a control server answers, by name. `handlers` maps a name to an async function from its
    arguments to its result (both JSON objects), `listings` to a function from its arguments to rows (JSON
    objects). Rows are taken one by one while the broker goes on between pages, so a listing walks over a copy of
    what it lists. `streams` are for rows that have to be waited for: an async iterator over lists of them, each
    sent at once, the empty ones too, as a sign of life."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        listings: Mapping[str, Listing] | None = None,
        streams: Mapping[str, EndedStream] | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self._listings = dict(listings or {})
        self._streams = dict(streams or {})

    def only(self, names: Collection[str]) -> Commands:
        """Those of these names."""
        handlers, listings, streams = (
            {name: each for name, each in found.items() if name in names}
            for found in (self._handlers, self._listings, self._streams)
        )
        return Commands(handlers, listings, streams)  # type: ignore[arg-type]

    async def answer(self, line: bytes, by: Operator, send: Send) -> None:
        """`line` is a JSON object with `command` and `arguments`. Raises what `send` raises, and what ends the
        node."""
        _caller.set(by)
        try:
            request = json.loads(line)
            command, arguments = request["command"], request.get("arguments", {})
            if not isinstance(command, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            await send(refusal(BadArgument('a command is one JSON object: {"command": NAME, "arguments": {...}}')))
            return
        try:
            if command in self._listings:
                await _send_rows(send, self._listings[command](arguments))
                result: dict[str, Any] = {}
            elif command in self._streams:
                result = await _send_stream(send, self._streams[command](arguments))
            elif command in self._handlers:
                result = await self._handlers[command](arguments)
            else:
                raise BadArgument(f"unknown command {command!r}")
            answer = {"ok": True, "result": result}
        except ManagementError as error:
            answer = refusal(error)
        except (*ENDS_NODE, trio.BrokenResourceError, trio.TooSlowError):
            raise
        except Exception:
            log.exception("control command failed", command=command)
            answer = refusal(ManagementError(f"{command} failed inside the broker: see its log"))
        await send(answer)


def refusal(error: ManagementError) -> Answer:
    return {"ok": False, "error": str(error), "kind": error.kind}


async def _send_rows(send: Send, rows: Iterable[dict[str, Any]]) -> None:
    """All rows, in pages; the page that is being filled is sent before it grows too long, or takes too long."""
    page: list[dict[str, Any]] = []
    page_bytes, begun_s = 0, trio.current_time()
    for row in rows:
        row_bytes = len(json.dumps(row))
        if row_bytes > VALUE_BYTES_MAX:
            row = {name: _bounded(value) for name, value in row.items()}
        page.append(row)
        page_bytes += min(row_bytes, VALUE_BYTES_MAX)
        # Some rows take long to find: of queues that are made for it.
        if page_bytes >= PAGE_BYTES or trio.current_time() - begun_s >= PAGE_S:
            await send({"ok": True, "rows": page})
            page, page_bytes, begun_s = [], 0, trio.current_time()
    if page:
        await send({"ok": True, "rows": page})


async def _send_stream(send: Send, rows: AsyncGenerator[list[dict[str, Any]] | Result, None]) -> dict[str, Any]:
    """Its result, empty if it has none."""
    result: dict[str, Any] = {}
    async with contextlib.aclosing(rows) as pages:
        async for page in pages:
            if isinstance(page, Result):
                result = dict(page)
            elif page:
                await _send_rows(send, page)
            else:
                await send({"ok": True, "rows": []})
    return result


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value))
    return value if size <= VALUE_BYTES_MAX else f"too long to list ({size} bytes)"
