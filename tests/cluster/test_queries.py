"""Questions of operators between two nodes, each message handed over when the test says so.

What is verified: answers come to who asked; a peer that is silent, gone or asked too much is no longer waited for.
Not verified here: the links (`tests/peers/links`), what is asked (`tests/management/test_peer_*.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from amqpd.cluster.queries import ANSWERED_MAX, BUSY, OPEN_MAX, Queries
from amqpd.peers.messages import Page, Query

pytestmark = pytest.mark.trio


class Wire:
    """In place of a link: what was sent over it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: object) -> None:
        self.sent.append(message)


class Asking:
    """One node, with a link to `b`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.wire: Any = Wire()
        self.dialed: dict[str, Any] = {"b": self.wire}
        self.queries = Queries(self.dialed, nursery.start_soon)
        self.answers: list[str | None] = []
        self._nursery = nursery

    async def ask(self, text: str = "{}") -> None:
        async def asking() -> None:
            self.answers.append(await self.queries.ask("b", text, 2.0))

        self._nursery.start_soon(asking)
        await trio.testing.wait_all_tasks_blocked()


async def test_an_answer_comes_to_who_asked(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        await one.ask("first")
        await one.ask("second")
        first, second = one.wire.sent
        assert (first.text, second.text) == ("first", "second")
        one.queries.answered(one.wire, Page(second.number, "2"))
        await trio.testing.wait_all_tasks_blocked()
        one.queries.answered(one.wire, Page(first.number, "1"))
    assert one.answers == ["2", "1"]


async def test_one_that_is_silent_is_waited_for_no_longer(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        begun_s = trio.current_time()
        await one.ask()
        await trio.sleep(1.9)
        assert one.answers == []
    assert one.answers == [None]
    assert trio.current_time() - begun_s == pytest.approx(2.0)
    one.queries.answered(one.wire, Page(1, "late"))  # nobody is there, and nothing happens


async def test_a_link_that_is_lost_answers_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        begun_s = trio.current_time()
        await one.ask()
        one.queries.lost(Wire())  # type: ignore[arg-type] # another one
        await trio.testing.wait_all_tasks_blocked()
        assert one.answers == []
        one.queries.lost(one.wire)
        await trio.testing.wait_all_tasks_blocked()
        assert one.answers == [None]
        del one.dialed["b"]
        await one.ask()
        assert (one.answers, len(one.wire.sent)) == ([None, None], 1)
        assert trio.current_time() == begun_s


async def test_an_answer_over_another_link_is_none(autojump_clock: trio.testing.MockClock) -> None:
    """Numbers are of the connection: what a peer that came back says to an old question is not of this one."""
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        await one.ask()
        one.queries.answered(Wire(), Page(1, "stranger"))  # type: ignore[arg-type]
    assert one.answers == [None]


async def test_questions_that_are_open_are_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        for _ in range(OPEN_MAX + 1):
            await one.ask()
        assert (one.answers, len(one.wire.sent)) == ([None], OPEN_MAX)
        one.queries.answered(one.wire, Page(1, "done"))
        await trio.testing.wait_all_tasks_blocked()  # who asked has gone on
        await one.ask()
        assert len(one.wire.sent) == OPEN_MAX + 1


async def test_a_peer_is_answered_over_its_link() -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)

        async def answer(text: str) -> str:
            return text.upper()

        one.queries.answer = answer
        incoming: Any = Wire()
        one.queries.asked(incoming, Query(7, "what"))
    assert (incoming.sent, one.wire.sent) == ([Page(7, "WHAT")], [])


async def test_what_a_peer_may_ask_at_a_time_is_bounded() -> None:
    async with trio.open_nursery() as nursery:
        one = Asking(nursery)
        free = trio.Event()

        async def answer(text: str) -> str:
            await free.wait()
            return text

        one.queries.answer = answer
        incoming, other = Wire(), Wire()
        for number in range(ANSWERED_MAX + 1):
            one.queries.asked(incoming, Query(number, "x"))  # type: ignore[arg-type]
        assert incoming.sent == [Page(ANSWERED_MAX, BUSY)]
        one.queries.asked(other, Query(1, "y"))  # type: ignore[arg-type]
        free.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (len(incoming.sent), other.sent) == (ANSWERED_MAX + 1, [Page(1, "y")])
        one.queries.asked(incoming, Query(100, "again"))  # type: ignore[arg-type]
    assert incoming.sent[-1] == Page(100, "again")
