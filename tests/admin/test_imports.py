"""Definitions over HTTP: what cannot be made is named and nothing is made; what is passed over is said; forms."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from amqpd.security.authentication.passwords import verify_password
from amqpd_admin.forms import BadForm, boundary_of, part_of
from tests.admin.inside import Inside, inside

GOOD = {"vhost": "/", "name": "good", "durable": True, "auto_delete": False, "arguments": {}}
BAD = {**GOOD, "name": "bad"}
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"queues": [{**BAD, "arguments": {"x-queue-type": "stream"}}]}, "'bad'"),
    ({"queues": [{**BAD, "arguments": {"x-queue-type": "none"}}]}, "'bad'"),
    ({"queues": [{**BAD, "arguments": {"x-message-ttl": "60000"}}]}, "invalid arg 'x-message-ttl' for queue 'bad'"),
    ({"queues": [{**BAD, "auto_delete": True, "arguments": {"x-queue-type": "quorum"}}]}, "'auto-delete'"),
    ({"queues": [{**BAD, "vhost": "none"}]}, "queue 'bad' in 'none': there is no virtual host 'none'"),
    ({"exchanges": [{**BAD, "type": "x-none"}]}, "exchange 'bad'"),
    ({"exchanges": [{**BAD, "type": "direct", "vhost": "none"}]}, "there is no virtual host 'none'"),
    ({"policies": [{"vhost": "none", "name": "p", "pattern": "", "definition": {"max-length": 1}}]}, "policy 'p'"),
    ({"policies": [{"vhost": "/", "name": "p", "pattern": "", "definition": {"none": 1}}]}, "('p')"),
    (
        {
            "policies": [
                {"vhost": "/", "name": "p", "pattern": "", "definition": {"max-length": 1}, "priority": 1 << 63}
            ]
        },
        "priority should be between",
    ),
    ({"permissions": [{**ALL, "user": "none", "vhost": "/"}]}, "there is no user 'none'"),
    ({"permissions": [{**ALL, "user": "clerk", "vhost": "none"}]}, "there is no virtual host 'none'"),
    ({"parameters": [{"vhost": "/", "component": "shovel", "name": "s", "value": {}}]}, "component shovel not found"),
    ({"parameters": [{"vhost": "/", "component": "federation-upstream", "name": "s", "value": {}}]}, "no federation"),
]


async def imported(api: Inside, path: str, document: Any) -> Any:
    return await api.ask("POST", path, document)


@pytest.mark.trio
async def test_what_cannot_be_made_is_named_and_nothing_is_made() -> None:
    async with inside() as api:
        for document, said in IMPOSSIBLE:
            some = {**document, "queues": [GOOD, *document.get("queues", ())], "users": [{"name": "u", "tags": ""}]}
            refused = await imported(api, "/definitions", some)
            assert (refused.status, said in refused.json()["reason"]) == (400, True), (document, refused.text)
        assert (await api.ask("GET", "/queues/%2F/good")).status == 404
        assert (await api.ask("GET", "/users/u")).status == 404
        many = {"queues": [{**BAD, "name": f"bad-{number:02}", "vhost": "none"} for number in range(30)]}
        reason = (await imported(api, "/definitions", many)).json()["reason"]
        assert "'bad-19'" in reason
        assert "'bad-20'" not in reason
        assert reason.endswith("and 10 more")
        for component in ("shovel", "federation-upstream", "federation-upstream-set"):
            refused = await api.ask("PUT", f"/parameters/{component}/%2F/s", {"value": {}})
            assert (refused.status, "not found: amqpd runs no" in refused.json()["reason"]) == (400, True)


@pytest.mark.trio
async def test_of_one_virtual_host_too() -> None:
    async with inside() as api:
        item = {name: value for name, value in BAD.items() if name != "vhost"}
        document = {"queues": [{**item, "name": "good"}, {**item, "arguments": {"x-expires": 0}}]}
        refused = await imported(api, "/definitions/%2F", document)
        assert (refused.status, "'x-expires'" in refused.json()["reason"]) == (400, True)
        assert (await api.ask("GET", "/queues/%2F/good")).status == 404


@pytest.mark.trio
async def test_what_rabbitmq_passes_over_is_passed_over_with_a_word() -> None:
    async with inside() as api:
        assert (await api.ask("PUT", "/queues/%2F/there", {"arguments": {"x-max-length": 3}})).status == 201
        nowhere = {"vhost": "/", "source": "amq.topic", "destination": "none", "destination_type": "queue"}
        document = {"queues": [GOOD, {**GOOD, "name": "there"}], "bindings": [nowhere]}
        done = await imported(api, "/definitions", document)
        assert done.status == 204
        said = done.headers["x-amqpd-passed-over"]
        assert "queue 'there' in '/'" in said
        assert "one of its ends is not there" in said
        assert (await api.ask("GET", "/queues/%2F/good")).status == 200
        again = await imported(api, "/definitions", {"queues": [GOOD]})
        assert (again.status, "x-amqpd-passed-over" in again.headers) == (204, False)


@pytest.mark.trio
async def test_an_export_says_whose_passwords_rabbitmq_cannot_check() -> None:
    async with inside() as api:
        for name, algorithm in (("ours", {}), ("theirs", {"hashing_algorithm": "rabbit_password_hashing_sha256"})):
            body = {"password": "secret", "tags": "", **algorithm}
            assert (await api.ask("PUT", f"/users/{name}", body)).status == 201
        exported = await api.ask("GET", "/definitions")
        document = exported.json()
        assert "argon2, so they cannot log in there: " in document["explanation"]
        assert "ours" in document["explanation"]
        assert "theirs" not in document["explanation"]
        assert exported.headers["x-amqpd-explanation"] == document["explanation"]
        (theirs,) = [user for user in document["users"] if user["name"] == "theirs"]
        assert theirs["hashing_algorithm"] == "rabbit_password_hashing_sha256"
        octets = base64.b64decode(theirs["password_hash"])
        assert octets[4:] == hashlib.sha256(octets[:4] + b"secret").digest()
        assert verify_password(api.topology.users["theirs"].password_hash, b"secret")
        for unusable in ("rabbit_password_hashing_md5", "none"):
            wrong = {"password": "secret", "tags": "", "hashing_algorithm": unusable}
            assert (await api.ask("PUT", "/users/wrong", wrong)).status == 400
        document["users"] = [theirs]
        assert (await api.ask("POST", "/definitions", document)).status == 204
        assert "explanation" not in (await api.ask("GET", "/definitions/%2F")).json()


def form(*parts: tuple[str, bytes], end: bytes = b"--\r\n") -> bytes:
    said = [
        f'--=x\r\nContent-Disposition: form-data; name="{name}"; filename="d.json"\r\n\r\n'.encode()
        + octets
        + b"\r\n"
        for name, octets in parts
    ]
    return b"".join(said) + b"--=x" + end


FORM = 'multipart/form-data; boundary="=x"'


@pytest.mark.trio
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_a_form_with_a_file_is_taken(mark: bytes) -> None:
    async with inside() as api:
        for path, name in (("/definitions", "one"), ("/definitions/%2F", "two")):
            document = mark + json.dumps({"queues": [{**GOOD, "name": name}]}).encode()
            done = await api.ask("POST", path, octets=form(("other", b"\r\n--"), ("file", document)), kind=FORM)
            assert (done.status, done.text) == (204, b"")
            assert (await api.ask("GET", f"/queues/%2F/{name}")).status == 200
        refused = await api.ask("POST", "/definitions", octets=form(("other", b"{}")), kind=FORM)
        assert (refused.status, refused.json()["reason"]) == (400, "the form has no part 'file'")
        # A tool that says of JSON that it is a form is answered with what is wrong.
        refused = await api.ask("POST", "/definitions", {"queues": [GOOD]}, kind=FORM)
        assert refused.status == 400


def test_what_is_no_form_is_refused() -> None:
    assert boundary_of("application/json") is None
    assert boundary_of("application/x-www-form-urlencoded") is None
    assert boundary_of(FORM) == b"=x"
    with pytest.raises(BadForm, match="names no boundary"):
        boundary_of("multipart/form-data")
    assert part_of(b"before\r\n" + form(("file", b"a\r\n\r\nb")), b"=x", "file") == b"a\r\n\r\nb"
    with pytest.raises(BadForm, match="was cut off"):
        part_of(form(("file", b"a"))[: -len(b"--=x--\r\n")], b"=x", "file")
    for body in (b"", b"{}", b"--=x", b"--=x\r\nno head", form(), b"\r\n--=xx\r\n\r\n"):
        with pytest.raises(BadForm):
            part_of(body, b"=x", "file")
