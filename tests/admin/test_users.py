"""Users, permissions, policies, parameters, limits and virtual hosts, as tools of RabbitMQ set them."""

from __future__ import annotations

import base64
import hashlib

import pytest

from tests.admin.conftest import Api


def test_a_user_is_made_changed_and_deleted(api: Api):
    api.do("PUT", "/users/anna", {"password": "one", "tags": "monitoring,management"}, status=201)
    assert api.get("/users/anna")["tags"] == ["monitoring", "management"]
    assert api("GET", "/whoami", user="").status_code == 401
    whoami = api("GET", "/whoami", user="", headers={"authorization": basic("anna", "one")})
    assert whoami.json()["name"] == "anna"
    # With its hash it keeps the password that it has; without any it has none from then on, as in RabbitMQ.
    shown = api.get("/users/anna")
    kept = {name: shown[name] for name in ("password_hash", "hashing_algorithm")}
    api.do("PUT", "/users/anna", {"tags": ["management"], **kept}, status=204)
    assert api("GET", "/whoami", user="", headers={"authorization": basic("anna", "one")}).status_code == 200
    api.do("PUT", "/users/anna", {"tags": ["management"]}, status=204)
    assert api.get("/users/anna")["password_hash"] == ""
    assert api("GET", "/whoami", user="", headers={"authorization": basic("anna", "one")}).status_code == 401
    both = api.do("PUT", "/users/anna", {"tags": "", "password": "x", "password_hash": ""}, status=400).json()
    assert both["reason"] == "both_password_and_password_hash_are_provided"
    api.do("PUT", "/users/anna", {"password": "two", "tags": ""}, status=204)
    refused = api("GET", "/whoami", user="", headers={"authorization": basic("anna", "two")})
    assert (refused.status_code, refused.json()["reason"]) == (401, "Not management user")
    api.do("DELETE", "/users/anna", status=204)
    api.do("GET", "/users/anna", status=404)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_hash_of_rabbitmq_is_taken(api: Api):
    salted = b"salt" + hashlib.sha256(b"salt" + b"secret").digest()
    given = {"password_hash": base64.b64encode(salted).decode(), "tags": "management"}
    api.do("PUT", "/users/hashed", given, status=201)
    assert api("GET", "/whoami", user="", headers={"authorization": basic("hashed", "secret")}).status_code == 200
    shown = api.get("/users/hashed")
    assert shown["password_hash"] == given["password_hash"]
    assert shown["hashing_algorithm"] == "rabbit_password_hashing_sha256"
    api.do("PUT", "/users/hashed", {"password_hash": "x", "tags": ""}, status=400)


def test_users_without_permissions_and_many_deleted(api: Api):
    for name in ("m1", "m2"):
        api.do("PUT", f"/users/{name}", {"password": name, "tags": ""}, status=201)
    assert {"m1", "m2"} <= {row["name"] for row in api.get("/users/without-permissions")}
    api.do("POST", "/users/bulk-delete", {"users": ["m1", "m2", "never"]}, status=204)
    assert not {"m1", "m2"} & {row["name"] for row in api.get("/users")}


@pytest.mark.parametrize("body", [{}, {"tags": 7}, {"tags": [7]}, {"tags": "", "password": 7}])
def test_a_user_that_makes_no_sense(api: Api, body: dict[str, object]):
    assert api.do("PUT", "/users/odd", body, status=400).json()["error"] == "bad_request"


def test_permissions(api: Api):
    api.do("PUT", "/users/paul", {"password": "paul", "tags": "management"}, status=201)
    api.do("GET", "/permissions/%2F/paul", status=404)
    rights = {"configure": "^a", "write": "^b", "read": ""}
    api.do("PUT", "/permissions/%2F/paul", rights, status=201)
    api.do("PUT", "/permissions/%2F/paul", rights, status=204)
    assert api.get("/permissions/%2F/paul") == {"user": "paul", "vhost": "/", **rights}
    assert api.get("/users/paul/permissions") == [{"user": "paul", "vhost": "/", **rights}]
    assert {"user": "paul", "vhost": "/", **rights} in api.get("/vhosts/%2F/permissions")
    api.do("PUT", "/permissions/%2F/paul", {**rights, "read": "("}, status=400)
    api.do("PUT", "/permissions/%2F/paul", {"configure": "x"}, status=400)
    api.do("PUT", "/permissions/none/paul", rights, status=400)
    api.do("PUT", "/permissions/%2F/none", rights, status=400)
    # What a use case asks for is asked of this user.
    refused = api.do("PUT", "/queues/%2F/b", {}, user="paul", status=401).json()
    assert refused["reason"] == "configure access to queue 'b' in vhost '/' refused for user 'paul'"
    api.do("PUT", "/queues/%2F/a", {}, user="paul", status=201)
    api.do("DELETE", "/permissions/%2F/paul", status=204)
    api.do("DELETE", "/permissions/%2F/paul", status=404)
    api.do("GET", "/queues/%2F/a", user="paul", status=401)


