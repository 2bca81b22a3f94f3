"""What a request says of the list that it wants: which page, which names, in which order, which columns.

What comes in: a request's parameters. What goes out: a `View`, which matches names, orders rows, and picks columns.
Rules: 1. Without `page` nothing is filtered by name: RabbitMQ does not, and tools count on it. 2. Nothing is a zero;
numbers come before texts, and texts before all else, as Erlang has it.
Not here: the walk over what is listed (`lists.py`).

Source: https://www.rabbitmq.com/docs/http-api-reference ("Pagination", "Sorting", "Filtering").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from amqpd_admin.answers import Refusal, bad_request

Row = dict[str, Any]
Columns = Mapping[str, Any]
"""by name of a column: the columns within it, or None for all of it"""

PAGE_SIZE, PAGE_SIZE_MAX = 100, 500
SORTED_BY = ("vhost", "name")


def _options(*, any_case: bool) -> re2.Options:
    # Python's own engine may take for ever for some expressions, and cannot be stopped: anybody may ask for a list.
    options = re2.Options()
    options.case_sensitive = not any_case
    options.log_errors = False
    # How long it takes grows with its size, too: at most a millisecond for a name.
    options.max_mem = 1 << 13
    return options


_OPTIONS = {any_case: _options(any_case=any_case) for any_case in (True, False)}
PARAMETER_LENGTH_MAX = 500
"""of what a request says of the order and the name"""
COLUMNS_LENGTH_MAX = 8 << 10
"""of all columns together: every column of a queue, by its whole name, is a tenth of it"""


def expression(text: str, *, what: str = "name", any_case: bool = True) -> Callable[[str], bool]:
    """Of names. `what`: the parameter that it is; `any_case`: letters are equal in both cases. Raises Refusal."""
    try:
        compiled = re2.compile(text, options=_OPTIONS[any_case])
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if error.args else "it is none"
        raise bad_request(f"{what} is not a regular expression that amqpd takes: {said}") from None
    # Octets of a name that are no UTF-8 match nothing.
    return lambda name: compiled.search(name.encode("utf-8", "surrogateescape")) is not None


@dataclass(frozen=True)
class View:
    """The part of a list that a request wants: page, names, order and columns. `page` is None for the whole list."""

    page: int | None
    page_size: int
    name: str
    use_regex: bool
    sort: tuple[str, ...]
    reverse: bool
    columns: Columns

    def matcher(self) -> Callable[[str], bool]:
        """Of names, without regard to case, as in RabbitMQ. Raises Refusal."""
        if not self.name:
            return lambda name: True
        if not self.use_regex:
            wanted = self.name.lower()
            return lambda name: wanted in name.lower()
        return expression(self.name)

    @property
    def by_names(self) -> bool:
        """The order follows from virtual hosts and names alone."""
        return not self.sort or self.sort[0] in SORTED_BY

    def key(self, row: Row) -> list[tuple[int, Any]]:
        """Rows are in the order of these."""
        by = (*self.sort, *(each for each in SORTED_BY if each not in self.sort))
        return [ranked(value_of(row, path)) for path in by]

    def part(self, count: int) -> slice:
        """What of `count` rows is wanted. Raises Refusal for a page behind the last one."""
        if self.page is None:
            return slice(0, count)
        first = (self.page - 1) * self.page_size
        if self.page > 1 and first >= count:
            said = f"Page out of range, page: {self.page} page size: {self.page_size}, len: {count}"
            raise Refusal(400, "page_out_of_range", said)
        return slice(first, first + self.page_size)

    def columns_of(self, row: Row) -> Row:
        found: Row = some_columns(row, self.columns) if self.columns else row
        return found


def view_of(parameters: Mapping[str, str]) -> View:
    """Raises Refusal."""
    for name, most in (
        ("columns", COLUMNS_LENGTH_MAX),
        ("sort", PARAMETER_LENGTH_MAX),
        ("name", PARAMETER_LENGTH_MAX),
    ):
        if len(parameters.get(name, "")) > most:
            raise bad_request(f"{name} is longer than {most} characters")
    page, size = _number(parameters, "page"), _number(parameters, "page_size")
    if page is not None and not (page > 0 and 0 < (PAGE_SIZE if size is None else size) <= PAGE_SIZE_MAX):
        said = f"page number {page}, page size {'undefined' if size is None else size}"
        raise Refusal(400, "invalid_pagination_parameters", f"Invalid pagination parameters: {said}")
    return View(
        page,
        size or PAGE_SIZE,
        parameters.get("name", "") if page is not None else "",
        parameters.get("use_regex") == "true",
        (parameters["sort"],) if parameters.get("sort") else (),
        parameters.get("sort_reverse") == "true",
        columns_in(parameters.get("columns", "")),
    )


def columns_in(text: str) -> Columns:
    """What `a,b.c,b.d` wants. A column is taken whole, whatever is said of its members before or behind it."""
    wanted: dict[str, Any] = {}
    for path in text.split(","):
        *above, last = [part for part in path.split(".") if part] or [""]
        within: dict[str, Any] | None = wanted
        for part in above:
            within = None if within is None else within.setdefault(part, {})
        if last and within is not None:
            within[last] = None
    return wanted


def some_columns(row: Any, columns: Columns) -> Any:
    """`a.b` is the member b of a, whose other members are left out; lists are looked into."""
    if isinstance(row, list):
        return [some_columns(each, columns) for each in row]
    if not isinstance(row, dict):
        return row
    return {
        name: value if (below := columns[name]) is None else some_columns(value, below)
        for name, value in row.items()
        if name in columns
    }


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        raise Refusal(400, "bad_request", "Pagination parameters are invalid")
    return int(text)


def value_of(row: Row, path: str) -> Any:
    """None: there is no such member."""
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            break
    return value


def ranked(value: Any) -> tuple[int, Any]:
    """Rule 2."""
    if value is None:
        value = 0
    if isinstance(value, bool):
        return 1, str(value).lower()
    if isinstance(value, int | float):
        return 0, value
    return (2, value) if isinstance(value, str) else (3, str(value))
