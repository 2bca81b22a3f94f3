"""Which connection gives way when more come than there are places for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from starlette.types import Receive, Scope, Send

from amqpd_admin.places import HEALTH_PATHS, HEALTH_PLACES, STATE, Place, Places
from tests.admin.served import GET, Served, answer_of, left, until_closed

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Kept:
    """Places, and which of them were ended, by the number that they came as."""

    def __init__(self, connections_max: int) -> None:
        self._places = Places(connections_max)
        self.ended: list[int] = []
        self.came: list[Place] = []

    def enter(self) -> Place:
        self.came.append(self._places.enter(self._cut(len(self.came))))
        return self.came[-1]

    def _cut(self, number: int) -> Callable[[], None]:
        return lambda: self.ended.append(number)


def test_the_oldest_on_which_nobody_has_logged_in_gives_way():
    kept = Kept(3)
    for _ in range(3):
        kept.enter()
    kept.came[0].logged_in()
    kept.enter()
    kept.enter()
    assert kept.ended == [1, 2]


def test_then_the_one_that_has_waited_longest_for_a_request():
    kept = Kept(3)
    for _ in range(3):
        kept.enter().logged_in()
    for each in kept.came:
        each.waits(False)
    for each in (kept.came[1], kept.came[0]):
        each.waits(True)
    kept.enter()
    kept.enter().logged_in()  # the one before has not, and gives way
    kept.enter()
    assert kept.ended == [1, 3, 0]
    assert not kept.came[2].waiting


def test_when_all_are_in_use_there_are_places_for_health_alone():
    kept = Kept(1)
    first = kept.enter()
    first.waits(False)
    first.logged_in()
    probe = kept.enter()
    assert kept.ended == []
    assert all(probe.may_ask(path) for path in HEALTH_PATHS)
    assert not probe.may_ask(b"/api/overview")
    for _ in range(HEALTH_PLACES):
        kept.enter()
    assert kept.ended == [1], "the oldest of them gives way"
    first.leave()
    assert kept.came[-1].may_ask(b"/api/overview")
    assert not kept.came[-2].may_ask(b"/api/overview") or kept.ended[-1] == len(kept.came) - 1


def test_whoever_logs_in_on_a_place_that_was_given_away_has_none():
    kept = Kept(1)
    first = kept.enter()
    kept.enter()
    first.logged_in()
    first.leave()
    kept.enter()
    assert kept.ended == [0, 1]


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    if b"x-known" in dict(scope["headers"]):
        scope["state"][STATE].logged_in()
    if scope["path"] == "/api/long":
        await trio.sleep_forever()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.trio
async def test_silent_connections_of_nobody_take_no_place_from_health(monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, answering, http={"connections_max": 3}).running() as served:
        silent = [await served.opened() for _ in range(3)]
        assert (await answer_of(await served.opened(HEALTH), b"ok")).startswith(b"HTTP/1.1 200")
        assert await until_closed(silent[0]) == b""
        assert (await answer_of(await served.opened(GET), b"ok")).startswith(b"HTTP/1.1 200")


@pytest.mark.trio
async def test_requests_of_users_that_take_all_places_leave_some_for_health(monkeypatch: pytest.MonkeyPatch):
    long = b"GET /api/long HTTP/1.1\r\nHost: localhost\r\nX-Known: 1\r\n\r\n"
    async with Served(monkeypatch, answering, http={"connections_max": 2}).running() as served:
        for _ in range(2):
            await served.opened(long)
        while len(served.face._places._busy) < 2:
            await trio.lowlevel.checkpoint()
        assert (await answer_of(await served.opened(HEALTH), b"ok")).startswith(b"HTTP/1.1 200")
        answer = await until_closed(await served.opened(GET))
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"http.connections_max" in answer


@pytest.mark.trio
async def test_a_connection_that_ends_leaves_its_place(monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, answering, http={"connections_max": 1}).running() as served:
        stream = await served.opened(GET.replace(b"\r\n\r\n", b"\r\nX-Known: 1\r\n\r\n"))
        await answer_of(stream, b"ok")
        await stream.aclose()
        await left(served)
        assert not served.face._places._waiting
