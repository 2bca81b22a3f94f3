"""What the other nodes of the cluster say, for an operator who asks this one.

What comes in: which kind of rows is wanted, of which queues the figures; acts at one node. What goes out: rows by
node; which nodes did not answer.
Rules: 1. Nothing is asked while nobody looks. 2. Of each kind one question is on its way to a node at a time, and
what came of it is kept for some seconds (`Kept`): many users who look share it. 3. Each page is waited for `ANSWER_S`
at most, a whole list `LIST_S`; a node that did not answer is not asked for its rows again while that is kept. 4. What
is no answer of this form counts as none. 5. One answer of all peers together has at most `ROWS_MAX` rows and
`ROWS_BYTES_MAX` of JSON: a node whose rows are beyond that is missing.
Not here: what a node answers (`answers.py`), the way there (`amqpd/cluster/queries.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
import trio

from amqpd.management.errors import BadArgument, Unavailable, of_kind

KEPT_S = 2.0
"""RabbitMQ's management keeps an answer five times as long as it took to make (`management_db_cache_multiplier`)."""


class Kept:
    """Answers that are kept for some seconds, in two generations; the older one is dropped as a whole."""

    def __init__(self) -> None:
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}
        self._filled = trio.Event()

    def get(self, key: Hashable) -> Any:
        """None: it is not kept."""
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: Hashable, value: Any) -> None:
        """Keeps a value, which is not None."""
        self._young[key] = value
        self._filled.set()

    def clear(self) -> None:
        """What was kept is not true any more."""
        self._young, self._old = {}, {}

    async def run(self) -> None:
        """Drops old answers until it is cancelled."""
        while True:
            if not self._young and not self._old:
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep(KEPT_S)
            self._young, self._old = {}, self._young


ANSWER_S = 2.0
"""A node that serves answers within milliseconds, also while it makes a page."""
ACT_S = 10.0
"""An act may have many messages to take away; behind that nobody knows what became of it."""
LIST_S = 30.0
ROWS_BYTES_MAX = 64 << 20
"""Of JSON, of all nodes together: some hundred thousand connections."""
ROWS_MAX = 200_000
"""Short rows take many times the memory of their JSON."""
PLACE_BYTES_MAX = 4096
"""Of where a page ended (`answers.py` leaves as much behind its rows): it is in the next question."""
QUEUES_AT_ONCE = 100
"""Asked for in one question; about what a page has."""
NAMES_BYTES_MAX = 48 << 10
"""Of the names in one question, which may be all escapes."""

Row = dict[str, Any]
Key = tuple[str, str]
"""of a queue: its virtual host and its name"""

NEEDED: Mapping[str, Mapping[str, type]] = {
    "node": {
        "name": str,
        "alarms": list,
        "amqp": list,
        "http": list,
        "churn": dict,
        "gone_queues": dict,
        "rates": dict,
    },
    "totals": {"vhost": str},
    "attention": {"kind": str, "vhost": str, "name": str, "numbers": dict},
    "queues": {"vhost": str, "name": str, "state": str},
    "connections": {"id": str, "name": str, "user": str, "vhost": str, "connected_at_ms": int},
    "channels": {"connection": str, "number": int, "user": str, "vhost": str},
    "exchanges": {"vhost": str, "name": str},
    "consumers": {
        "connection": str,
        "channel": int,
        "user": str,
        "vhost": str,
        "queue": str,
        "consumer_tag": str,
    },
}
"""what each row of a kind has, else it is no answer; a dict is one of numbers"""
SUMMED = frozenset(("totals", "clients", "memory"))
"""kinds whose other values are numbers, since they are added up"""

log = structlog.get_logger(component="operations")


class Peers(Protocol):
    """The way of questions to the other nodes."""

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        """None: it does not answer."""


