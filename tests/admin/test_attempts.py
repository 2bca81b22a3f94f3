"""Log-in attempts as RabbitMQ counts them, and the cluster's name.

What comes in: requests of users who monitor. What goes out: counts; names.
Not here: verdicts (`tests/security/`).

Source: what RabbitMQ 3.10 answers to the same requests.
"""

from __future__ import annotations

import pytest

from amqpd.security.authentication.attempt_counts import (
    AMQP,
    HTTP,
    NAME_CHARACTERS_MAX,
    SOURCES_MAX,
    LoginAttemptCounts,
)
from tests.admin.inside import Inside, inside


def counted(protocol: str, failed: int, succeeded: int, **more: str) -> dict[str, str | int]:
    of = {"auth_attempts": failed + succeeded, "auth_attempts_failed": failed, "auth_attempts_succeeded": succeeded}
    return {**more, "protocol": protocol, **of}


def attempts(api: Inside) -> str:
    return f"/auth/attempts/{api.node.identity.name}"


@pytest.mark.trio
async def test_attempts_of_a_node_by_protocol_and_by_source():
    async with inside() as api:
        counts = api.logins.attempt_counts
        counts.forget()
        counts.count(AMQP, "10.0.0.1", "ann", False)
        counts.count(AMQP, "10.0.0.1", "ann", True)
        answer = await api.ask("GET", attempts(api), user="watcher")
        assert (answer.status, answer.json()) == (200, [counted(AMQP, 1, 1), counted(HTTP, 0, 1)])
        assert (await api.ask("GET", attempts(api) + "/source")).json() == [
            counted(AMQP, 1, 1, remote_address="10.0.0.1", username="ann"),
            counted(HTTP, 0, 1, remote_address="10.0.0.9", username="watcher"),
            counted(HTTP, 0, 1, remote_address="10.0.0.9", username="guest"),
        ]


@pytest.mark.trio
async def test_attempts_are_forgotten_by_who_monitors():
    async with inside() as api:
        counts = api.logins.attempt_counts
        assert (await api.ask("DELETE", attempts(api), user="clerk")).status == 401
        assert (await api.ask("GET", attempts(api) + "/source", user="clerk")).status == 401
        assert (await api.ask("DELETE", attempts(api) + "/source", user="watcher")).status == 204
        assert list(counts.by_source()) == []
        assert list(counts.by_protocol()) == [counted(HTTP, 0, 3)]
        assert (await api.ask("DELETE", attempts(api), user="watcher")).status == 204
        assert list(counts.by_protocol()) == []


@pytest.mark.trio
async def test_of_a_node_that_is_not_there():
    async with inside() as api:
        for path in ("/auth/attempts/none", "/auth/attempts/none/source"):
            for method in ("GET", "DELETE"):
                assert (await api.ask(method, path)).status == 404


def test_a_flood_of_names_is_not_kept():
    counts = LoginAttemptCounts()
    for number in range(SOURCES_MAX + 10):
        counts.count(AMQP, "10.0.0.1", str(number), False)
        counts.count(AMQP, "10.0.0.2", "known", True)
    counts.count(AMQP, "10.0.0.3", "x" * 100_000, False)
    sources = list(counts.by_source())
    assert len(sources) == SOURCES_MAX
    assert counted(AMQP, 0, SOURCES_MAX + 10, remote_address="10.0.0.2", username="known") in sources
    assert sources[-1]["username"] == "x" * NAME_CHARACTERS_MAX
    assert next(counts.by_protocol())["auth_attempts"] == 2 * SOURCES_MAX + 21


@pytest.mark.trio
async def test_the_cluster_is_named():
    async with inside() as api:
        first = (await api.ask("GET", "/cluster-name")).json()
        assert first == {"name": api.node.identity.name}
        assert (await api.ask("PUT", "/cluster-name", {"name": "shop"}, user="watcher")).status == 401
        assert (await api.ask("PUT", "/cluster-name", {"name": "shop"})).status == 204
        assert (await api.ask("GET", "/cluster-name", user="clerk")).json() == {"name": "shop"}
        assert (await api.ask("GET", "/overview?columns=cluster_name")).json() == {"cluster_name": "shop"}
        named = (await api.ask("GET", "/global-parameters/cluster_name")).json()
        assert named == {"name": "cluster_name", "value": "shop"}
        for wrong in ({}, {"name": ""}, {"name": 7}):
            refused = await api.ask("PUT", "/cluster-name", wrong)
            assert (refused.status, refused.json()["error"]) == (400, "bad_request"), wrong
        assert (await api.ask("DELETE", "/global-parameters/cluster_name")).status == 204
        assert (await api.ask("GET", "/cluster-name")).json() == first


@pytest.mark.trio
async def test_policies_of_queues_are_told_without_statistics():
    """They are no statistics: RabbitMQ 4.3 tells them, too."""
    async with inside() as api:
        for path, definition in (
            ("/policies/%2F/p", {"max-length": 7}),
            ("/operator-policies/%2F/o", {"expires": 9}),
        ):
            body = {"pattern": "^q", "definition": definition, "apply-to": "queues"}
            assert (await api.ask("PUT", path, body)).status == 201
        for name in ("q", "other"):
            assert (await api.ask("PUT", f"/queues/%2F/{name}", {})).status == 201
        for totals in ("", "&enable_queue_totals=true"):
            rows = (await api.ask("GET", f"/queues/%2F?disable_stats=true{totals}&sort=name")).json()
            assert [(row["policy"], row["operator_policy"], row["effective_policy_definition"]) for row in rows] == [
                (None, None, {}),
                ("p", "o", {"max-length": 7, "expires": 9}),
            ]
            assert all(("messages" in row) == bool(totals) for row in rows)
            assert not any("message_stats" in row for row in rows)
