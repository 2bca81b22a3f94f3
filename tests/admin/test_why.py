"""Why things are as they are: who may ask, and that it is of the thing that was asked about."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from pamqp import commands

from amqpd.management import alarms
from amqpd.management.operators import Operator
from amqpd.vocabulary.records import Put, QueueRecord
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio


async def why(api: Inside, path: str, user: str = "guest") -> list[str]:
    answer = await api.ask("GET", f"/amqpd/why{path}", user=user)
    assert answer.status == 200, answer.text
    found: Any = answer.json()["why"]
    return list(found)


async def test_a_connection_whose_consumer_is_full():
    async with inside() as api:
        api.applied(Put(QueueRecord("/", "q", 256)))
        client = api.client("clerk")
        client.call(commands.Basic.Qos(0, 1, False), commands.Basic.QosOk)
        client.consume("q")
        path = f"/connections/{quote(client.connection.name, safe='')}"
        assert await why(api, path) == ["nothing holds it up"]
        for _ in range(2):
            client.publish(b"x", "q")
        api.broker.tick()
        [said] = await why(api, path, "clerk")
        assert "(1 of 1)" in said
        assert said.startswith("its only consumer")
        for user, status in (("watcher", 200), ("planner", 401)):
            assert (await api.ask("GET", f"/amqpd/why{path}", user=user)).status == status
        assert (await api.ask("GET", "/amqpd/why/connections/nobody")).status == 404


async def test_alarms_are_for_who_monitors():
    async with inside() as api:
        assert await why(api, "/alarms", "watcher") == ["no alarm is on: nobody waits because of one"]
        assert (await api.ask("GET", "/amqpd/why/alarms", user="clerk")).status == 401
        alarms.put(api.on, Operator(), "maintenance")
        [said] = await why(api, "/alarms")
        assert "`amqpd alarm clear maintenance` ends it" in said
