"""The OpenAPI document: that it names what there is, and that what is asked by it is answered as it says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings

from amqpd_admin.app import ROUTES
from amqpd_admin.document import REFUSALS, document_of
from amqpd_admin.document_bodies import BODIES, BODILESS, LOG_INS
from amqpd_admin.routes import rabbitmq_login, session
from tests.admin.conftest import Api

CHANGES = ("put", "post")
NOT_NOW = 503
"""also: a health check that fails"""


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/openapi.json")
    return found


def test_each_change_says_what_its_body_is(document: dict[str, Any]) -> None:
    there = {
        (method, path.removeprefix("/api"))
        for path, operations in document["paths"].items()
        for method in operations
        if method in CHANGES
    }
    assert there - BODILESS - LOG_INS == BODIES.keys()
    assert there >= BODILESS


def test_every_route_says_how_it_is_refused(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert REFUSALS.keys() <= operation["responses"].keys(), (method, path)
            assert "422" not in operation["responses"]


def test_what_has_samples_says_how_they_are_asked_for(document: dict[str, Any]) -> None:
    for path in ("overview", "nodes/{name}", "queues", "queues/{vhost}/{name}", "connections/{name}", "vhosts"):
        asked = {each["name"]: each for each in document["paths"][f"/api/{path}"]["get"]["parameters"]}
        for kind in ("lengths", "msg_rates", "data_rates", "node_stats"):
            for name in (f"{kind}_age", f"{kind}_incr"):
                assert (asked[name]["in"], asked[name]["required"]) == ("query", False)
                assert asked[name]["schema"]["type"] == "integer"


# Not checked: whether what is asked by the document's rules is taken (it may not fit what is there), and what is not
# is refused (RabbitMQ takes a number for a text). Log-in has tests of its own.
schemathesis.checks.load_all_checks()
CHECKED = [
    schemathesis.checks.CHECKS.get_one(name)
    for name in (
        *("status_code_conformance", "content_type_conformance"),
        *("response_headers_conformance", "response_schema_conformance", "unsupported_method"),
    )
]


def operations() -> list[Any]:
    """Of the document, without a broker."""
    logging_in = [*session.router.routes, *rabbitmq_login.router.routes]
    app = FastAPI(title="the same routes", routes=[route for route in ROUTES if route not in logging_in])
    described = schemathesis.openapi.from_dict(document_of(app))
    return [pytest.param(found.ok(), id=found.ok().label) for found in described.get_all_operations()]


# What it draws is deterministic: a failure prints a request that shows it again.
@pytest.mark.parametrize("operation", operations())
def test_as_documented(operation: Any, api: Api) -> None:
    """No failure of the broker, and a status, a type and a refusal as the document has them. Asked as guest."""

    @given(case=operation.as_strategy())
    @settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def asked(case: Any) -> None:
        answer = case.call(base_url=api.url, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        assert answer.status_code < 500 or answer.status_code == NOT_NOW, answer.text
        case.validate_response(answer, checks=CHECKED)

    asked()
