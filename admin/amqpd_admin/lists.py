"""Lists as a client wants them: filtered, sorted, a page at a time, some columns of each row.

What comes in: things, a row of few fields for each and one of all; a request's parameters. What goes out: a list, or
a page with its counts.
Rules: 1. A row of all fields is made only of what is on the page, unless what is sorted by is in no other. 2. After
`TURN_S` the broker goes on. 3. Without `page` nothing is filtered by name: RabbitMQ does not, and tools count on it.
Not here: which things somebody may see (`routes/`), what their fields are (`rows/`).

Source: https://www.rabbitmq.com/docs/http-api-reference ("Pagination", "Sorting", "Filtering").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import re2
import trio
from fastapi import Request
from starlette.responses import Response

from amqpd_admin.answers import Refusal, bad_request, reply

T = TypeVar("T")
Row = dict[str, Any]

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
SORTED_BY = ("vhost", "name")

# Python's own engine may take for ever for some expressions, and cannot be stopped: anybody may ask for a list.
_OPTIONS = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.log_errors = False
# How long it takes grows with its size, too: at most a millisecond for a name.
_OPTIONS.max_mem = 1 << 13
PARAMETER_LENGTH_MAX = 500
"""of what a request says of the order, the columns and the name"""
TURN_S = 0.002
"""after so long the broker goes on"""


@dataclass(frozen=True)
class Listing(Generic[T]):
    """`small` has what is in it for nothing; `whole` everything, or None when the thing is gone by then."""

    things: Iterable[T]
    small: Callable[[T], Row]
    whole: Callable[[T], Row | None]


@dataclass(frozen=True)
class View:
    """What a request says of the list that it wants. `page` is None for the whole list."""

    page: int | None
    page_size: int
    name: str
    use_regex: bool
    sort: tuple[str, ...]
    reverse: bool
    columns: tuple[tuple[str, ...], ...]


def view_of(parameters: Mapping[str, str]) -> View:
    """Raises Refusal."""
    for name in ("columns", "sort", "name"):
        if len(parameters.get(name, "")) > PARAMETER_LENGTH_MAX:
            raise bad_request(f"{name} is longer than {PARAMETER_LENGTH_MAX} characters")
    page, size = _number(parameters, "page"), _number(parameters, "page_size")
    if page is not None and not (page > 0 and 0 < (PAGE_SIZE if size is None else size) <= PAGE_SIZE_MAX):
        said = f"page number {page}, page size {'undefined' if size is None else size}"
        raise Refusal(400, "invalid_pagination_parameters", f"Invalid pagination parameters: {said}")
    columns = (each.split(".") for each in parameters.get("columns", "").split(","))
    return View(
        page,
        size or PAGE_SIZE,
        parameters.get("name", "") if page is not None else "",
        parameters.get("use_regex") == "true",
        (parameters["sort"],) if parameters.get("sort") else (),
        parameters.get("sort_reverse") == "true",
        tuple(tuple(part for part in each if part) for each in columns if any(each)),
    )


class Pace:
    """Of one that has many steps: after `TURN_S` of them the broker goes on."""

    def __init__(self) -> None:
        self._until = trio.current_time() + TURN_S

    async def step(self) -> None:
        if trio.current_time() >= self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + TURN_S


async def answer(request: Request, listing: Listing[T]) -> Response:
    """Raises Refusal."""
    view = view_of(request.query_params)
    matches = _matcher(view)
    extended = bool(view.sort) and view.page is None
    small: list[tuple[Row, T]] = []
    total = 0
    pace = Pace()
    for thing in listing.things:
        total += 1
        row = listing.small(thing)
        if matches(str(row.get("name", ""))):
            small.append((row, thing))
        await pace.step()
    if view.sort and small and not _has(small[0][0], view.sort[0]):
        extended = True
    if extended:
        rows = await _wholes([thing for _, thing in small], listing)
        chosen = _paged(_sorted(rows, view), view, total)
    else:
        order = _sorted([{**row, _AT: at} for at, (row, _) in enumerate(small)], view)
        chosen = _paged(order, view, total)
        chosen = replaced(chosen, await _wholes([small[row[_AT]][1] for row in items(chosen)], listing))
    if view.columns:
        chosen = replaced(chosen, [some_columns(row, view.columns) for row in items(chosen)])
    return reply(chosen)


async def one(request: Request, row: Row) -> Response:
    """One thing: `columns` counts for it, too."""
    columns = view_of({"columns": request.query_params.get("columns", "")}).columns
    return reply(some_columns(row, columns) if columns else row)


_AT = "\0at"
"""where a row stood: no field has this name"""


def items(chosen: list[Row] | Row) -> list[Row]:
    found: list[Row] = chosen if isinstance(chosen, list) else chosen["items"]
    return found


def replaced(chosen: list[Row] | Row, rows: list[Row]) -> list[Row] | Row:
    return rows if isinstance(chosen, list) else {**chosen, "items": rows, "item_count": len(rows)}


def some_columns(row: Any, columns: Sequence[tuple[str, ...]]) -> Any:
    """`a.b` is the member b of a, whose other members are left out; lists are looked into."""
    if isinstance(row, list):
        return [some_columns(each, columns) for each in row]
    if not isinstance(row, dict):
        return row
    found = {}
    for name, value in row.items():
        below = [each[1:] for each in columns if each[0] == name]
        if below:
            found[name] = value if () in below else some_columns(value, below)
    return found


async def _wholes(things: Sequence[T], listing: Listing[T]) -> list[Row]:
    rows, pace = [], Pace()
    for thing in things:
        if (row := listing.whole(thing)) is not None:
            rows.append(row)
        await pace.step()
    return rows


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        raise Refusal(400, "bad_request", "Pagination parameters are invalid")
    return int(text)


def _matcher(view: View) -> Callable[[str], bool]:
    """Without regard to case, as in RabbitMQ."""
    if not view.name:
        return lambda name: True
    if not view.use_regex:
        wanted = view.name.lower()
        return lambda name: wanted in name.lower()
    try:
        expression = re2.compile(view.name, options=_OPTIONS)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if error.args else "it is none"
        raise bad_request(f"name is not a regular expression that amqpd takes: {said}") from None
    return lambda name: expression.search(name) is not None


def _has(row: Row, path: str) -> bool:
    return path.partition(".")[0] in row


def _sorted(rows: list[Row], view: View) -> list[Row]:
    by = (*view.sort, *(each for each in SORTED_BY if each not in view.sort))
    return sorted(rows, key=lambda row: [_key(row, path) for path in by], reverse=view.reverse)


def _key(row: Row, path: str) -> tuple[int, Any]:
    """Nothing is a zero; numbers, then texts, then all else, as Erlang has it."""
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            break
    if value is None or value == "":
        value = "" if value == "" else 0
    if isinstance(value, bool):
        return 1, str(value).lower()
    if isinstance(value, int | float):
        return 0, value
    return (2, value) if isinstance(value, str) else (3, str(value))


def _paged(rows: list[Row], view: View, total: int) -> list[Row] | Row:
    if view.page is None:
        return rows
    first = (view.page - 1) * view.page_size
    if view.page > 1 and first >= len(rows):
        said = f"Page out of range, page: {view.page} page size: {view.page_size}, len: {len(rows)}"
        raise Refusal(400, "page_out_of_range", said)
    part = rows[first : first + view.page_size]
    return {
        "total_count": total,
        "item_count": len(part),
        "filtered_count": len(rows),
        "page": view.page,
        "page_size": view.page_size,
        "page_count": -(-len(rows) // view.page_size),
        "items": part,
    }
