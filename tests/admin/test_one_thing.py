"""`columns` of one thing, and the page with all routes.

What comes in: requests of a client. What goes out: some of a thing's fields; a page.
Not here: columns of lists (`test_lists.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.inside import inside

ONE = {"pattern": "^a", "definition": {"max-length": 1}}
NUMBERS = ("uptime", "run_queue", "processors", "fd_total", "proc_used", "proc_total", "mem_limit", "disk_free_limit")
MADE = [
    ("/policies/%2F/p", ONE),
    ("/operator-policies/%2F/p", ONE),
    ("/global-parameters/g", {"value": {"a": 1, "b": 2}}),
    ("/topic-permissions/%2F/boss", {"exchange": "amq.topic", "write": "", "read": ""}),
]


@pytest.mark.trio
async def test_columns_of_one_thing():
    """Each of RabbitMQ's answers that is one object, as RabbitMQ 3.10 gives it."""
    async with inside() as api:
        for path, body in MADE:
            assert (await api.ask("PUT", path, body)).status == 201, path
        wanted: dict[str, Any] = {
            "/overview?columns=object_totals.queues,cluster_name": {
                "cluster_name": api.node.identity.name,
                "object_totals": {"queues": 0},
            },
            "/whoami?columns=name": {"name": "guest"},
            "/cluster-name?columns=name": {"name": api.node.identity.name},
            "/vhosts/%2F?columns=name,tracing": {"name": "/", "tracing": False},
            "/users/boss?columns=name": {"name": "boss"},
            "/permissions/%2F/boss?columns=user": {"user": "boss"},
            "/topic-permissions/%2F/boss?columns=user": [{"user": "boss"}],
            "/exchanges/%2F/amq.direct?columns=name": {"name": "amq.direct"},
            "/policies/%2F/p?columns=definition": {"definition": {"max-length": 1}},
            "/operator-policies/%2F/p?columns=name": {"name": "p"},
            "/global-parameters/g?columns=value.b": {"value": {"b": 2}},
        }
        for path, fields in wanted.items():
            answer = await api.ask("GET", path)
            assert (answer.status, answer.json()) == (200, fields), path


@pytest.mark.trio
async def test_the_api_s_own_address_leads_to_a_page_with_its_routes():
    async with inside() as api:
        for path in ("", "/"):
            answer = await api.ask("GET", path, user="")
            assert (answer.status, answer.headers["location"]) == (301, "/api/index.html"), path
        page = await api.ask("GET", "/index.html", user="")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "content-security-policy" in page.headers
        assert "<td>DELETE</td><td>/api/queues/{vhost}/{name}/contents</td>" in page.text.decode()


@pytest.mark.trio
async def test_a_node_has_what_typed_clients_cannot_do_without():
    """The fields without which RabbitMQ's Rust client, and with it rabbitmqadmin v2, reads no node."""
    async with inside() as api:
        for row in (
            (await api.ask("GET", "/nodes")).json()[0],
            (await api.ask("GET", "/nodes/" + api.node.identity.name)).json(),
        ):
            assert {type(row[name]) for name in NUMBERS} == {int}
            assert (type(row["os_pid"]), type(row["rabbitmq_version"])) == (str, str)
            assert row["proc_used"] < row["proc_total"] < 1 << 32
