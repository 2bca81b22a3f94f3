"""What this node answers when another node of its cluster asks, for an operator who asked that one.

What comes in: a question, as JSON: `of`, which kind; `after`, where the page before ended; more for some kinds:
`user`, `name` of a connection, for which rows of clients.
What goes out: a page, as JSON: `rows`, and `next`, where to go on, or null; or `refused` and `says`, as `errors.py`
has it.
Rules: 1. A page is at most `PAGE_BYTES_MAX` long, made in steps, and ends after `PAGE_S`. 2. Nothing is kept here
between two pages: where one ended is in the next question. 3. What is no question of this form is refused, and
nothing else happens. 4. Who may see a row is looked at by the node that was asked; acts are done with the user's
permissions. 5. A row that lacks what it had before is a new version of the messages
(`peers/messages.py`).
Not here: who asks (`rows.py`), how questions come (`amqpd/cluster/queries.py`).
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from operator import itemgetter
from typing import Any

import structlog
import trio

from amqpd.faults import ENDS_NODE
from amqpd.management import alarms, connections, queues
from amqpd.management.across_nodes.queue_figures import figures_of
from amqpd.management.attention.watch import AttentionWatch, entered_by
from amqpd.management.connections import CloseRequest
from amqpd.management.errors import BadArgument, ManagementError
from amqpd.management.figures import totals
from amqpd.management.figures.inventory import channel_row, connection_row, consumer_row, figures_of_exchange
from amqpd.management.figures.memory import memory_of
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.operators import Operator
from amqpd.management.pacing import WalkPace
from amqpd.management.running import Running
from amqpd.management.why.queues import explained
from amqpd.node.connection_rates import ConnectionRates
from amqpd.session.consumers import Consumer
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.vocabulary.states import ConnectionState

PAGE_BYTES_MAX = 64 << 10
"""What a message between nodes may have (`amqpd/peers/encoding.py`)."""
ROWS_BYTES_MAX = PAGE_BYTES_MAX - 4096
"""Of a page's rows: where it ended, which may be a consumer's tag, stands behind them."""
VALUE_BYTES_MAX = 8 << 10
"""Of a value in a row that alone would fill a page; a longer one is left out: a client's properties, in escapes."""
PAGE_S = 0.5
"""Who asks waits for 2 s (`rows.py`), also when the node has much else to do."""
SAYS_LENGTH_MAX = 4000
"""Of a refusal's sentence, which has names of clients: in escapes a page holds it."""

Row = dict[str, Any]
Question = dict[str, Any]
Rows = AsyncGenerator[tuple[Any, Row | None], None]
"""where each stands, and the row, if there is one yet"""

log = structlog.get_logger(component="operations")


