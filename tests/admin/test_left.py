"""A client that has left: what only looks ends with it, what changes something goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from starlette.types import Message, Receive, Scope, Send

from amqpd.config import Settings
from amqpd_admin.hosts import Hosts
from amqpd_admin.shield import Shield

pytestmark = pytest.mark.trio


class Asked:
    """An application whose routes take their time, and one request of it."""

    def __init__(self, method: str, *, body: bytes = b"") -> None:
        self.scope: Scope = {
            "type": "http", "method": method, "path": "/x", "raw_path": b"/x", "headers": [], "client": ("::1", 1),
        }  # fmt: skip
        self.begun, self.go_on, self.left, self.done = trio.Event(), trio.Event(), trio.Event(), trio.Event()
        self.sent: list[Any] = []
        self.failure: Exception | None = None
        self._body = [{"type": "http.request", "body": body, "more_body": False}]
        self.shield = Shield(self._app, 1000, Hosts(Settings(data_dir=Path.cwd())))

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.done.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def receive(self) -> Message:
        if self._body:
            return self._body.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self) -> None:
        await self.shield(self.scope, self.receive, self.send)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_looks_ends_with_its_client(method: str):
    asked = Asked(method)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.run)
            await asked.begun.wait()
            asked.left.set()
    assert not asked.done.is_set()
    assert asked.sent == []


async def test_what_changes_something_goes_on_without_its_client():
    asked = Asked("PUT")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.run)
            await asked.begun.wait()
            asked.left.set()
            await trio.testing.wait_all_tasks_blocked()
            asked.go_on.set()
    assert asked.done.is_set()


@pytest.mark.parametrize("body", [b"", b"x" * 5000])
async def test_who_waits_is_answered(body: bytes):
    """Also one that sent a body with it, which nobody reads."""
    asked = Asked("GET", body=body)
    asked.go_on.set()
    with trio.fail_after(10):
        await asked.run()
    assert [message["type"] for message in asked.sent] == ["http.response.start", "http.response.body"]


async def test_a_failure_comes_out_as_it_is():
    asked = Asked("GET")
    asked.failure = ValueError("a bug")
    asked.go_on.set()
    with trio.fail_after(10), pytest.raises(ValueError, match="a bug"):
        await asked.run()
