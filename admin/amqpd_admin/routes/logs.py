"""The log and the audit log, as they are written. Our own; RabbitMQ has no such routes.

What comes in: a number, from which on somebody has seen nothing; what is looked for. What goes out: what came since.
Rules: 1. Who asks again with the `last` of the answer before sees each line once, or is told that some were `missed`.
2. What was there before a look began is in the files: here is as much as memory has. 3. Of a broker that was started
again numbers begin at 1: a number that is too high is of the one before it.
Not here: what a line looks like (`amqpd/process/logs.py`), how many are kept (`amqpd/management/figures/recent.py`),
the audit log's files (`amqpd audit show`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request
from starlette.responses import Response

from amqpd.management.figures.recent import Recent
from amqpd.management.pacing import each
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Monitor
from amqpd_admin.pieces import of_rows, written

router = api_router("logs", "/amqpd")

COUNT_MAX = 1000
LEVELS = ("debug", "info", "warning", "error", "critical")
_HEAD = re.compile(r"time=(\S+) level=(\w+) ?")

T = TypeVar("T")
After = Annotated[int, Query(ge=0, description="a number that was the last one")]
Count = Annotated[int, Query(ge=1, le=COUNT_MAX, description="at most so many, the newest")]
Search = Annotated[str, Query(max_length=200, description="in any case of letters")]


@router.get("/log")
async def log_lines(
    request: Request,
    who: Monitor,
    after: After = 0,
    count: Count = 200,
    level: Literal["debug", "info", "warning", "error", "critical"] = "debug",
    search: Search = "",
) -> Response:
    """Lines of the broker's log: `number`, `time`, `level`, `text`."""
    wanted, text = LEVELS[LEVELS.index(level) :], search.casefold()

    def row(number: int, line: str) -> dict[str, Any] | None:
        head = _HEAD.match(line)
        time, said = (head[1], head[2]) if head is not None else ("", "info")
        rest = line[head.end() :] if head is not None else line
        if said not in wanted or text not in rest.casefold():
            return None
        return {"number": number, "time": time, "level": said, "text": rest}

    return await _answer(request.app.state.recent_lines, after, count, row)


@router.get("/audit")
async def acts(
    request: Request,
    who: Monitor,
    after: After = 0,
    count: Count = 200,
    event: Annotated[str, Query(max_length=64)] = "",
    search: Search = "",
) -> Response:
    """What people and programs did, while the audit log records it: `number`, `event`, `time`, and what is known of
    `user`, `address`, `connection`, `vhost`, `object`, `reason`, `detail`."""
    text = search.casefold()

    def row(number: int, act: dict[str, Any]) -> dict[str, Any] | None:
        if event not in ("", act["event"]):
            return None
        if text and not any(text in str(value).casefold() for value in act.values()):
            return None
        return {"number": number, **act}

    level = request.app.state.settings.audit.level
    return await _answer(request.app.state.recent_acts, after, count, row, {"level": level})


async def _answer(
    recent: Recent[T],
    after: int,
    count: int,
    row: Callable[[int, T], dict[str, Any] | None],
    about: dict[str, Any] | None = None,
) -> Response:
    """The rows as `items`, oldest first, `found` of which `count` are here; `last`; whether some were `missed`."""
    kept = recent.after(after)
    rows = await each(kept, lambda pair: row(*pair))
    told = {
        "last": kept[-1][0] if kept else recent.last,
        "missed": bool(kept) and kept[0][0] != after + 1,
        "found": len(rows),
    }
    return of_rows(await each(rows[-count:], written), {**(about or {}), **told})
