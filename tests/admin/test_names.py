"""Every name and key that AMQP allows, put, read and deleted over HTTP: only that one is what happens to.

What comes in: names that look like each other's escapes. What goes out: what is there after each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.admin.conftest import Api
from tests.admin.inside import Inside, inside
from tests.harness.examples import EXAMPLES

NAME_BYTES_MAX = 255
TRICKY = [
    "%",
    "~",
    "/",
    "+",
    " ",
    ".",
    "?",
    "#",
    "&",
    ";",
    "2",
    "5",
    "7",
    "E",
    "F",
    "amq",
    "ü",
    "𝄞",
    "\x01",
    '"',
    "\\",
]
names = st.lists(st.sampled_from(TRICKY), min_size=1, max_size=8).map("".join)
octets = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=63)


@st.composite
def confusable(draw: Any) -> list[str]:
    """Names that are escapes of each other, and one that fills what a name may have."""
    found = [draw(names | octets)]
    for _ in range(draw(st.integers(1, 3))):
        found.append(draw(st.sampled_from([part, quote, unquote]))(found[-1]))
    found += [draw(names) * 255]
    fitting = [name.encode()[:NAME_BYTES_MAX].decode("utf-8", "ignore") for name in found]
    # Reserved names and control characters, which only queues and exchanges may have, are the subject of other tests.
    reserved = re.compile(r"amq\.|.*[\x00-\x1f\x7f]", re.DOTALL)
    return [name for name in dict.fromkeys(fitting) if name and not reserved.match(name)]


def part(name: str) -> str:
    """As a part of a path, with nothing left as it is."""
    return "".join(f"%{octet:02X}" for octet in name.encode("utf-8", "surrogateescape"))


class Kind(NamedTuple):
    """`path` of a thing with a name; `body` makes one; `field` is the name in a row."""

    path: str
    field: str
    body: Callable[[str], dict[str, Any]] = lambda name: {}


ALL = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^none$", "definition": {"max-length": 1}}
KINDS = [
    Kind("/vhosts/{}", "name"),
    Kind("/queues/%2F/{}", "name"),
    Kind("/exchanges/%2F/{}", "name", lambda name: {"type": "fanout"}),
    Kind("/policies/%2F/{}", "name", lambda name: POLICY),
    Kind("/operator-policies/%2F/{}", "name", lambda name: POLICY),
    Kind("/global-parameters/{}", "name", lambda name: {"name": name, "value": {"of": name}}),
    Kind("/users/{}", "name", lambda name: {"password_hash": "", "tags": ""}),
]
OF_VHOSTS = [
    Kind("/permissions/{}/clerk", "vhost", lambda name: ALL),
    Kind("/topic-permissions/{}/clerk", "vhost", lambda name: {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
    Kind("/parameters/unroutable/{}/default", "vhost", lambda name: {"value": "drop"}),
]
OF_USERS = [
    Kind("/permissions/%2F/{}", "user", lambda name: ALL),
    Kind("/topic-permissions/%2F/{}", "user", lambda name: {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
]


async def asked(api: Inside, method: str, path: str, body: object = None, *statuses: int) -> Any:
    answer = await api.ask(method, path, body)
    assert answer.status in statuses, (method, path, answer.status, answer.text)
    return answer


async def is_there(api: Inside, kind: Kind, name: str) -> bool:
    found = await asked(api, "GET", kind.path.format(part(name)), None, 200, 404)
    if found.status == 200:
        row = found.json()
        assert (row[0] if isinstance(row, list) else row)[kind.field] == name
    return bool(found.status == 200)


async def put_and_deleted(api: Inside, kind: Kind, some: list[str]) -> None:
    for name in some:
        await asked(api, "PUT", kind.path.format(part(name)), kind.body(name), 201, 204)
    for done, name in enumerate(some):
        there = [await is_there(api, kind, each) for each in some]
        assert there == [False] * done + [True] * (len(some) - done), kind
        await asked(api, "DELETE", kind.path.format(part(name)), None, 204)


@settings(max_examples=max(3, EXAMPLES // 5), phases=[Phase.explicit, Phase.generate])
@given(some=confusable())
def test_of_things_with_any_names_the_one_that_is_named_goes(some: list[str]) -> None:
    async def main() -> None:
        async with inside() as api:
            for kind in KINDS:
                await put_and_deleted(api, kind, some)
            for made, kinds in ((KINDS[0], OF_VHOSTS), (KINDS[-1], OF_USERS)):
                for name in some:
                    await asked(api, "PUT", made.path.format(part(name)), made.body(name), 201)
                for kind in kinds:
                    await put_and_deleted(api, kind, some)

    trio.run(main)


ENDS = "/bindings/%2F/e/amq.headers/q/q"


async def routing_keys(api: Inside) -> list[tuple[str, Any]]:
    rows = (await asked(api, "GET", ENDS, None, 200)).json()
    return sorted((row["routing_key"], str(row["arguments"])) for row in rows)


@settings(max_examples=max(3, EXAMPLES // 5), phases=[Phase.explicit, Phase.generate])
@given(
    keys=confusable(),
    more=st.sets(
        st.sampled_from(["", "~", "%7E", "%257E", "a/b", "a%2Fb", "a b", "a+b", "a%2Bb", "\udcff", "%FF", "\x01"])
    ),
)
def test_of_bindings_with_any_keys_the_one_that_is_named_goes(keys: list[str], more: set[str]) -> None:
    keys = list(dict.fromkeys([*more, *keys]))

    async def main() -> None:
        async with inside() as api:
            await asked(api, "PUT", "/queues/%2F/q", {}, 201)
            left, places = [], {}
            for key in keys:
                for arguments in ({}, {"n": 1}):
                    body = {"routing_key": key, "arguments": arguments}
                    made = await asked(api, "POST", ENDS, body, 201)
                    place = ENDS.rpartition("/")[0] + "/" + made.headers["location"]
                    row = (await asked(api, "GET", place, None, 200)).json()
                    assert (row["routing_key"], row["arguments"]) == (key, arguments)
                    assert made.headers["location"] == f"q/{quote(row['properties_key'])}"
                    places[place] = (key, str(arguments))
                    left.append(places[place])
            for place, binding in places.items():
                await asked(api, "DELETE", place, None, 204)
                left.remove(binding)
                assert await routing_keys(api) == sorted(left)
                await asked(api, "DELETE", place, None, 404)

    trio.run(main)


def test_over_a_socket_the_location_names_the_binding(api: Api) -> None:
    """The server decodes a path, too."""
    api.do("PUT", "/queues/%2F/located", {}, status=201)
    between = "/bindings/%2F/e/amq.direct/q/located"
    left = {"", "~", "%7E", "%257E"}
    places = {key: api.do("POST", between, {"routing_key": key}, status=201).headers["location"] for key in left}
    for key in ("~", "%7E", ""):
        api.do("DELETE", f"/bindings/%2F/e/amq.direct/q/{places[key]}", status=204)
        left.remove(key)
        assert {row["routing_key"] for row in api.get(between)} == left
    api.do("DELETE", "/queues/%2F/located", status=204)