def test_topic_permissions(api: Api):
    api.do("PUT", "/users/tina", {"password": "tina", "tags": ""}, status=201)
    body = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    api.do("PUT", "/topic-permissions/%2F/tina", body, status=201)
    api.do("PUT", "/topic-permissions/%2F/tina", body, status=204)
    assert api.get("/topic-permissions/%2F/tina") == [{"user": "tina", "vhost": "/", **body}]
    assert api.get("/users/tina/topic-permissions") == api.get("/topic-permissions/%2F/tina")
    api.do("DELETE", "/topic-permissions/%2F/tina/amq.topic", status=204)
    api.do("GET", "/topic-permissions/%2F/tina", status=404)


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_policies(api: Api, kind: str):
    body = {"pattern": "^limited", "definition": {"max-length": 10}, "priority": 3, "apply-to": "queues"}
    api.do("PUT", f"/{kind}/%2F/short", body, status=201)
    api.do("PUT", f"/{kind}/%2F/short", body, status=204)
    assert api.get(f"/{kind}/%2F/short") == {"vhost": "/", "name": "short", **body}
    assert {"vhost": "/", "name": "short", **body} in api.get(f"/{kind}")
    api.do("PUT", f"/queues/%2F/limited-{kind}", {}, status=201)
    found = api.get(f"/queues/%2F/limited-{kind}")
    assert found["policy" if kind == "policies" else "operator_policy"] == "short"
    assert found["effective_policy_definition"] == {"max-length": 10}
    api.do("PUT", f"/{kind}/%2F/short", {**body, "definition": {"nonsense": 1}}, status=400)
    api.do("PUT", f"/{kind}/%2F/short", {"pattern": "x"}, status=400)
    api.do("DELETE", f"/{kind}/%2F/short", status=204)
    api.do("GET", f"/{kind}/%2F/short", status=404)


def test_parameters(api: Api):
    api.do("PUT", "/global-parameters/colour", {"value": {"x": 1}}, status=201)
    api.do("PUT", "/global-parameters/colour", {"value": "red"}, status=204)
    assert api.get("/global-parameters/colour") == {"name": "colour", "value": "red"}
    api.do("PUT", "/global-parameters/colour", {}, status=400)
    api.do("DELETE", "/global-parameters/colour", status=204)
    api.do("GET", "/global-parameters/colour", status=404)
    assert api.do("PUT", "/parameters/policy/%2F/p", {"value": {}}, status=400).json()["reason"]


@pytest.mark.parametrize(
    ("path", "owner", "limit"), [("vhost", "/", "max-queues"), ("user", "guest", "max-channels")]
)
def test_limits(api: Api, path: str, owner: str, limit: str):
    name = owner.replace("/", "%2F")
    api.do("PUT", f"/{path}-limits/{name}/{limit}", {"value": 1_000}, status=204)
    assert api.get(f"/{path}-limits/{name}") == [{path: owner, "value": {limit: 1_000}}]
    assert {path: owner, "value": {limit: 1_000}} in api.get(f"/{path}-limits")
    api.do("PUT", f"/{path}-limits/{name}/{limit}", {"value": "x"}, status=400)
    api.do("DELETE", f"/{path}-limits/{name}/{limit}", status=204)
    assert api.get(f"/{path}-limits/{name}") == []
    api.do("DELETE", f"/{path}-limits/{name}/nonsense", status=400)


def test_virtual_hosts(api: Api):
    api.do("PUT", "/vhosts/shop", {"description": "what is sold", "default_queue_type": "classic"}, status=201)
    api.do("PUT", "/vhosts/shop", {}, status=204)
    found = api.get("/vhosts/shop")
    assert (found["name"], found["description"], found["messages"]) == ("shop", "what is sold", 0)
    assert api.get("/permissions/shop/guest")["configure"] == ".*", "who makes it may use it"
    api.do("PUT", "/vhosts/shop", {"tracing": True}, status=204)
    assert api.get("/vhosts/shop")["tracing"]
    api.do("PUT", "/queues/shop/q", {}, status=201)
    api.do("DELETE", "/vhosts/shop", status=204)
    api.do("GET", "/vhosts/shop", status=404)
    api.do("GET", "/queues/shop", status=404)


def test_a_hash_without_a_named_algorithm_is_of_the_one_its_length_says(api: Api):
    """rabbitmqadmin v2 hashes with SHA-512 when it is told to, and does not say so."""
    salt = b"salt"
    hashed = base64.b64encode(salt + hashlib.sha512(salt + b"secret").digest()).decode()
    api.do("PUT", "/users/longer", {"password_hash": hashed, "tags": "management"}, status=201)
    assert api.get("/users/longer")["hashing_algorithm"] == "rabbit_password_hashing_sha512"
    assert api("GET", "/whoami", user="", headers={"authorization": basic("longer", "secret")}).status_code == 200
    refused = api.do("PUT", "/users/longer", {"password_hash": hashed[:40], "tags": ""}, status=400).json()
    assert refused["reason"] == "the password_hash has 30 bytes, one of rabbit_password_hashing_sha256 has 36"
    api.do("DELETE", "/users/longer", status=204)
