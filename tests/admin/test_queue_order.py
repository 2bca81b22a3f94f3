"""Pages of queues are in the order of their rows, however the order was found.

What is verified: each column that the pages sort by, both ways round, names and virtual hosts, filters and pages,
against rows of all queues that are sorted; that names follow what comes and goes.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pamqp import commands

from amqpd.management.figures import totals
from amqpd.management.figures.queue_names import QueueNames
from amqpd.topology import plans
from amqpd.vocabulary.records import Delete, Put, QueueRecord
from amqpd_admin import queue_order
from amqpd_admin.queue_order import QueueOrder
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

VHOSTS = ("/", "b", "a")
NAMES = ("orders", "Invoices", "", "orders.old", "zebra", "\udcff")
SORTED_BY = (
    *(
        "",
        "name",
        "vhost",
        "messages",
        "messages_ready",
        "messages_unacknowledged",
        "messages_details.rate",
        "memory",
    ),
    *("consumers", "state", "message_stats.publish", "message_stats.deliver_get_details.rate", "message_stats.ack"),
    *("message_stats.publish_details.rate", "message_stats.redeliver", "message_stats.deliver", "policy", "nothing"),
)
PAGES = (
    *("", "page=1&page_size=5", "page=3&page_size=4", "page=9&page_size=2", "page=10&page_size=2"),
    *("page=1&name=ORD", "page=1&name=none", "page=2&name=none", "page=1&name=^.r&use_regex=true"),
)


def fill(api: Inside) -> None:
    """Some queues of each virtual host, with different figures of each kind."""
    random, number = Random(17), 0
    for vhost in VHOSTS[1:]:
        api.applied(*plans.create_vhost(vhost))
    for vhost in VHOSTS:
        for name in random.sample(NAMES, len(NAMES)):
            number += 1
            api.applied(Put(QueueRecord(vhost, name, number << 8, durable=True)))
    client = api.client("guest")
    for name in filter(str.isascii, filter(None, NAMES)):
        for _ in range(random.randrange(4)):
            client.publish(b"x" * random.randrange(9), name)
        if random.random() < 0.5:
            client.send(commands.Basic.Consume(queue=name, consumer_tag=name, no_ack=random.random() < 0.5))


async def listed(api: Inside, query: str) -> Any:
    answer = await api.ask("GET", f"/queues?{query}")
    return answer.status, answer.json()


@pytest.mark.parametrize("sort", SORTED_BY)
async def test_the_order_is_that_of_sorted_rows(sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as api:
        fill(api)
        queries = [f"sort={sort}&{page}{reverse}" for page in PAGES for reverse in ("", "&sort_reverse=true")]
        quick = [await listed(api, query) for query in queries]

        async def by_rows(self: QueueOrder, view: object) -> None: ...

        monkeypatch.setattr(QueueOrder, "choose", by_rows)
        for query, found in zip(queries, quick, strict=True):
            assert found == await listed(api, query), query
        assert {status for status, _ in quick} == {200, 400}


async def test_columns_of_the_pages_need_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    async with inside() as api:
        fill(api)
        monkeypatch.setattr("amqpd_admin.rows.queues.small", made.append)
        for sort in SORTED_BY[:-3]:
            status, page = await listed(api, f"page=1&page_size=2&sort={sort}")
            assert (status, len(page["items"]), made) == (200, 2, []), sort


async def test_a_queue_that_went_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as api:
        fill(api)
        there = totals.port_of
        monkeypatch.setattr(
            queue_order, "port_of", lambda node, vhost, name: None if name == "orders" else there(node, vhost, name)
        )
        _, page = await listed(api, "page=1&sort=name")
        assert [row["name"] for row in page["items"]].count("orders") == 0
        assert (page["filtered_count"], page["item_count"]) == (18, 15)


async def test_names_follow_what_comes_and_goes() -> None:
    async with inside() as api:
        names, random = QueueNames(api.topology), Random(3)
        for step in range(60):
            there = sorted(api.topology.vhosts["/"].queues)
            if there and step % 3 == 2:
                gone = random.choice(there)
                api.applied(Delete(("queue", "/", gone)))
            else:
                api.applied(Put(QueueRecord("/", f"{random.randrange(1000)}", (step + 1) << 8, durable=True)))
            found = await names.of("/")
            assert list(found) == sorted(api.topology.vhosts["/"].queues)
        assert await names.of("/") is found, "nothing changed"
        assert await names.of("none") == ()


async def test_names_of_a_virtual_host_that_is_gone_are_not_kept() -> None:
    async with inside() as api:
        names = QueueNames(api.topology)
        for vhost in ("a", "b"):
            api.applied(*plans.create_vhost(vhost))
            api.applied(Put(QueueRecord(vhost, "q", ord(vhost) << 8, durable=True)))
            assert await names.of(vhost) == ["q"]
        await names.of("/")
        api.applied(*plans.delete_vhost(api.topology, "a"))
        assert await names.of("a") == ()
        api.applied(Put(QueueRecord("/", "new", 9 << 8, durable=True)))
        assert await names.of("/") == ["new"]
        assert set(names._kept) == {"/", "b"}
        api.applied(*plans.create_vhost("a"))
        assert await names.of("a") == [], "another one of that name"