class PeerAnswers:
    """The answers of this node to operators' questions at other nodes."""

    def __init__(self, on: Running, facts: NodeFacts, watch: AttentionWatch) -> None:
        self._on = on
        self._watch = watch
        self._facts = facts
        self._lists: dict[str, Callable[[Question], Rows]] = {
            "node": self._node,
            "memory": self._memory,
            "totals": self._totals,
            "clients": self._clients,
            "attention": self._attention,
            "queues": self._queues,
            "connections": self._connections,
            "channels": self._channels,
            "exchanges": self._exchanges,
            "consumers": self._consumers,
            "close": self._close,
            "close_many": self._close_many,
            "purge": self._purge,
            "delete": self._delete,
            "why": self._why,
            "clear_alarm": self._clear_alarm,
        }

    async def answer(self, text: str) -> str:
        """Raises what ends the node."""
        try:
            question = _question(text)
            walk = self._lists.get(question.get("of", ""))
            if walk is None:
                raise BadArgument("there is no question of this kind")
            async with aclosing(walk(question)) as rows:
                return await _page(rows)
        except ManagementError as error:
            return written({"refused": error.kind, "says": str(error)[:SAYS_LENGTH_MAX]})
        except ENDS_NODE:
            raise
        except Exception:
            log.exception("another node's question failed")
            return written({"refused": ManagementError.kind, "says": "it failed inside that node: see its log"})

    # Of each kind

    async def _node(self, _: Question) -> Rows:
        yield None, await self._facts.row()

    async def _memory(self, _: Question) -> Rows:
        """What for, in bytes."""
        yield None, dict(await memory_of(self._on.node))

    async def _totals(self, question: Question) -> Rows:
        """By virtual host."""
        place, sums = _place(question, str), await self._facts.sums.by_vhost()
        for name in sorted(each for each in sums if not place or each > place[0]):
            yield [name], {"vhost": name, **{each: count for each, count in sums[name].items() if count}}

    async def _clients(self, question: Question) -> Rows:
        user = _text(question, "user", "") if question.get("user") is not None else None
        yield None, dict(await totals.of_clients(self._on.node, user))

    async def _attention(self, question: Question) -> Rows:
        """All facts, or those that a user may see."""
        user = _text(question, "user") if question.get("user") is not None else None
        for fact in await self._watch.facts(user, entered_by(self._on.node.access, user)):
            yield None, fact.row

    async def _queues(self, question: Question) -> Rows:
        """`names`: virtual host and name of each; `after`: how many of them were answered."""
        names, after = question.get("names"), question.get("after") or 0
        if not isinstance(names, list) or not isinstance(after, int) or not 0 <= after <= len(names):
            raise BadArgument("names must be a list, and after a number of it")
        for at, each in enumerate(names[after:], after + 1):
            if not (isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each)):
                raise BadArgument("a queue is its virtual host and its name")
            yield at, figures_of(self._on.node, each[0], each[1])

    async def _connections(self, question: Question) -> Rows:
        wanted = _wanted(question)
        for connection in self._behind(_place(question, int)):
            row = _connection(connection, self._on.node.totals.traffic) if wanted(connection) else None
            yield [number_of(connection)], row

    async def _channels(self, question: Question) -> Rows:
        wanted = _wanted(question)
        for place, channel in self._channels_behind(_place(question, int, int)):
            traffic = self._on.node.totals.traffic
            yield place, channel_row(channel, traffic) if wanted(channel.connection) else None

    async def _exchanges(self, question: Question) -> Rows:
        """What passes them here, and what waits; of one virtual host with `vhost`."""
        node, place = self._on.node, _place(question, str, str)
        of_vhost = None if question.get("vhost") is None else _text(question, "vhost")
        for vhost in sorted(node.topology.vhosts):
            if of_vhost not in (None, vhost) or (place and vhost < place[0]):
                continue
            contents = node.topology.vhosts.get(vhost)
            for name in sorted(["", *contents.exchanges]) if contents is not None else ():
                if place and (vhost, name) <= (place[0], place[1]):
                    continue
                found = figures_of_exchange(node, vhost, name)
                yield [vhost, name], {"vhost": vhost, "name": name, **found} if found else None

    async def _consumers(self, question: Question) -> Rows:
        """Of one queue with `vhost` and `queue`."""
        place, wanted = _place(question, int, int, str), _wanted(question)
        of_queue = question.get("queue") is not None
        for at, consumer in self._of_queue(question) if of_queue else self._of_channels(place, wanted):
            if at <= place:
                continue
            if consumer is None or not wanted(consumer.channel.connection):
                yield at, None
            else:
                single = consumer.queue.single_active_consumer
                yield at, {**consumer_row(consumer.channel, consumer), "single": single}

    def _of_queue(self, question: Question) -> Iterator[tuple[list[Any], Consumer | None]]:
        queue = self._on.node.ports.get((_text(question, "vhost"), _text(question, "queue")))
        found = [] if queue is None else [each for each in queue.subscribers() if isinstance(each, Consumer)]
        places = ([number_of(each.channel.connection), each.channel.id, each.tag] for each in found)
        yield from sorted(zip(places, found, strict=True), key=itemgetter(0))

    def _of_channels(
        self, place: list[Any], wanted: Callable[[ConnectionBase], bool]
    ) -> Iterator[tuple[list[Any], Consumer | None]]:
        for at, channel in self._channels_behind(place[:2], or_at=True):
            yield [*at, ""], None  # a step, also where nobody consumes
            for tag in sorted(channel.consumers) if wanted(channel.connection) else ():
                consumer = channel.consumers.get(tag)
                if isinstance(consumer, Consumer):
                    yield [*at, tag], consumer

    def _behind(self, place: list[Any], *, or_at: bool = False) -> Iterator[ConnectionBase]:
        """Connections in the order in which they came, that of the place too if it is wanted."""
        known = self._on.node.connections
        found = list(known.values())
        begin = (bisect_left if or_at else bisect_right)(found, place[0] if place else -1, key=number_of)
        for connection in found[begin:]:
            if connection.state is not ConnectionState.CLOSED:
                yield connection

    def _channels_behind(self, place: list[Any], *, or_at: bool = False) -> Iterator[tuple[list[Any], ChannelBase]]:
        for connection in self._behind(place, or_at=True):
            for number in sorted(connection.channels):
                at, channel = [number_of(connection), number], connection.channels.get(number)
                if channel is not None and (at > place or (or_at and at == place)):
                    yield at, channel

    # Acts

    async def _close(self, question: Question) -> Rows:
        """A connection by its name, or those of a user; `by` asks for it."""
        by, reason = _by(question), _text(question, "reason")
        name, user = question.get("name"), question.get("user")
        if name is not None:
            request = CloseRequest(which=_text(question, "name"), reason=reason)
        else:
            request = CloseRequest(user=_text(question, "user"), reason=reason)
        closed = await connections.close(self._on, by, request)
        yield None, {"closed": closed, "user": user}

    async def _close_many(self, question: Question) -> Rows:
        """Those of `user` in `vhost`; without one of them of all, which is said with null."""
        if not {"user", "vhost"} <= question.keys():
            raise BadArgument("user and vhost say which connections, each a text, or null for all")
        user, vhost = (None if question[each] is None else _text(question, each) for each in ("user", "vhost"))
        everything = user is None and vhost is None
        request = CloseRequest(user=user, vhost=vhost, everything=everything, reason=_text(question, "reason"))
        closed = await connections.close(self._on, _by(question), request)
        yield None, {"closed": closed}

    async def _purge(self, question: Question) -> Rows:
        by = _by(question)
        vhost, name = _text(question, "vhost"), _text(question, "name")
        yield None, {"messages": await queues.purge(self._on, by, vhost, name)}

    async def _delete(self, question: Question) -> Rows:
        """A queue that is led here, on conditions: `if_unused`, `if_empty`, each "yes" or "no"."""
        vhost, name = _text(question, "vhost"), _text(question, "name")
        unused, empty = (_text(question, each) == "yes" for each in ("if_unused", "if_empty"))
        where = self._on, _by(question), vhost, name
        gone = await queues.delete(*where, if_unused=unused, if_empty=empty, any_type=True)
        yield None, {"messages": gone}

    async def _why(self, question: Question) -> Rows:
        """In words, of a queue that is led here."""
        vhost, name = _text(question, "vhost"), _text(question, "name")
        named = question.get("names_consumers") == "yes"
        yield None, {"why": await explained(self._on, vhost, name, names_consumers=named)}

    async def _clear_alarm(self, question: Question) -> Rows:
        """One that an operator has set here."""
        yield None, dict(alarms.clear(self._on, Operator(user=_text(question, "by")), _text(question, "name")))


