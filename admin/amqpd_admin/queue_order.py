"""Which queues are on a page, without a row of each: by their names, or by figures that cost nothing.

What comes in: who asks, virtual hosts, what a request says of its list. What goes out: queues, in order.
Rules: 1. The order is that of the rows (`views.py`): a figure here has the value that its row has. 2. Names that are
kept in order (`amqpd/management/figures/queue_names.py`) are not sorted again. 3. A queue to which nothing happened
lately has no rates, and is not asked.
Not here: rows (`rows/queues.py`), lists of other things (`lists.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.figures.queue_facts import STATS, growth_of, state_of
from amqpd.management.figures.totals import port_of
from amqpd.management.pacing import WalkPace, each, in_order
from amqpd.node.node import Node
from amqpd.queues.facts import Facts
from amqpd.queues.port import QueuePort
from amqpd_admin.lists import Chosen
from amqpd_admin.login import Who
from amqpd_admin.views import View, ranked, value_of

AT_ONCE = 1000
FIGURES: dict[str, Callable[[QueuePort], Any]] = {
    "messages": lambda queue: queue.ready_count + queue.unacked_count,
    "messages_ready": lambda queue: queue.ready_count,
    "messages_unacknowledged": lambda queue: queue.unacked_count,
    "consumers": lambda queue: queue.consumer_count,
    "memory": lambda queue: queue.memory_bytes,
    "state": state_of,
}
_COUNTED = {f"message_stats.{name}": ours for name, ours in STATS}
_RATES = {f"{path}_details.rate": ours for path, ours in _COUNTED.items()}

Run = tuple[str, Sequence[str]]
"""a virtual host, and names of queues in it"""
Key = tuple[str, str]
"""of a queue: its virtual host and its name"""


class QueueOrder:
    """Chooses the queues on the page that one request asks for, in their order."""

    def __init__(self, who: Who, vhosts: Iterable[str], leaders: Leaders, has: Callable[[str], bool]) -> None:
        """`has`: whether rows have such a column."""
        self._behind = who.parts
        self._has = has
        self._vhosts = list(vhosts)
        self._leaders = leaders

    async def choose(self, view: View) -> Chosen[QueuePort] | None:
        """None: rows are needed to know the order. Raises Refusal."""
        node, pace, runs, total = self._behind.on.node, WalkPace(), list[Run](), 0
        value = None
        if not view.by_names:
            value = _figure(node, view.sort[0]) if self._has(view.sort[0]) else None
            if value is None:
                return None
        matches = view.matcher()
        for vhost in sorted(self._vhosts):
            await pace.step()
            names = await self._behind.queue_names.of(vhost)
            total += len(names)
            if wanted := await _matching(names, view, matches, pace):
                runs.append((vhost, wanted))
        filtered = sum(len(names) for _, names in runs)
        part = view.part(filtered)
        if value is not None:
            found = await each(_after_each_other(runs), lambda key: port_of(node, *key), pace)
            return Chosen((await self._by_figure(found, value, view, part.stop))[part], filtered, total)
        keys = await _by_names(runs, view, part, pace)
        return Chosen(await each(keys, lambda key: port_of(node, *key), pace), filtered, total)

    async def _by_figure(
        self, found: list[QueuePort], value: Callable[[QueuePort], Any], view: View, first: int
    ) -> list[QueuePort]:
        """The `first` of them, in order."""
        leaders, path = self._leaders, view.sort[0]
        await leaders.ask(found)

        def key(queue: QueuePort) -> tuple[Any, ...]:
            # Of one that is elsewhere its leader has the figures, if anybody; of one that went meanwhile nobody.
            if queue.is_remote:
                said = leaders.state(queue) if path == "state" else value_of(leaders.figures(queue) or {}, path)
            else:
                said = None if queue.is_deleted else value(queue)
            return (*ranked(said), queue.record.vhost, queue.record.name)

        return await in_order(found, key, reverse=view.reverse, first=first)


def _figure(node: Node, path: str) -> Callable[[QueuePort], Any] | None:
    """What is in the column, of a queue of this node; None: it is no figure that costs nothing."""
    if path in _COUNTED:
        counted = _COUNTED[path]
        return lambda queue: _total(node, queue, counted)
    if path in _RATES:
        rate = _RATES[path]
        return lambda queue: round(_rates(node, queue)[rate], 1) if queue in node.active else 0
    if path == "oldest_message_age_s":
        return lambda queue: _age_ms(node, queue)
    if path == "messages_details.rate":
        return lambda queue: growth_of(_rates(node, queue)) if queue in node.active else 0
    return FIGURES.get(path)


def _total(node: Node, queue: QueuePort, counted: str) -> int:
    facts = _facts(node, queue)
    total: int = getattr(facts, counted)
    return total - facts.recovered if counted == "accepted" else total


def _age_ms(node: Node, queue: QueuePort) -> int:
    """In whatever unit, the order is the same; without messages it is a zero, as in a row."""
    oldest_ms = node.queues[queue.record.vhost, queue.record.name].statistics(node.now_ms).oldest_ms
    return 0 if oldest_ms is None else max(0, node.now_ms - oldest_ms)


def _rates(node: Node, queue: QueuePort) -> dict[str, float]:
    return _facts(node, queue).rates(node.now_ms)


def _facts(node: Node, queue: QueuePort) -> Facts:
    return node.queues[queue.record.vhost, queue.record.name].facts


async def _matching(
    names: Sequence[str], view: View, matches: Callable[[str], bool], pace: WalkPace
) -> Sequence[str]:
    """Those that the request asks for."""
    if not view.name:
        return names
    found = list[str]()
    # An expression may take long for each name.
    at_once = 1 if view.use_regex else AT_ONCE
    for begin in range(0, len(names), at_once):
        await pace.step()
        found += filter(matches, names[begin : begin + at_once])
    return found


async def _by_names(runs: list[Run], view: View, part: slice, pace: WalkPace) -> list[Key]:
    """Those on the page."""
    if view.reverse:
        runs = [(vhost, names[::-1]) for vhost, names in reversed(runs)]
    if view.sort != ("name",) or len(runs) < 2:
        return await each(_after_each_other(runs, part.start, part.stop), _same, pace)
    named = await each(runs, lambda run: zip(run[1], repeat(run[0])), pace)
    return (await each(islice(heapq.merge(*named, reverse=view.reverse), part.stop), _turned, pace))[part.start :]


def _after_each_other(runs: list[Run], begin: int = 0, end: int | None = None) -> Iterator[Key]:
    """Keys with these numbers."""
    for vhost, names in runs:
        if end is not None and end <= 0:
            return
        yield from ((vhost, name) for name in names[begin:end])
        begin, end = max(begin - len(names), 0), None if end is None else end - len(names)


def _turned(key: Key) -> Key:
    return key[1], key[0]


def _same(key: Key) -> Key:
    return key