@dataclass
class GatheredRows:
    """The rows that peers gave. `missing`: nodes that did not answer, or not to the end."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    count: int = 0
    nbytes: int = 0

    def takes(self, count: int, nbytes: int) -> bool:
        """Whether `count` rows more are within the bounds."""
        self.count += count
        self.nbytes += nbytes
        return self.count <= ROWS_MAX and self.nbytes <= ROWS_BYTES_MAX

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        """Each row, and the node that it is of."""
        for node, rows in self.rows.items():
            for row in rows:
                yield node, row


class PeerRows:
    """Rows from all other nodes of the cluster, each kind asked for once and kept for some seconds."""

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

    async def rows(self, of: str, **more: str | None) -> GatheredRows:
        """Of all other nodes at once. `name`: those of one connection; that there are none is not kept, since it may
        be a fresh one."""
        key = (of, *sorted(more.items()))
        while (kept := self._kept.get(key)) is None and key in self._asking:
            await self._asking[key].wait()
        if kept is not None:
            found: GatheredRows = kept
            return found
        asked = self._asking[key] = trio.Event()
        try:
            found = GatheredRows()
            async with trio.open_nursery() as nursery:
                for peer in self.others():
                    nursery.start_soon(self._list, peer, of, more, found)
            if found.count or "name" not in more:
                self._kept.put(key, found)
            return found
        finally:
            del self._asking[key]
            asked.set()

    async def figures(self, at: Mapping[str, Iterable[Key]]) -> tuple[dict[Key, Row], set[str]]:
        """What the leaders say of their queues; which leaders do not answer. `at`: queues by their leaders. What is
        not at the leader that was asked is left out."""
        found: dict[Key, Row] = {}
        missing: set[str] = set()
        async with trio.open_nursery() as nursery:
            for peer, keys in at.items():
                nursery.start_soon(self._figures, peer, keys, found, missing)
        return found, missing

    async def act(self, peer: str, of: str, **more: str | None) -> Row:
        """Raises the ManagementError with which the node refuses; Unavailable when it does not answer."""
        try:
            answer = await self._peers.ask(peer, json.dumps({"of": of, **more}), ACT_S)
        except ValueError as error:
            raise BadArgument(f"node '{peer}' cannot be asked, because a name is too long") from error
        self._kept.clear()
        if answer is None:
            raise Unavailable(
                f"node '{peer}' does not answer: look at its log, and whether it was done, and ask there"
            )
        found = _read(answer)
        if "refused" in found:
            raise of_kind(str(found["refused"]), f"node '{peer}': {found.get('says')}")
        rows = found.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unavailable(f"node '{peer}' does not say what it did: look at its log, and ask there")
        row: Row = rows[0] if rows else {}
        return row

    async def _list(self, peer: str, of: str, more: Mapping[str, str | None], found: GatheredRows) -> None:
        rows: list[Row] = []
        after, until_s = None, trio.current_time() + LIST_S
        while True:
            answer = await self._page(peer, of, {**more, "after": after})
            if answer is None or not found.takes(len(answer["rows"]), answer["nbytes"]):
                found.missing.add(peer)
                break
            rows += answer["rows"]
            found.rows[peer] = rows
            before, after = after, answer["next"]
            if after is None:
                break
            if not _is_beyond(after, before) or trio.current_time() > until_s:
                found.missing.add(peer)
                break

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
                        self._kept.put(("figures", *key), row)
                    before, after = after, len(names) if answer["next"] is None else answer["next"]
                    if not _is_beyond(after, before):
                        missing.add(peer)
                        return
            if not names:
                return

    def _unknown(self, left: Iterator[Key], found: dict[Key, Row]) -> list[Key]:
        """The next ones to be asked for; what is kept is in `found`."""
        names: list[Key] = []
        nbytes = 0
        for key in left:
            kept = self._kept.get(("figures", *key))
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
        try:
            text = await self._peers.ask(peer, json.dumps({"of": of, **more}), ANSWER_S)
        except ValueError as error:
            log.warning("another node cannot be asked", peer=peer, of=of, error=str(error))
            return None
        if text is None:
            self._kept.put(silent, True)
            return None
        answer = _read(text)
        rows, place = answer.get("rows"), answer.get("next")
        if not isinstance(rows, list) or not all(is_row(of, row) for row in rows) or not _is_place(of, place):
            log.warning("another node does not say what it was asked", peer=peer, of=of, said=answer.get("says"))
            return None
        return {"rows": rows, "next": place, "nbytes": len(text)}


def is_row(of: str, row: Any) -> bool:
    """Whether it has what each row of this kind has."""
    if not isinstance(row, dict):
        return False
    needed = NEEDED.get(of, {})
    if not all(isinstance(row.get(name), kind) for name, kind in needed.items()):
        return False
    counts = [row[name] for name, kind in needed.items() if kind is dict]
    if of in SUMMED:
        counts.append({name: value for name, value in row.items() if name not in needed})
    return all(isinstance(value, int | float) for each in counts for value in each.values())


def _is_place(of: str, place: Any) -> bool:
    """Of queues a number, else some numbers and names; None: the end."""
    if of == "queues" or place is None:
        return isinstance(place, int | None)
    parts = place if isinstance(place, list) else [place]
    return all(isinstance(part, int | str) for part in parts) and len(json.dumps(place)) <= PLACE_BYTES_MAX


def _is_beyond(after: Any, before: Any) -> bool:
    """Else the same rows would come without end."""
    try:
        return before is None or bool(after > before)
    except TypeError:
        return False


def _read(text: str) -> Row:
    """Empty for what is no object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
