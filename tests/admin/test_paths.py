"""A slash at the end of a path says nothing, and an empty part in the middle is a name.

What comes in: paths as clients write them. What goes out: what routes make of them.
Not here: names with other characters (`test_things.py`).

Source: what RabbitMQ 3.10 answers to the same requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqpd_admin import paths
from amqpd_admin.paths import decoded, routed
from tests.admin.inside import Inside, inside

MESSAGE = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        (b"/", ["", ""]),
        (b"//", ["", ""]),
        (b"/api", ["", "api"]),
        (b"/api/users/", ["", "api", "users"]),
        (b"/api/users//", ["", "api", "users", ""]),
        (b"/api/queues/%2F", ["", "api", "queues", "/"]),
        (b"/api/queues/%2F/", ["", "api", "queues", "/"]),
        (b"/api/queues/%2F/%2F", ["", "api", "queues", "/", "/"]),
        (b"/api/queues/%2F/a%2F/", ["", "api", "queues", "/", "a/"]),
        (b"/api/exchanges/%2F//publish", ["", "api", "exchanges", "/", "", "publish"]),
        (b"//api/users", ["", "", "api", "users"]),
        (b"http://localhost:15672/api/users", ["", "api", "users"]),
        (b"HTTPS://broker/api/queues/%2F/a%2Fb", ["", "api", "queues", "/", "a/b"]),
        (b"/http://localhost/api", ["", "http:", "", "localhost", "api"]),
    ],
)
def test_parts_of_a_path(written: bytes, parts: list[str]):
    path = routed(written)
    assert [decoded(part) for part in path.split("/")] == parts or (path.strip("/") == "" and parts == ["", ""])


def test_no_client_can_write_what_stands_for_an_empty_part():
    spelt = paths.EMPTY.encode("utf-8", "surrogatepass")
    assert paths.EMPTY not in routed(b"/api/queues/%2F/" + spelt)
    assert paths.EMPTY not in decoded("".join(f"%{octet:02X}" for octet in spelt))


async def both_ways(api: Inside, method: str, path: str, body: Any = None) -> list[Any]:
    """Answers to the path with a slash at its end, and without it."""
    answers = [await api.ask(method, each, body) for each in (path + "/", path)]
    return [(each.status, each.json() if each.text else None) for each in answers]


@pytest.mark.trio
async def test_a_slash_at_the_end_says_nothing_of_lists_and_things():
    async with inside() as api:
        await api.ask("PUT", "/queues/%2F/q", {})
        for path in ("/users", "/vhosts", "/queues", "/queues/%2F", "/queues/%2F/q", "/exchanges/%2F", "/whoami"):
            with_slash, without = await both_ways(api, "GET", path)
            assert with_slash == without, path
            assert with_slash[0] == 200, path


@pytest.mark.trio
async def test_a_slash_at_the_end_says_nothing_of_changes():
    async with inside() as api:
        assert (await api.ask("PUT", "/queues/%2F/q/", {})).status == 201
        assert [status for status, _ in await both_ways(api, "PUT", "/queues/%2F/q", {})] == [204, 204]
        assert (await api.ask("POST", "/exchanges/%2F/amq.default/publish/", MESSAGE)).json() == {"routed": True}
        assert (await api.ask("DELETE", "/queues/%2F/q/contents/")).status == 204
        assert (await api.ask("HEAD", "/queues/%2F/q/")).status == 200
        allowed = await api.ask("OPTIONS", "/queues/%2F/q/")
        assert (allowed.status, allowed.headers["allow"]) == (200, "HEAD, GET, PUT, DELETE, OPTIONS")
        assert (await api.ask("DELETE", "/queues/%2F/q/")).status == 204
        changed = [columns["detail"] for event, columns in api.told.rows if event == "http_request"]
        assert len(changed) == 6, "the trail names the same routes"


@pytest.mark.trio
async def test_names_that_end_with_a_slash_are_others():
    async with inside() as api:
        for name in ("%2F", "a", "a%2F"):
            assert (await api.ask("PUT", f"/queues/%2F/{name}/", {})).status == 201, name
        names = [each["name"] for each in (await api.ask("GET", "/queues/%2F?columns=name")).json()]
        assert sorted(names) == ["/", "a", "a/"]


@pytest.mark.trio
async def test_the_default_exchange_has_its_empty_name():
    async with inside() as api:
        await api.ask("PUT", "/queues/%2F/q", {})
        for name in ("", "amq.default"):
            published = await api.ask("POST", f"/exchanges/%2F/{name}/publish", MESSAGE)
            assert (published.status, published.json()) == (200, {"routed": True}), name
            assert (await api.ask("GET", f"/bindings/%2F/e/{name}/q/q")).json()[0]["routing_key"] == "q"
            assert (await api.ask("GET", f"/exchanges/%2F/{name}/bindings/source")).json()[0]["destination"] == "q"
            assert (await api.ask("POST", f"/bindings/%2F/e/{name}/q/q", {"routing_key": "a"})).status == 401
        assert (await api.ask("GET", "/exchanges/%2F//")).json()["name"] == ""


@pytest.mark.parametrize("path", ["/queues/%2F//", "/users//", "/vhosts//"])
@pytest.mark.trio
async def test_other_things_have_no_empty_name(path: str):
    async with inside() as api:
        refused = await api.ask("PUT", path, {"password": "x", "tags": ""})
        assert (refused.status, refused.json()["error"]) == (400, "bad_request")
        assert "not empty" in refused.json()["reason"]
        assert (await api.ask("GET", path)).status == 404


@pytest.mark.trio
async def test_an_empty_part_is_no_part_that_is_left_out():
    async with inside() as api:
        for path in ("/users//", "//users", "/queues//q", "/permissions//guest"):
            assert (await api.ask("GET", path)).status == 404, path


@pytest.mark.trio
async def test_the_address_of_a_binding_is_told_of_the_path_that_was_asked():
    """As RFC 3986 section 5 resolves it: what follows the last slash is replaced."""
    async with inside() as api:
        await api.ask("PUT", "/queues/%2F/q", {})
        for path, location in (("/bindings/%2F/e/amq.direct/q/q", "q/a"), ("/bindings/%2F/e/amq.direct/q/q/", "b")):
            key = location.rpartition("/")[2]
            made = await api.ask("POST", path, {"routing_key": key})
            assert (made.status, made.headers["location"]) == (201, location)


@pytest.mark.trio
async def test_a_message_in_the_name_of_another_is_a_bad_request():
    async with inside() as api:
        message = {**MESSAGE, "properties": {"user_id": "bea"}}
        refused = await api.ask("POST", "/exchanges/%2F/amq.default/publish", message)
        assert (refused.status, refused.json()["error"]) == (400, "bad_request")
        assert "user_id property set to 'bea'" in refused.json()["reason"]


@pytest.mark.trio
async def test_a_percent_sign_that_escapes_nothing_is_refused():
    async with inside() as api:
        for name in ("a%zz", "a%", "a%2", "%"):
            refused = await api.ask("PUT", f"/queues/%2F/{name}", {})
            assert refused.status == 400, name
            assert "it is %25" in refused.json()["reason"]
        assert (await api.ask("PUT", "/queues/%2F/a%25", {})).status == 201
        assert [each["name"] for each in (await api.ask("GET", "/queues/%2F?columns=name")).json()] == ["a%"]
