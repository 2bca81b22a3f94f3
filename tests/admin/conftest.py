"""A broker with its management API, one for all tests of a process; users with each tag. Each test has things of
its own names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.clients.broker_process import BrokerProcess, free_port

USERS = {"administrator": "boss", "monitoring": "watcher", "policymaker": "planner", "management": "clerk"}
"""tag -> the user that has it, whose password is its name; `nobody` has none"""


class Api:
    """As guest, unless another is named."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self.broker = broker
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def __call__(
        self, method: str, path: str, body: object = None, *, user: str = "guest", **more
    ) -> httpx2.Response:
        auth = (user, user) if user else None
        return httpx2.request(method, f"{self.url}/api{path}", json=body, auth=auth, timeout=60, **more)

    def get(self, path: str, *, user: str = "guest", **parameters: object):
        """Its JSON, of a request that succeeds."""
        answer = self("GET", path, user=user, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def do(self, method: str, path: str, body: object = None, *, user: str = "guest", status: int) -> httpx2.Response:
        answer = self(method, path, body, user=user)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    port = free_port()
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
    broker = BrokerProcess(tmp_path_factory.mktemp("api") / "data", environment=environment)
    broker.start()
    api = Api(broker, port)
    for tag, name in {**USERS, "": "nobody"}.items():
        api.do("PUT", f"/users/{name}", {"password": name, "tags": tag}, status=201)
    for name in ("planner", "clerk"):
        api.do("PUT", f"/permissions/%2F/{name}", {"configure": "mine", "write": "mine", "read": "mine"}, status=201)
    api.do("PUT", "/vhosts/closed", {}, status=201)
    try:
        yield api
    finally:
        broker.close()


# In a browser; `browsing.py` is imported only then: it skips where there is no playwright.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.admin import browsing

    yield from browsing.launched()


@pytest.fixture
def visit(browser: Any, api: Api) -> Iterator[Any]:
    """Logged in as guest; at its end nothing went wrong, and nobody but the broker was asked."""
    from tests.admin.browsing import Visit, expect

    visit = Visit(browser, api)
    visit.log_in()
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    yield visit
    visit.context.close()
    assert visit.errors == []
    assert visit.addresses == {api.url}
