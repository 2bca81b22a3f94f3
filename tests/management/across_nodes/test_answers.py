"""What a node answers to another one, page by page.

What is verified: rows of each kind, that pages are short and go on where they ended whatever came and went, that what
is no question is refused. Not verified here: who asks (`test_rows.py`), the way there and back
(`tests/cluster/test_queries.py`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from amqpd.management import alarms, queues
from amqpd.management.across_nodes import answers as peer_answers
from amqpd.management.across_nodes.answers import PAGE_BYTES_MAX, PeerAnswers
from amqpd.management.across_nodes.rows import is_row
from amqpd.management.attention.watch import AttentionWatch
from amqpd.management.figures import node_facts
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.samples import Series
from amqpd.management.figures.sampling import OF_NODE
from amqpd.management.operators import Operator
from amqpd.topology import plans
from tests.harness.harness import Client, Harness
from tests.management.rig import running

pytestmark = pytest.mark.trio

FIGURES = {"resident_bytes_max": 9, "disk_free_bytes": 8, "disk_free_bytes_min": 7}


class Asked:
    """A node that another one asks."""

    def __init__(self) -> None:
        self.harness, self.on = running()
        self.series = Series(OF_NODE)
        facts = NodeFacts(
            self.on, lambda: FIGURES, self.series, [("::", 5672, False)], ["http://[::]:15672"], "/data"
        )
        self.answers = PeerAnswers(
            self.on, facts, AttentionWatch(self.harness.node, lambda: self.harness.node.now_ms)
        )
        self.pages = 0

    async def page(self, of: str, **more: Any) -> dict[str, Any]:
        text = await self.answers.answer(json.dumps({"of": of, **more}))
        assert len(text.encode()) <= PAGE_BYTES_MAX
        self.pages += 1
        found: dict[str, Any] = json.loads(text)
        return found

    async def all(self, of: str, **more: Any) -> list[dict[str, Any]]:
        rows, after = [], None
        while True:
            page = await self.page(of, **more, after=after)
            rows += page["rows"]
            after = page["next"]
            if after is None:
                assert all(is_row(of, row) for row in rows)
                return rows


def client_of(harness: Harness, name: str = "x:1 -> y:2", **properties: Any) -> Client:
    client: Client = harness.client()
    client.connection.name = name
    client.connection.client_properties = properties
    return client


def publish(client: Client, queue: str, count: int) -> None:
    for _ in range(count):
        client.publish(b"abc", queue)


async def test_the_figures_of_queues_are_those_of_the_leader() -> None:
    asked = Asked()
    client = asked.harness.client()
    for name in ("full", "idle"):
        client.declare(name)
    publish(client, "full", 2)
    [full, idle] = await asked.all("queues", names=[["/", "full"], ["/", "none"], ["/", "idle"]])
    assert (full["name"], full["messages"], full["message_bytes"], full["state"]) == ("full", 2, 6, "running")
    assert full["message_stats"]["publish"] == 2
    # What every node knows is not said, nor what is nothing.
    assert idle == {"vhost": "/", "name": "idle", "state": "running"}
    assert not {"arguments", "policy", "durable"} & full.keys()


async def test_many_queues_take_several_pages() -> None:
    asked = Asked()
    client = asked.harness.client()
    names = [f"{'q' * 200}{number}" for number in range(100)]
    for name in names:
        client.declare(name)
        publish(client, name, 1)
    rows = await asked.all("queues", names=[["/", name] for name in names])
    assert [row["name"] for row in rows] == names
    assert asked.pages > 1


async def test_connections_go_on_behind_one_that_has_left() -> None:
    asked = Asked()
    clients = [client_of(asked.harness, f"x:{number} -> y:2", about="a" * 2000) for number in range(50)]
    page = await asked.page("connections")
    last = len(page["rows"])
    assert 0 < last < 50
    # The last one of the page and one before it go, a new one comes.
    for at in (0, last - 1):
        clients[at].connection.force_close("test")
        del asked.on.node.connections[clients[at].connection.id]
    client_of(asked.harness, "new:1 -> y:2")
    rows = page["rows"]
    while page["next"] is not None:
        page = await asked.page("connections", after=page["next"])
        rows += page["rows"]
    assert [row["name"] for row in rows] == [f"x:{number} -> y:2" for number in range(50)] + ["new:1 -> y:2"]


async def test_a_client_that_says_much_of_itself_is_listed_without_that() -> None:
    asked = Asked()
    client_of(asked.harness, about="\x00" * 20_000)
    client_of(asked.harness, about="short")
    [long, short] = await asked.all("connections")
    assert "client_properties" not in long
    assert short["client_properties"] == {"about": "short"}


async def test_channels_and_consumers_go_on_within_a_connection() -> None:
    asked = Asked()
    client = client_of(asked.harness, "x:1 -> y:2")
    client.declare("q")
    connection = client.connection
    tags = [f"{'t' * 200}{number:03}" for number in range(200)]
    for tag in tags:
        client.consume("q", tag)
    other = client_of(asked.harness, "x:2 -> y:2")
    other.consume("q", "last")
    rows = await asked.all("consumers")
    assert [row["consumer_tag"] for row in rows] == [*tags, "last"]
    assert asked.pages > 1
    assert {row["connection"] for row in rows} == {"x:1 -> y:2", "x:2 -> y:2"}
    channels = await asked.all("channels")
    assert [(row["connection"], row["consumer_count"]) for row in channels] == [
        ("x:1 -> y:2", 200),
        ("x:2 -> y:2", 1),
    ]
    number = int(connection.id[1:])
    assert [row["connection"] for row in (await asked.page("channels", after=[number, 1]))["rows"]] == ["x:2 -> y:2"]


async def test_consumers_of_one_queue() -> None:
    asked = Asked()
    tags = [f"{'t' * 200}{number:03}" for number in range(300)]
    for at, name in enumerate(("q", "other")):
        client = client_of(asked.harness, f"x:{at} -> y:2")
        client.declare(name)
        for tag in tags:
            client.consume(name, tag)
    client.consume("q", "last")
    rows = await asked.all("consumers", vhost="/", queue="q")
    assert [row["consumer_tag"] for row in rows] == [*tags, "last"]
    assert asked.pages > 1
    assert await asked.all("consumers", vhost="/", queue="none") == []
    assert [row["consumer_tag"] for row in await asked.all("consumers", vhost="/", queue="q", user="alice")] == []
    assert (await asked.page("consumers", queue="q"))["refused"] == "bad_argument"


async def test_totals_and_clients() -> None:
    asked = Asked()
    client = asked.harness.client()
    client.declare("q")
    publish(client, "q", 3)
    client.consume("q", "reader")
    [row] = await asked.all("totals")
    assert (row["vhost"], row["messages_unacknowledged"], row["consumers"], row["publish"]) == ("/", 3, 1, 3)
    assert await asked.all("clients", user=None) == [{"connections": 1, "channels": 1}]
    assert await asked.all("clients", user="guest") == [{"connections": 1, "channels": 1, "consumers": 1}]
    assert await asked.all("clients", user="alice") == [{"connections": 0, "channels": 0, "consumers": 0}]


async def test_sums_of_many_virtual_hosts_take_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_answers, "PAGE_S", 0.0)
    asked = Asked()
    client = asked.harness.client()
    for name in ("third", "", "second"):
        asked.harness._apply(plans.create_vhost(name))
    client.declare("q")
    publish(client, "q", 7)
    page = await asked.page("totals")
    assert (page["next"], page["rows"]) == ([""], [{"vhost": ""}])
    rows = await asked.all("totals")
    assert [(row["vhost"], row.get("queues"), row.get("messages_ready")) for row in rows] == [
        *(("", None, None), ("/", 1, 7)),
        *(("second", None, None), ("third", None, None)),
    ]


@pytest.mark.parametrize("of", ["connections", "channels", "consumers"])
async def test_a_page_that_takes_long_ends_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    asked = Asked()
    for number in range(3):
        client = client_of(asked.harness, f"x:{number} -> y:2")
        client.declare(f"q{number}")
        client.consume(f"q{number}", "reader")
        client.consume(f"q{number}", "second")
    at_once = await asked.all(of)
    monkeypatch.setattr(peer_answers, "PAGE_S", 0.0)
    before = asked.pages
    assert [names_of(row) for row in await asked.all(of)] == [names_of(row) for row in at_once]
    assert asked.pages - before > 3


def names_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(each) for each in ("name", "connection", "consumer_tag"))


@pytest.mark.parametrize("of", ["connections", "channels", "consumers"])
async def test_rows_of_a_user_or_of_a_connection_only(of: str) -> None:
    asked = Asked()
    for number, user in enumerate(("guest", "clerk", "clerk")):
        client = client_of(asked.harness, f"x:{number} -> y:2")
        client.declare("q")
        client.consume("q", "reader")
        client.connection.user = user
    assert [row["user"] for row in await asked.all(of, user="clerk")] == ["clerk", "clerk"]
    [row] = await asked.all(of, name="x:1 -> y:2")
    assert row.get("connection", row.get("name")) == "x:1 -> y:2"
    assert await asked.all(of, user="guest", name="x:1 -> y:2") == []
    assert (await asked.page(of, user=1))["refused"] == "bad_argument"


async def test_the_node_says_what_it_uses() -> None:
    asked = Asked()
    [row] = await asked.all("node")
    assert row["name"] == asked.on.node.identity.name
    assert (row["amqp"], row["http"], row["disk_free_bytes"]) == ([["::", 5672, False]], ["http://[::]:15672"], 8)


async def test_the_process_is_looked_at_once_a_second(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    asked, looks = Asked(), []
    monkeypatch.setattr(node_facts, "_process", lambda: looks.append(1) or {"files": len(looks)})
    found = [(await asked.all("node"))[0]["files"] for _ in range(2)]
    await trio.sleep(node_facts.PROCESS_S)
    assert [*found, (await asked.all("node"))[0]["files"]] == [1, 1, 2]


async def test_the_node_says_what_came_and_went_and_how_fast() -> None:
    asked = Asked()
    client = asked.harness.client()
    for name in ("kept", "gone"):
        client.declare(name)
        publish(client, name, 3)
    for connection in asked.on.node.connections.values():
        asked.on.node.totals.update_connection(connection)
    asked.series.add(5_000, [0] * len(OF_NODE))
    asked.series.add(10_000, [20] * len(OF_NODE))
    [before] = await asked.all("node")
    await queues.delete(asked.on, Operator(user="guest"), "/", "gone")
    asked.harness._apply(plans.delete_vhost(asked.harness.topology, "/"))
    [row] = await asked.all("node")
    assert {row["rates"][name] for name in OF_NODE} == {4.0}
    assert (row["churn"]["queue_created"], row["churn"]["queue_deleted"]) == (2, 2)
    assert (before["gone_queues"].get("publish", 0), row["gone_queues"]["publish"]) == (0, 6)


async def test_a_connection_is_closed_and_a_queue_is_emptied_for_who_may() -> None:
    asked = Asked()
    client = client_of(asked.harness, "x:1 -> y:2")
    client.declare("q")
    publish(client, "q", 3)
    forbidden = asked.harness.access.forbidden
    forbidden.add(("read", "q"))
    assert (await asked.page("purge", vhost="/", name="q", by="alice"))["refused"] == "refused"
    forbidden.clear()
    assert (await asked.page("purge", vhost="/", name="q", by="guest"))["rows"] == [{"messages": 3}]
    assert (await asked.page("purge", vhost="/", name="none", by="guest"))["refused"] == "not_found"
    assert (await asked.page("close", name="none", by="guest", reason="x"))["refused"] == "not_found"
    assert (await asked.page("close", name="x:1 -> y:2", by="guest", reason="enough"))["rows"][0]["closed"] == 1


async def test_an_alarm_is_told_and_ended_for_another_node() -> None:
    asked = Asked()
    alarms.put(asked.on, Operator(), "maintenance")
    client_of(asked.harness).connection.intake.blocked = True
    [row] = await asked.all("node")
    [told] = row["alarm_rows"]
    assert row["alarms"] == ["maintenance"]
    assert (told["name"], told["source"], told["blocked"]) == ("maintenance", "operator", 1)
    assert (await asked.page("clear_alarm", name="maintenance"))["refused"] == "bad_argument"
    ended = await asked.page("clear_alarm", name="maintenance", by="guest")
    assert ended["rows"] == [{"was_set": True, "still_on": []}]
    assert asked.on.node.alarms.by_source == []


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "{",
            "[" * 5000,
            '{"of":1}',
            '{"of":"nothing"}',
            '{"of":"queues"}',
            '{"of":"queues","names":[1]}',
        ),
        '{"of":"queues","names":[["/","q"]],"after":2}',
        '{"of":"queues","names":[["/",1]]}',
        '{"of":"connections","after":7}',
        '{"of":"connections","after":["x"]}',
        '{"of":"channels","after":[1]}',
        '{"of":"consumers","after":[1,1,1]}',
        '{"of":"totals","after":1}',
        '{"of":"clients","user":1}',
        '{"of":"close","by":"guest","reason":"x"}',
        '{"of":"purge","vhost":"/","name":"q"}',
    ],
)
async def test_what_is_no_question_is_refused(text: str) -> None:
    assert json.loads(await Asked().answers.answer(text))["refused"] == "bad_argument"


async def test_a_bug_is_answered_too(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked()
    asked.on.node.connections["c1"] = None  # type: ignore[assignment]
    assert (await asked.page("connections"))["refused"] == "failed"


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_the_leader_of_a_queue_judges_the_conditions_of_its_deletion(kind: str) -> None:
    asked = Asked()
    client = client_of(asked.harness)
    client.declare("q", durable=True, arguments={"x-queue-type": kind})
    publish(client, "q", 1)
    wanted = {"vhost": "/", "name": "q", "by": "guest"}
    refused = await asked.page("delete", **wanted, if_unused="no", if_empty="yes")
    assert (refused["refused"], refused["says"]) == ("conflict", "queue 'q' in vhost '/' not empty")
    await queues.purge(asked.on, Operator(user="guest"), "/", "q")
    client.consume("q", "tag")
    refused = await asked.page("delete", **wanted, if_unused="yes", if_empty="yes")
    assert refused["says"] == "queue 'q' in vhost '/' in use"
    assert (await asked.page("delete", **wanted, if_unused="no", if_empty="yes"))["rows"] == [{"messages": 0}]
    assert asked.harness.node.ports.get(("/", "q")) is None
