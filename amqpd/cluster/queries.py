"""What operators of one node ask of the others, over the links between forwarders.

What comes in: questions for a peer, and its answers; a peer's questions. What goes out: the answer, or None; answers
to peers.
Rules: 1. One that does not answer in time has not answered: a later answer is passed over. 2. A link that is lost
answers nothing any more, and the task that waits is told at once. 3. Texts are at most `PAGE_BYTES_MAX` long, and how
many are open at a time is bounded at both ends: what is replicated over the same link goes on in between.
Not here: what the texts say (`amqpd/management/across_nodes/`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from amqpd.peers.links.link import PeerLink
from amqpd.peers.messages import Page, Query

OPEN_MAX = 16
"""Questions to one peer that are not answered yet: some lists, and a few acts."""
ANSWERED_MAX = 32
"""Questions of one peer that are being answered: as many again as it may have given up to wait for."""
BUSY = '{"refused":"unavailable","says":"the node answers as many questions as it can: ask again"}'

Answer = Callable[[str], Awaitable[str]]
Start = Callable[..., None]
"""as `trio.Nursery.start_soon`"""


class _Open:
    """A question that is not answered yet."""

    def __init__(self, link: PeerLink) -> None:
        self.link = link
        self.ended = trio.Event()
        self.text: str | None = None

    def end(self, text: str | None) -> None:
        self.text = text
        self.ended.set()


class Queries:
    """The questions of operators that one node asks of its peers, and answers to them."""

    def __init__(self, dialed: Mapping[str, PeerLink], start: Start) -> None:
        """`dialed`: the link to each peer to which there is one; `start`: a task, as long as there are links."""
        self.answer: Answer = _busy
        """what this node answers; put here before there are links"""
        self._dialed = dialed
        self._start = start
        self._numbers = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._answering: Counter[Any] = Counter()
        """by link"""

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        """None: there is no link to it, too much is asked of it already, or it does not answer within this time.
        Raises ValueError for a text that is too long."""
        link = self._dialed.get(peer)
        if link is None or sum(each.link is link for each in self._open.values()) >= OPEN_MAX:
            return None
        number = next(self._numbers)
        waiting = self._open[number] = _Open(link)
        try:
            link.send(Query(number, text))
            with trio.move_on_after(timeout_s):
                await waiting.ended.wait()
        finally:
            del self._open[number]
        return waiting.text

    def answered(self, link: PeerLink, page: Page) -> None:
        """Over the link that was dialed to it."""
        waiting = self._open.get(page.number)
        if waiting is not None and waiting.link is link:
            waiting.end(page.text)

    def lost(self, link: PeerLink) -> None:
        """One that was dialed."""
        for waiting in self._open.values():
            if waiting.link is link:
                waiting.end(None)

    def asked(self, link: PeerLink, query: Query) -> None:
        """By the peer that dialed the link."""
        if self._answering[link] >= ANSWERED_MAX:
            link.send(Page(query.number, BUSY))
            return
        self._answering[link] += 1
        self._start(self._answer, link, query)

    async def _answer(self, link: PeerLink, query: Query) -> None:
        try:
            text = await self.answer(query.text)
        finally:
            self._answering[link] -= 1
            if not self._answering[link]:
                del self._answering[link]
        link.send(Page(query.number, text))


async def _busy(_: str) -> str:
    return BUSY
