"""amqpd's management API against RabbitMQ's, answer by answer and field by field.

What comes in: two brokers with the same on them. What goes out: what is different, each with the reason why it may
be, or without one. `python -m tests.admin.compare` makes both and prints the table.
Rules: 1. Names that each broker gives by itself are replaced by a word before anything is compared. 2. Rows of lists
are found by what names them, not by their place, unless the request asked for an order. 3. Integers and other
numbers are one type.
Not here: what is asked (`asked.py`), which differences are allowed (`reasons.py`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from tests.admin.asked import NEWER, READ, UNREADABLE, WRONG
from tests.admin.both_brokers import Side, both, missing
from tests.admin.reasons import Reason, reason_of
from tests.admin.same_topology import MADE, MESSAGES, make_clients, wait_known

NAMING = (
    *("name", "vhost", "user", "exchange", "component", "source", "destination", "destination_type"),
    *("routing_key", "properties_key", "consumer_tag", "number", "protocol", "ip_address"),
)
HEADERS = ("content-type", "location", "allow", "www-authenticate")
ABSENT = "-"


class Difference(NamedTuple):
    """`kind`: missing, extra (a field of one side alone), type, value, status, header."""

    request: str
    kind: str
    field: str
    theirs: Any
    ours: Any

    @property
    def reason(self) -> Reason | None:
        return reason_of(self.request, self.kind, self.field)


def differences(theirs: Side, ours: Side) -> Iterator[Difference]:
    """Of all requests, in this order: what makes the topology, what reads, what is wrong."""
    for method, path, body in MADE + MESSAGES:
        yield from answers(theirs, ours, method, path, body)
    for side in (theirs, ours):
        make_clients(side)
        wait_known(side)
    for path in READ:
        yield from answers(theirs, ours, "GET", path)
    for path in NEWER:
        answer = ours.ask("GET", path)
        if answer.status_code != 200:
            yield Difference(f"GET {path}", "status", "200", 200, answer.status_code)
    for method, path, body, user in WRONG:
        yield from answers(theirs, ours, method, path, body, user=user)
    for content in UNREADABLE:
        yield from answers(theirs, ours, "PUT", "/queues/compared/unread", content=content)


def answers(
    theirs: Side, ours: Side, method: str, path: str, body: object = None, *, user: str = "guest", **more: Any
) -> Iterator[Difference]:
    asked = f"{method} {path}" + (f" as {user or 'nobody'}" if user != "guest" else "")
    one, other = (each.ask(method, path, body, user=user, **more) for each in (theirs, ours))
    if one.status_code != other.status_code:
        said = [f"{each.status_code} {each.text[:90]}" for each in (one, other)]
        yield Difference(asked, "status", str(one.status_code), *said)
        return
    for name in HEADERS:
        said = [
            renamed(side, unquote(each.headers.get(name, ABSENT))) for side, each in ((theirs, one), (ours, other))
        ]
        if said[0] != said[1] and not (name == "content-type" and not one.content):
            yield Difference(asked, "header", name, *said)
    ordered = "sort=" in path
    try:
        left, right = renamed(theirs, one.json()), renamed(ours, other.json())
    except ValueError:
        if one.text != other.text:
            yield Difference(asked, "value", "" if one.text else "empty", one.text[:90], other.text[:90])
        return
    for kind, field, a, b in walk(left, right, "", ordered):
        yield Difference(asked, kind, field, a, b)


Found = Iterator[tuple[str, str, Any, Any]]


def walk(theirs: Any, ours: Any, field: str, ordered: bool = False) -> Found:
    if type_of(theirs) != type_of(ours):
        yield "type", field, theirs, ours
    elif isinstance(theirs, dict):
        for name in sorted(theirs.keys() | ours.keys()):
            inner = f"{field}.{name}" if field else name
            if name not in ours:
                yield "missing", inner, theirs[name], ABSENT
            elif name not in theirs:
                yield "extra", inner, ABSENT, ours[name]
            else:
                yield from walk(theirs[name], ours[name], inner, ordered)
    elif isinstance(theirs, list):
        yield from _walk_rows(theirs, ours, field + "[]", ordered)
    elif theirs != ours:
        yield "value", field, theirs, ours


def _walk_rows(theirs: list[Any], ours: list[Any], field: str, ordered: bool) -> Found:
    left, right = _by_name(theirs), _by_name(ours)
    for name, row in left.items():
        if name in right:
            yield from walk(row, right[name], field, ordered)
        else:
            yield "missing", f"{field}{_said(name)}", row, ABSENT
    for name in right.keys() - left.keys():
        yield "extra", f"{field}{_said(name)}", ABSENT, right[name]
    if ordered and left.keys() == right.keys() and list(left) != list(right):
        yield "value", field + "order", list(map(_said, left)), list(map(_said, right))


def _by_name(rows: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for at, row in enumerate(rows):
        named = [f"{name}={row[name]}" for name in NAMING if name in row] if isinstance(row, dict) else [str(row)]
        name = " ".join(named)
        found[f"{name}#{at}" if name in found else name] = row
    return found


def _said(name: str) -> str:
    return f"({name})"


def type_of(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    kinds = {dict: "object", list: "list", str: "text", int: "number", float: "number"}
    return kinds[type(value)]


def renamed(side: Side, value: Any) -> Any:
    """What the side gave names to by itself, as `{node}` and so on."""
    if isinstance(value, dict):
        return {renamed(side, name): renamed(side, each) for name, each in value.items()}
    if isinstance(value, list):
        return [renamed(side, each) for each in value]
    if not isinstance(value, str):
        return value
    for name, own in sorted(side.names.items(), key=lambda each: -len(each[1])):
        if name != "port":
            value = value.replace(unquote(own), "{" + name + "}")
    return value


def main() -> int:
    if why := missing():
        print(why)
        return 2
    with tempfile.TemporaryDirectory() as directory, both(Path(directory)) as (theirs, ours):
        found = list(differences(theirs, ours))
    bare = [each for each in found if not each.reason]
    for each in bare if "--open" in sys.argv else found:
        values = f"{each.theirs!r:.120} | {each.ours!r:.120}"
        why = each.reason.why if each.reason else "NO REASON"
        print(f"{each.request} | {each.kind} | {each.field} | {values} | {why}")
    print(f"{len(found)} differences, {len(bare)} without a reason")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
