"""Nothing that is asked for takes one long step, whatever there is on the node; walks survive what comes and goes.

A step is measured in calls of functions, between two turns of another task: with a clock that goes on with each look
at it, the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from amqpd.management import pacing
from amqpd.topology import plans
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    Delete,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    UserRecord,
)
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

THINGS = 1_000
"""of each kind; of clients and virtual hosts a tenth"""
LOOKS_A_TURN = 10
CALLS_MAX = 10_000
"""in one step: ten rows of the most expensive kind with what FastAPI does for a request, or a piece of an answer, are
up to 6,000; a walk in one step would take tens for each of the THINGS"""


def everything() -> Iterator[Change]:
    for at in range(THINGS):
        name = f"thing-{at:05}"
        yield Put(ExchangeRecord("/", name, "direct"))
        yield Put(QueueRecord("/", name, (at + 1) << 8, durable=True))
        yield Put(BindingRecord("/", name, name, "queue", "key"))
        yield Put(BindingRecord("/", "amq.fanout", name, "queue", "key"))
        yield Put(UserRecord(name, "hash", ()))
        yield Put(PermissionRecord(name, "/", "", "", ""))
        yield Put(ParameterRecord("/", "shovel", name, {}))
        if at % 10 == 0:
            yield from plans.create_vhost(name)
            yield Put(PolicyRecord(name, "p", "^q", "all", {"max-length": 1}, 0, False))
            yield Put(ParameterRecord(name, "vhost-limits", "limits", {"max-queues": 5}))


def fill(api: Inside) -> None:
    api.applied(*everything())
    for at in range(THINGS // 100):
        client = api.client("clerk")
        client.connection.name = f"10.0.0.1:{at} -> broker:5672"
        for number in range(2, 12):
            client.channel(number)
            for tag in range(10):
                client.consume(f"thing-{at % 3:05}", f"t{tag}", channel=number)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def look() -> float:
        nonlocal now
        now += pacing.TURN_S / LOOKS_A_TURN
        return now

    monkeypatch.setattr(pacing, "trio", SimpleNamespace(current_time=look, lowlevel=trio.lowlevel))


class Steps:
    def __init__(self) -> None:
        self.calls = self.longest = self.all = 0

    def turn(self) -> None:
        self.longest = max(self.longest, self.calls)
        self.all += self.calls
        self.calls = 0


@contextmanager
def counted(steps: Steps) -> Iterator[None]:
    def called(frame: Any, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            steps.calls += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)
        steps.turn()


async def asked(api: Inside, path: str, user: str) -> tuple[Steps, Any]:
    steps = Steps()

    async def tick() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            steps.turn()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        with counted(steps):
            answer = await api.ask("GET", path, user=user)
        nursery.cancel_scope.cancel()
    assert answer.status == 200, answer.text
    assert max(map(len, answer.pieces)) < 200_000
    return steps, answer.json()


LISTS = """
/queues /queues?sort=messages /queues?page=1&page_size=10&name=9&sort=name&sort_reverse=true /queues/%2F
/queues?disable_stats=true&enable_queue_totals=true /queues?columns=name /queues/%2F/thing-00001
/exchanges /exchanges/%2F /exchanges?sort=type /bindings /bindings/%2F /bindings?sort=routing_key
/exchanges/%2F/amq.fanout/bindings/source /exchanges/%2F/amq.default/bindings/source
/queues/%2F/thing-00001/bindings /bindings/%2F/e/amq.fanout/q/thing-00001
/consumers /consumers/%2F /channels /connections /connections/username/clerk /vhosts/%2F/connections
/vhosts/%2F/channels /vhosts /vhosts/%2F /users /users/without-permissions /permissions /vhosts/%2F/permissions
/policies /parameters /vhost-limits /user-limits /definitions /definitions/%2F /overview /nodes
"""


async def test_no_list_is_made_in_one_step(clock: None):
    async with inside() as api:
        fill(api)
        too_long = {}
        for path in LISTS.split():
            steps, _ = await asked(api, path, "guest")
            if steps.longest > CALLS_MAX:
                too_long[path] = (steps.longest, steps.all)
        assert too_long == {}


async def test_nor_for_a_user_who_sees_little_of_it(clock: None):
    async with inside() as api:
        fill(api)
        for path in ("/connections", "/channels", "/consumers", "/overview", "/queues", "/vhosts", "/bindings"):
            steps, _ = await asked(api, path, "planner")
            assert steps.longest <= CALLS_MAX, (path, steps.longest)


VHOSTS = 2_000


async def test_nor_in_one_step_for_many_virtual_hosts(clock: None):
    async with inside() as api:
        for at in range(VHOSTS):
            api.topology.apply(plans.create_vhost(f"v{at:05}"))
        for at in range(10):
            api.applied(Put(QueueRecord(f"v{at:05}", f"q{at}", (at + 1) << 8, durable=True)))
        too_long = {}
        for path in (
            *("/overview", "/nodes", "/vhosts?page=1", "/queues?page=1", "/queues?page=1&sort=name"),
            *("/queues?page=1&name=q&use_regex=true", "/queues?page=1&sort=messages", "/queues"),
        ):
            steps, _ = await asked(api, path, "guest")
            if steps.longest > CALLS_MAX:
                too_long[path] = (steps.longest, steps.all)
        assert too_long == {}


async def test_all_of_it_is_there(clock: None):
    async with inside() as api:
        fill(api)
        for path, count in (
            ("/queues", THINGS),
            ("/exchanges?columns=name", 7 + THINGS // 10 * 7 + THINGS),
            ("/bindings?columns=source", 3 * THINGS),
            ("/consumers?columns=active", THINGS),
            ("/vhosts?columns=name", 1 + THINGS // 10),
        ):
            _, found = await asked(api, path, "guest")
            assert len(found) == count, path
        _, found = await asked(api, "/queues?columns=name", "guest")
        assert [row["name"] for row in found] == [f"thing-{at:05}" for at in range(THINGS)]
        _, document = await asked(api, "/definitions", "guest")
        assert {name: len(document[name]) for name in ("queues", "exchanges", "bindings")} == {
            "queues": THINGS,
            "exchanges": THINGS,
            "bindings": 2 * THINGS,
        }
        _, found = await asked(api, "/overview", "guest")
        assert found["object_totals"] == {
            "channels": THINGS // 100 * 11,
            "connections": THINGS // 100,
            "consumers": THINGS,
            "exchanges": 7 + THINGS // 10 * 7 + THINGS,
            "queues": THINGS,
        }


@pytest.mark.parametrize(
    "path",
    [
        "/queues",
        "/queues?sort=messages",
        "/exchanges",
        "/bindings",
        "/vhosts",
        "/users",
        "/permissions",
        "/definitions",
        "/overview",
        "/consumers",
        "/channels",
        "/connections",
        "/policies",
        "/parameters",
        "/vhost-limits",
    ],
)
async def test_things_come_and_go_between_the_steps_of_a_walk(clock: None, path: str):
    async with inside() as api:
        fill(api)
        connections = list(api.node.connections.values())

        async def come_and_go() -> None:
            for at in range(THINGS):
                name = f"thing-{THINGS - 1 - at:05}"
                api.applied(
                    Delete(("queue", "/", name)),
                    Delete(("exchange", "/", name)),
                    Delete(BindingRecord("/", name, name, "queue", "key").key),
                    Delete(("user", name)),
                    Delete(("permission", "/", name)),
                    *plans.delete_vhost(api.topology, name),
                    Put(QueueRecord("/", f"new-{at}", (THINGS + at + 1) << 8, durable=True)),
                    Put(UserRecord(f"new-{at}", "hash", ())),
                    *(plans.create_vhost(f"new-{at}") if at % 10 == 0 else ()),
                )
                if at % 20 == 0 and connections:
                    connections.pop().lost()
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_and_go)
            answer = await api.ask("GET", path)
            nursery.cancel_scope.cancel()
        assert answer.status == 200
        answer.json()
