"""Lists as a client wants them: filtered, sorted, a page at a time, some columns of each row.

What comes in: things, a row of few fields for each and one of all; a request's parameters. What goes out: a list, or
a page with its counts.
Rules: 1. A row of all fields is made only of what is on the page, unless what is sorted by is in no other. 2. All of
it is done in steps (`amqpd/management/pacing.py`): things come and go in between, and what has gone by the time of
its row is left out. 3. What need not be sorted is written as soon as its row is made: rows are not in memory
together.
Not here: which things somebody may see (`routes/`), what their fields are (`rows/`), what the parameters say
(`views.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response

from amqpd.management.pacing import each, in_order
from amqpd_admin.pieces import of_rows, reply_with, written
from amqpd_admin.views import View, some_columns, view_of

T = TypeVar("T")
Row = dict[str, Any]
MISSING = "x-amqpd-nodes-missing"
"""the header with names of nodes that did not answer, as parts of a path have them"""


class Chosen(NamedTuple, Generic[T]):
    """The things on one page of a list, in order; with the rows, where they were needed to know that. `filtered`
    of `total` are what was asked for."""

    things: list[T]
    filtered: int
    total: int
    rows: list[Row] | None = None


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list of things that is filtered, sorted and written as rows. `things` are walked over in steps: None is a
    step at which there was nothing. `small` has what is in it for nothing; `whole` everything, or None when the
    thing is gone by then. `text` is where the parameter `name` is looked for, of things that have no name, or more
    than that. `more` adds to a row what only those get that are written. `ahead` is told of those whose `whole`
    rows are made next, and `missing` says which nodes' things, or what of them, are not in it. `choose` knows, for
    some orders, a shorter way than rows of all things."""

    things: Iterable[T | None]
    small: Callable[[T], Row]
    whole: Callable[[T], Row | None]
    text: Callable[[T], str] | None = None
    more: Callable[[T, Row], None] | None = None
    ahead: Callable[[Sequence[T]], Awaitable[None]] | None = None
    missing: Callable[[], list[str]] = list
    choose: Callable[[View], Awaitable[Chosen[T] | None]] | None = None

    def line(self, thing: T, row: Row, view: View) -> bytes:
        """What is written of it."""
        if self.more is not None:
            self.more(thing, row)
        return written(view.columns_of(row))


def of_made(rows: Iterable[Row], text: Callable[[Row], str] | None = None) -> Listing[Row]:
    """Of rows that are made already."""
    return Listing(rows, _same, _same, text)


def _same(row: Row) -> Row:
    return row


async def answer(request: Request, listing: Listing[T]) -> Response:
    """Raises Refusal."""
    view = view_of(request.query_params)
    chosen = None if listing.choose is None else await listing.choose(view)
    if chosen is None:
        chosen = await _chosen(listing, view)
    if chosen.rows is None and listing.ahead is not None:
        await listing.ahead(chosen.things)

    def line(pair: tuple[T, Row | None]) -> bytes | None:
        thing, made = pair
        row = listing.whole(thing) if made is None else made
        return None if row is None else listing.line(thing, row, view)

    made: list[Row] | list[None] = chosen.rows or [None] * len(chosen.things)
    texts = await each(zip(chosen.things, made, strict=True), line)
    return _answer(view, texts, chosen.filtered, chosen.total, listing.missing())


async def _chosen(listing: Listing[T], view: View) -> Chosen[T]:
    """By rows of few fields, or of all. Raises Refusal."""
    matches, total = view.matcher(), 0

    def found(thing: T) -> tuple[Row, T] | None:
        nonlocal total
        total += 1
        row = listing.small(thing)
        text = str(row.get("name", "")) if listing.text is None else listing.text(thing)
        return (row, thing) if matches(text) else None

    def with_row(pair: tuple[Row, T]) -> tuple[Row, T] | None:
        row = listing.whole(pair[1])
        return None if row is None else (row, pair[1])

    rows = await each(listing.things, found)
    are_whole = bool(view.sort and rows and view.sort[0].partition(".")[0] not in rows[0][0])
    if are_whole:
        if listing.ahead is not None:
            await listing.ahead([thing for _, thing in rows])
        rows = await each(rows, with_row)
    part = view.part(len(rows))
    ordered = await in_order(rows, lambda pair: view.key(pair[0]), reverse=view.reverse, first=part.stop)
    on_page = ordered[part]
    things = [thing for _, thing in on_page]
    return Chosen(things, len(rows), total, [row for row, _ in on_page] if are_whole else None)


async def one(request: Request, row: Row) -> Response:
    """One thing: `columns` counts for it, too."""
    columns = view_of({"columns": request.query_params.get("columns", "")}).columns
    return await reply_with(some_columns(row, columns) if columns else row)


def _answer(view: View, texts: list[bytes], filtered: int, total: int, missing: list[str]) -> Response:
    """A list of rows has no place for the nodes that are missing: a header has them in any case."""
    about = None
    if view.page is not None:
        about = {
            "total_count": total,
            "item_count": len(texts),
            "filtered_count": filtered,
            "page": view.page,
            "page_size": view.page_size,
            "page_count": -(-filtered // view.page_size),
        } | ({"nodes_missing": missing} if missing else {})
    answer = of_rows(texts, about)
    if missing:
        answer.headers[MISSING] = ", ".join(map(quote, missing))
    return answer
