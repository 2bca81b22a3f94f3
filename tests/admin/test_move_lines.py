"""A long move, told in lines: how far it is, how it ended, and its end when the client leaves.

The move itself is in `tests/management/messages/test_operations.py`; here it is one that the test steps through.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.management.errors import Conflict, ManagementError, NotFound
from amqpd.management.messages.operations import MessageOperations
from tests.admin.inside import Answer, inside

pytestmark = pytest.mark.trio

LINES = "application/x-ndjson"
MOVE = "/amqpd/messages/%2F/some/move"
REQUEST = {"all": True, "yes": True, "to_queue": "other"}


class Steps:
    """In place of the operation. `go_on`: the next step ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, counts: list[int], fails: ManagementError | None) -> None:
        self._counts, self._fails = counts, fails
        self.go_on = trio.Event()
        self.ended = trio.Event()
        monkeypatch.setattr(MessageOperations, "move", lambda *_: self._move())

    async def _move(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        try:
            for count in self._counts:
                yield [{"count": count}]
            await self.go_on.wait()
            if self._fails is not None:
                raise self._fails
            yield [{"count": 30}]
        finally:
            self.ended.set()


def lines(answer: Answer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_each_step_is_a_line_and_the_last_says_that_it_is_done(monkeypatch: pytest.MonkeyPatch):
    steps = Steps(monkeypatch, [10, 20], None)
    steps.go_on.set()
    async with inside() as api:
        answer = await api.ask("POST", MOVE, REQUEST, accept=LINES)
        assert (answer.status, answer.headers["content-type"]) == (200, LINES)
        assert lines(answer) == [{"count": 10}, {"count": 20}, {"count": 30}, {"count": 30, "done": True}]
        told = await api.ask("POST", MOVE, REQUEST)
        assert told.json() == {"count": 30}, "who does not ask for lines has one answer at the end"


async def test_what_fails_on_the_way_is_the_last_line_with_what_was_done(monkeypatch: pytest.MonkeyPatch):
    steps = Steps(monkeypatch, [10], Conflict("the queue 'other' was deleted meanwhile"))
    steps.go_on.set()
    async with inside() as api:
        answer = await api.ask("POST", MOVE, REQUEST, accept=LINES)
        reason = {"error": "conflict", "reason": "the queue 'other' was deleted meanwhile"}
        assert lines(answer) == [{"count": 10}, {"count": 10, **reason}]


async def test_what_is_refused_at_once_is_no_line(monkeypatch: pytest.MonkeyPatch):
    steps = Steps(monkeypatch, [], NotFound("there is no queue 'other' in virtual host '/'"))
    steps.go_on.set()
    async with inside() as api:
        answer = await api.ask("POST", MOVE, REQUEST, accept=LINES)
        assert (answer.status, answer.json()["reason"]) == (404, "there is no queue 'other' in virtual host '/'")


async def test_who_leaves_ends_it_after_a_step(monkeypatch: pytest.MonkeyPatch):
    steps, left = Steps(monkeypatch, [10], None), trio.Event()
    with trio.fail_after(10):
        async with inside() as api, trio.open_nursery() as nursery:

            async def ask() -> None:
                await api.ask("POST", MOVE, REQUEST, accept=LINES, left=left)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert not steps.ended.is_set()
            left.set()
            await steps.ended.wait()
