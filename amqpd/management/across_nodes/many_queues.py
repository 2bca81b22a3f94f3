"""Many queues at once: purged or deleted by an operator, or first counted in a dry run.

What comes in: which queues are meant, by names, a regular expression, what is in them; who asks for it. What goes
out: a row for each: what was done, or would be, or why not.
Rules: 1. More than `QUEUES_MAX` are refused before anything is done. 2. One after the other, the broker going on in
between; who leaves stops it after a queue, and what is done by then is done. 3. A queue that refuses is told with its
reason, and the others go on. 4. Whether a condition holds is looked at again when it is a queue's turn; that it is
empty or unused by its leader, when the store is asked to delete it.
Not here: one queue (`led_queues.py`, `management/queues.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from amqpd.management.across_nodes import led_queues
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.control.arguments import CONDITIONS
from amqpd.management.errors import BadArgument, ManagementError
from amqpd.management.operators import Operator
from amqpd.management.pacing import WalkPace
from amqpd.management.running import Running
from amqpd.queues.port import QueuePort
from amqpd.topology.expressions import Expression, PatternError, compile_expression

QUEUES_MAX = 10_000
"""Somebody who means more has forgotten something, or may do it in several goes."""

NO_MORE = {
    "empty": "it is not empty any more",
    "backlog": "it has no backlog any more",
    "unused": "it has consumers now",
    "used": "it has no consumers any more",
}

Act = Literal["purge", "delete"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Meant:
    """The queues that a request means: those of which all holds that is said. `pattern` is found anywhere in the
    name; so is `text`, without regard to case, as lists are searched."""

    vhost: str | None = None
    pattern: str | None = None
    conditions: Sequence[str] = ()
    names: Sequence[tuple[str, str]] | None = None
    """virtual host and name of each"""
    text: str | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Meant:
        """Of JSON: `vhost`, `matching`, `containing`, `only`, `names`. Raises BadArgument."""
        vhost, pattern, conditions = (arguments.get(each) for each in ("vhost", "matching", "only"))
        text, names = arguments.get("containing"), arguments.get("names")
        for name, value in (("vhost", vhost), ("matching", pattern), ("containing", text)):
            if not isinstance(value, str | None):
                raise BadArgument(f"{name} must be a text")
        conditions = [] if conditions is None else conditions
        if not isinstance(conditions, list) or not all(each in CONDITIONS for each in conditions):
            raise BadArgument(f"only is a list of {', '.join(CONDITIONS)}")
        if names is not None and not _are_names(names):
            raise BadArgument("names is a list of queues, each a list of its virtual host and its name")
        if pattern is None and text is None and not conditions and names is None:
            raise BadArgument("say which queues: by names, by a regular expression, or by what is in them")
        keys = None if names is None else [(each[0], each[1]) for each in names]
        return cls(vhost, pattern, conditions, keys, text)


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(
        isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each) for each in names
    )


async def carry_out(
    on: Running, leaders: Leaders, by: Operator, act: Act, meant: Meant, *, dry_run: bool
) -> AsyncGenerator[list[Row], None]:
    """Rows in pages: `vhost`, `name`, `messages` (ready ones that went, or would; None: nobody knows), `refused` (why
    it was not done, or None). Raises BadArgument, NotFound for the virtual host."""
    found, missing = await _found(on, by, meant)
    for vhost, name in missing:
        yield [{"vhost": vhost, "name": name, "messages": None, "refused": "it is not there any more"}]
    for at in range(0, len(found), led_queues.ROWS_AT_ONCE):
        some = found[at : at + led_queues.ROWS_AT_ONCE]
        await leaders.ask(some)
        for queue in some:
            figures = led_queues.row_of(on, leaders, queue)
            if figures is None:
                continue
            fails = [each for each in meant.conditions if not _holds(each, figures)]
            if fails and meant.names is None:
                continue
            row: Row = {"vhost": queue.record.vhost, "name": queue.record.name, "refused": None}
            if fails:
                row |= {"messages": None, "refused": _why_not(fails, figures)}
            elif dry_run:
                row["messages"] = figures["messages_ready"]
            else:
                row |= await _done(on, leaders, by, act, row["vhost"], row["name"], meant.conditions)
            yield [row]


async def _found(on: Running, by: Operator, meant: Meant) -> tuple[list[QueuePort], list[tuple[str, str]]]:
    """Those of these names, and names that nothing has. Of exclusive ones, which are a connection's own, only who
    names them means them."""
    if meant.vhost is not None:
        on.vhost(meant.vhost)
    try:
        expression = None if meant.pattern is None else compile_expression(meant.pattern)
    except PatternError as error:
        raise BadArgument(f"'{meant.pattern}' is no regular expression: {error}") from None
    pace, found = WalkPace(), list[QueuePort]()
    for queue in _candidates(on, meant):
        await pace.step()
        if _is_meant(on, by, meant, expression, queue):
            found.append(queue)
    if len(found) > QUEUES_MAX:
        raise BadArgument(f"{len(found):,} queues are meant, more than {QUEUES_MAX:,} at once: say it more narrowly")
    missing = [key for key in dict.fromkeys(meant.names or ()) if on.node.ports.get(key) is None]
    return sorted(found, key=lambda queue: (queue.record.vhost, queue.record.name)), missing


def _candidates(on: Running, meant: Meant) -> Iterator[QueuePort]:
    if meant.names is None:
        return iter(on.node.ports.ports())
    found = map(on.node.ports.get, dict.fromkeys(meant.names))
    return (queue for queue in found if queue is not None)


def _is_meant(on: Running, by: Operator, meant: Meant, expression: Expression | None, queue: QueuePort) -> bool:
    record = queue.record
    if queue.is_deleted or meant.vhost not in (None, record.vhost):
        return False
    if record.exclusive and meant.names is None:
        return False
    if by.user is not None and not on.node.access.may_enter(by.user, record.vhost):
        return False
    if meant.text is not None and meant.text.lower() not in record.name.lower():
        return False
    return expression is None or expression.is_in(record.name)


def _holds(condition: str, figures: Row) -> bool:
    """What nobody knows does not hold."""
    messages, consumers = figures["messages"], figures["consumers"]
    if condition in ("empty", "backlog"):
        return messages is not None and bool(messages) == (condition == "backlog")
    return consumers is not None and bool(consumers) == (condition == "used")


def _why_not(fails: Sequence[str], figures: Row) -> str:
    if figures["messages"] is None or figures["consumers"] is None:
        return "what it has is not known: a node does not answer"
    return " and ".join(NO_MORE[each] for each in fails)


async def _done(
    on: Running, leaders: Leaders, by: Operator, act: Act, vhost: str, name: str, conditions: Sequence[str]
) -> Row:
    try:
        if act == "purge":
            return {"messages": await led_queues.purge(on, leaders, by, vhost, name)}
        unused, empty = (each in conditions for each in ("unused", "empty"))
        if unused or empty:
            where = on, leaders, by, vhost, name
            return {
                "messages": await led_queues.delete_on_conditions(*where, if_unused=unused, if_empty=empty),
            }
        gone = await led_queues.delete(on, leaders, by, vhost, name, if_unused=False, if_empty=False)
        return {"messages": gone}
    except ManagementError as error:
        return {"messages": None, "refused": str(error)}
