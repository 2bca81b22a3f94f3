"""What the other nodes of the cluster say, for an operator who asks this one.

What comes in: which kind of rows is wanted, of which queues the figures; acts at one node. What goes out: rows by
node; which nodes did not answer.
Rules: 1. Nothing is asked while nobody looks. 2. Of each kind one question is on its way to a node at a time, and
what came of it is kept for some seconds (`kept.py`): many users who look share it. 3. Each page is waited for
`ANSWER_S` at most, a whole list `LIST_S`; a node that did not answer is not asked for its rows again while that is
kept. 4. What is no answer of this form counts as none.
Not here: what a node answers (`peer_answers.py`), the way there (`amqpd/cluster/queries.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
import trio

from amqpd.management.errors import Unavailable, of_kind
from amqpd.management.kept import Kept

ANSWER_S = 2.0
"""A node that serves answers within milliseconds, also while it makes a page."""
ACT_S = 10.0
"""An act may have many messages to take away; behind that nobody knows what became of it."""
LIST_S = 30.0
PAGES_MAX = 1000
"""Of one node's list: 64 MB of JSON, some hundred thousand connections."""
QUEUES_AT_ONCE = 100
"""Asked for in one question; about what a page has."""
NAMES_BYTES_MAX = 48 << 10
"""Of the names in one question, which may be all escapes."""

Row = dict[str, Any]
Key = tuple[str, str]
"""of a queue: its virtual host and its name"""

NEEDED: Mapping[str, frozenset[str]] = {
    "node": frozenset(("name", "alarms", "amqp", "http", "churn", "gone_queues", "rates")),
    "totals": frozenset(("vhost",)),
    "queues": frozenset(("vhost", "name", "state")),
    "connections": frozenset(("id", "name", "user", "vhost", "connected_at_ms")),
    "channels": frozenset(("connection", "number", "user", "vhost")),
    "consumers": frozenset(("connection", "channel", "user", "vhost", "queue", "consumer_tag")),
}
"""what each row of a kind has, else it is no answer"""

log = structlog.get_logger(component="operations")


class Peers(Protocol):
    """The way to the other nodes."""

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        """None: it does not answer."""


@dataclass
class Found:
    """`missing`: nodes that did not answer, or not to the end."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        """Each row, and the node that it is of."""
        for node, rows in self.rows.items():
            for row in rows:
                yield node, row


class PeerRows:
    """Of all other nodes."""

    def __init__(self, peers: Peers, others: Callable[[], Sequence[str]]) -> None:
        """`others`: the names of all other nodes, as far as they are known now."""
        self._peers = peers
        self.others = others
        self._kept = Kept()
        self._asking: dict[Any, trio.Event] = {}
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        """one question for queues to each at a time"""

    async def run(self) -> None:
        """Lets go of what is old. Until cancelled."""
        await self._kept.run()

    async def rows(self, of: str, **more: str | None) -> Found:
        """Of all other nodes at once."""
        key = (of, *sorted(more.items()))
        while (kept := self._kept.get(key)) is None and key in self._asking:
            await self._asking[key].wait()
        if kept is not None:
            found: Found = kept
            return found
        asked = self._asking[key] = trio.Event()
        try:
            found = Found()
            async with trio.open_nursery() as nursery:
                for peer in self.others():
                    nursery.start_soon(self._list, peer, of, more, found)
            self._kept.put(key, found)
            return found
        finally:
            del self._asking[key]
            asked.set()

    async def figures(self, at: Mapping[str, Iterable[Key]]) -> tuple[dict[Key, Row], set[str]]:
        """What the homes say of their queues; which homes do not answer. `at`: queues by their homes. What is not at
        the home that was asked is left out."""
        found: dict[Key, Row] = {}
        missing: set[str] = set()
        async with trio.open_nursery() as nursery:
            for peer, keys in at.items():
                nursery.start_soon(self._figures, peer, keys, found, missing)
        return found, missing

    async def act(self, peer: str, of: str, **more: str) -> Row:
        """Raises the ManagementError with which the node refuses; Unavailable when it does not answer."""
        answer = await self._peers.ask(peer, json.dumps({"of": of, **more}), ACT_S)
        self._kept.clear()
        if answer is None:
            raise Unavailable(
                f"node '{peer}' does not answer: look at its log, and whether it was done, and ask there"
            )
        found = _read(answer)
        if "refused" in found:
            raise of_kind(str(found["refused"]), f"node '{peer}': {found.get('says')}")
        rows: list[Row] = found.get("rows") or [{}]
        return rows[0]

    async def _list(self, peer: str, of: str, more: Mapping[str, str | None], found: Found) -> None:
        rows: list[Row] = []
        after, until_s = None, trio.current_time() + LIST_S
        for _ in range(PAGES_MAX):
            answer = await self._page(peer, of, {**more, "after": after})
            if answer is None:
                break
            rows += answer["rows"]
            after = answer["next"]
            if after is None or trio.current_time() > until_s:
                break
        if answer is None or after is not None:
            found.missing.add(peer)
        if rows or answer is not None:
            found.rows[peer] = rows

    async def _figures(self, peer: str, keys: Iterable[Key], found: dict[Key, Row], missing: set[str]) -> None:
        left, until_s = iter(keys), trio.current_time() + LIST_S
        while True:
            async with self._locks[peer]:
                names = self._unknown(left, found)
                after = 0
                while after < len(names):
                    answer = None
                    if trio.current_time() < until_s:
                        answer = await self._page(peer, "queues", {"names": names, "after": after})
                    if answer is None:
                        missing.add(peer)
                        return
                    for row in answer["rows"]:
                        key = (row["vhost"], row["name"])
                        found[key] = row
                        self._kept.put(key, row)
                    after = len(names) if answer["next"] is None else answer["next"]
            if not names:
                return

    def _unknown(self, left: Iterator[Key], found: dict[Key, Row]) -> list[Key]:
        """The next ones to be asked for; what is kept is in `found`."""
        names: list[Key] = []
        nbytes = 0
        for key in left:
            kept = self._kept.get(key)
            if kept is not None:
                found[key] = kept
                continue
            names.append(key)
            nbytes += len(json.dumps(key))
            if len(names) >= QUEUES_AT_ONCE or nbytes >= NAMES_BYTES_MAX:
                break
        return names

    async def _page(self, peer: str, of: str, more: Mapping[str, Any]) -> Row | None:
        """None: it does not answer, or what it answers is none."""
        silent = ("silent", peer)
        if self._kept.get(silent):
            return None
        text = await self._peers.ask(peer, json.dumps({"of": of, **more}), ANSWER_S)
        if text is None:
            self._kept.put(silent, True)
            return None
        answer, needed = _read(text), NEEDED.get(of, frozenset())
        rows = answer.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
            log.warning("another node does not say what it was asked", peer=peer, of=of, said=answer.get("says"))
            return None
        if of == "queues" and not isinstance(answer.get("next"), int | None):
            return None
        return {"rows": rows, "next": answer.get("next")}


def _read(text: str) -> Row:
    """Empty for what is no object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