def number_of(connection: ConnectionBase) -> int:
    """Connections of a node are numbered as they come: it is in front of their ids."""
    return int(connection.id[1:].partition("-")[0])


def written(value: Any) -> str:
    """Names that are no UTF-8 are in escapes."""
    return json.dumps(value, separators=(",", ":"))


async def _page(rows: Rows) -> str:
    """The first rows, as many as fit, and as come in time."""
    pace, texts, nbytes, place, until_s = WalkPace(), list[str](), 0, None, trio.current_time() + PAGE_S
    async for at, row in rows:
        await pace.step()
        if row is not None:
            text = _row(row)
            if texts and nbytes + len(text) > ROWS_BYTES_MAX:
                return _written_page(texts, place)
            texts.append(text)
            nbytes += len(text) + 1
        place = at
        if place is not None and trio.current_time() >= until_s:
            return _written_page(texts, place)
    return _written_page(texts, None)


def _written_page(rows: list[str], place: Any) -> str:
    return f'{{"rows":[{",".join(rows)}],"next":{written(place)}}}'


def _row(row: Row) -> str:
    text = written(row)
    if len(text) <= ROWS_BYTES_MAX:
        return text
    return written({name: value for name, value in row.items() if len(written(value)) <= VALUE_BYTES_MAX})


def _connection(connection: ConnectionBase, traffic: ConnectionRates) -> Row:
    """The moment of its beginning is by this node's clock."""
    row = connection_row(connection, trio.current_time(), traffic)
    row["connected_at_ms"] = round((time.time() - row.pop("age_s")) * 1000)
    return row


def _question(text: str) -> Question:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("of"), str):
        raise BadArgument('a question is one JSON object: {"of": KIND, "after": PLACE}')
    return found


def _text(question: Question, name: str, otherwise: str | None = None) -> str:
    value = question.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def _by(question: Question) -> Operator:
    """Who asks for it. Nobody's name, and not a missing one, is an operator's of the other node's machine."""
    nobody = question.get("by", "") is None
    return Operator(user=None if nobody else _text(question, "by"))


def _wanted(question: Question) -> Callable[[ConnectionBase], bool]:
    """By `user`, by the connection's `name`; without them all."""
    user, name = (None if question.get(each) is None else _text(question, each) for each in ("user", "name"))
    return lambda connection: user in (None, connection.user) and name in (None, connection.name)


def _place(question: Question, *kinds: type) -> list[Any]:
    """Numbers of a connection and a channel, a consumer's tag; a virtual host. Empty: the beginning."""
    after = question.get("after")
    if after is None:
        return []
    if not (isinstance(after, list) and len(after) == len(kinds) and all(map(isinstance, after, kinds))):
        raise BadArgument("after is no place in this list")
    return after
