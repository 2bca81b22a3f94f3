"""The log and the acts of the audit log, as somebody looks on."""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.process.logs import RECENT_LINES_MAX
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

HEAD = "time=2026-11-27T10:00:00.000000Z"
LINES = (
    f'{HEAD} level=info event="client connected" component=session user=shop',
    f'{HEAD} level=warning event="login failed" component=session user=mallory',
    f'{HEAD} level=error event="disk failed" component=journal',
)


async def asked(api: Inside, path: str, user: str = "guest") -> Any:
    answer = await api.ask("GET", path, user=user)
    assert answer.status == 200, answer.text
    return answer.json()


def texts(found: Any) -> list[str]:
    return [row["text"] for row in found["items"]]


async def test_lines_come_once():
    async with inside() as api:
        for line in LINES[:2]:
            api.lines.add(line, len(line))
        found = await asked(api, "/amqpd/log")
        assert found["items"][0] == {
            "number": 1,
            "time": "2026-11-27T10:00:00.000000Z",
            "level": "info",
            "text": 'event="client connected" component=session user=shop',
        }
        assert (found["last"], found["missed"], len(found["items"])) == (2, False, 2)
        api.lines.add(LINES[2], 1)
        found = await asked(api, "/amqpd/log?after=2")
        assert texts(found) == ['event="disk failed" component=journal']
        found = await asked(api, "/amqpd/log?after=3")
        assert (found["items"], found["last"], found["missed"]) == ([], 3, False)


async def test_some_of_them():
    async with inside() as api:
        for line in LINES:
            api.lines.add(line, len(line))
        assert texts(await asked(api, "/amqpd/log?level=error")) == ['event="disk failed" component=journal']
        assert len(texts(await asked(api, "/amqpd/log?level=warning"))) == 2
        assert [row["number"] for row in (await asked(api, "/amqpd/log?search=MALLORY"))["items"]] == [2]
        newest = await asked(api, "/amqpd/log?count=1")
        assert ([row["number"] for row in newest["items"]], newest["found"]) == ([3], 3)


async def test_who_asks_too_late_is_told():
    async with inside() as api:
        for _ in range(RECENT_LINES_MAX + 10):
            api.lines.add(LINES[0], 1)
        found = await asked(api, "/amqpd/log?after=5&count=1000")
        assert (found["missed"], found["found"], len(found["items"])) == (True, RECENT_LINES_MAX, 1000)
        assert (await asked(api, "/amqpd/log?after=10&count=1"))["missed"] is False


async def test_after_a_restart_all_is_new():
    async with inside() as api:
        api.lines.add(LINES[0], 1)
        found = await asked(api, "/amqpd/log?after=400")
        assert ([row["number"] for row in found["items"]], found["missed"], found["last"]) == ([1], True, 1)


async def test_a_line_that_is_none_of_ours_is_there_as_it_is():
    async with inside() as api:
        api.lines.add("Traceback", 9)
        assert (await asked(api, "/amqpd/log"))["items"] == [
            {"number": 1, "time": "", "level": "info", "text": "Traceback"}
        ]


async def test_acts_with_who_did_them():
    async with inside() as api:
        assert (await api.ask("PUT", "/vhosts/shop", {})).status == 201
        found = await asked(api, "/amqpd/audit?event=vhost_put")
        [row] = found["items"]
        assert (row["user"], row["address"], row["object"]) == ("guest", "10.0.0.9", "vhost shop")
        assert row["time"] == "2026-11-21T09:51:24.000000+00:00"
        assert found["level"] == "counts"
        # With the request that made it.
        events = [each["event"] for each in (await asked(api, "/amqpd/audit"))["items"]]
        assert "http_request" in events
        assert (await asked(api, f"/amqpd/audit?after={found['last']}"))["items"] == []
        assert (await asked(api, "/amqpd/audit?search=SHOP&count=1"))["found"] >= 2
        assert (await asked(api, "/amqpd/audit?search=nobody"))["items"] == []


@pytest.mark.parametrize("path", ["/amqpd/log", "/amqpd/audit"])
async def test_who_monitors_may_look_and_nobody_else(path: str):
    async with inside() as api:
        for user, status in (("guest", 200), ("boss", 200), ("watcher", 200), ("planner", 401), ("clerk", 401)):
            assert (await api.ask("GET", path, user=user)).status == status, user


@pytest.mark.parametrize("query", ["after=-1", "after=x", "count=0", "count=1001", "level=loud"])
async def test_what_is_not_a_number_is_refused(query: str):
    async with inside() as api:
        assert (await api.ask("GET", f"/amqpd/log?{query}")).status == 400
