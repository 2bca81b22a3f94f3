"""What an operator does to a running broker from the command line.

What comes in: commands of the control socket, with their arguments. What goes out: closed connections, alarms set
and cleared, rows of the inventory.
Rules: 1. A wish that makes no sense is a `ControlError`, one sentence. 2. Many connections are closed a few at a
time, the broker going on in between. 3. What an operator did is in the log.
Not here: the socket (`control.py`), what rows say (`inventory.py`), who may reach the socket (its file mode).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
import trio

from amqpd.connection import Connection
from amqpd.management import inventory
from amqpd.management.control import ControlError, Handler, Listing, caller_uid
from amqpd.node.alarm_board import AlarmBoard, RefusedAlarm
from amqpd.node.node import Node
from amqpd.vocabulary.states import State

# Closing one deletes its exclusive queues and returns what it had not acknowledged: some 50 us each.
CLOSED_AT_ONCE = 200
# RabbitMQ's management interface says "Closed via management plugin".
DEFAULT_REASON = "closed by an operator"

Arguments = dict[str, Any]

log = structlog.get_logger(room="operations")


class Operations:
    """`handlers` and `listings` are for the control server."""

    def __init__(self, node: Node, settle: Callable[[], None], board: AlarmBoard) -> None:
        """`settle` is called after anything that acted on the node."""
        self._node = node
        self._settle = settle
        self._board = board

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "connection close": self._close_connections,
            "alarm set": self._set_alarm,
            "alarm clear": self._clear_alarm,
            "trace on": self._trace,
            "trace off": self._end_trace,
        }

    @property
    def listings(self) -> Mapping[str, Listing]:
        return {
            "connection list": self._list_connections,
            "alarm list": self._list_alarms,
            "trace list": self._list_traces,
            **{command: partial(listing, self._node) for command, listing in inventory.LISTINGS.items()},
        }

    async def _close_connections(self, arguments: Arguments) -> dict[str, Any]:
        reason = _text(arguments, "reason") or DEFAULT_REASON
        wanted = self._named(arguments)
        closed = 0
        for at, connection in enumerate(wanted, 1):
            if connection.state not in (State.CLOSING, State.LINGERING, State.CLOSED):
                closed += 1
                connection.force_close(reason)
            if at % CLOSED_AT_ONCE == 0:
                self._settle()
                await trio.lowlevel.checkpoint()
        self._settle()
        log.warning("connections closed by an operator", count=closed, reason=reason, uid=caller_uid())
        return {"closed": closed}

    def _named(self, arguments: Arguments) -> list[Connection]:
        """Those that the arguments mean: `id` (or a name as the log has it), or `user` and `vhost`, or `all`."""
        known = self._node.connections
        wanted = _text(arguments, "id")
        user, vhost = _text(arguments, "user"), _text(arguments, "vhost")
        if wanted is not None:
            found = [known[wanted]] if wanted in known else [each for each in known.values() if each.name == wanted]
            if not found:
                raise ControlError(f"there is no connection '{wanted}': `amqpd connection list` says which there are")
            return found
        if user is None and vhost is None and arguments.get("all") is not True:
            raise ControlError("say which connections: an id, a user, a virtual host, or all")
        return [each for each in known.values() if user in (None, each.user) and vhost in (None, each.vhost)]

    def _list_connections(self, filters: Arguments) -> Iterable[dict[str, Any]]:
        now = time.time()
        for row in inventory.connections(self._node, filters, trio.current_time()):
            row["connected_at"] = _moment(now - row.pop("age_s"))
            yield row

    async def _set_alarm(self, arguments: Arguments) -> dict[str, Any]:
        kind = _text(arguments, "name") or ""
        try:
            new = self._board.set_by_operator(kind, time.time())
        except RefusedAlarm as error:
            raise ControlError(str(error)) from None
        if new:
            log.warning("alarm set by an operator: publishers wait", alarm=kind, uid=caller_uid())
        self._settle()
        return {"new": new}

    async def _clear_alarm(self, arguments: Arguments) -> dict[str, Any]:
        kind = _text(arguments, "name") or ""
        was_set = self._board.clear_by_operator(kind)
        if was_set:
            log.info("alarm cleared by an operator", alarm=kind, uid=caller_uid())
            self._settle()
        still_on = sorted(alarm.source for alarm in self._board.alarms if alarm.kind == kind)
        return {"was_set": was_set, "still_on": still_on}

    def _list_alarms(self, _: Arguments) -> Iterable[dict[str, Any]]:
        for alarm in self._board.alarms:
            yield {"name": alarm.kind, "source": alarm.source, "since": _moment(alarm.since)}

    async def _trace(self, arguments: Arguments) -> dict[str, Any]:
        vhost = self._vhost(arguments)
        new = self._node.firehose.start(vhost)
        if new:
            log.warning("tracing turned on by an operator: messages are copied", vhost=vhost, uid=caller_uid())
        return {"new": new}

    async def _end_trace(self, arguments: Arguments) -> dict[str, Any]:
        vhost = self._vhost(arguments)
        was_on = self._node.firehose.stop(vhost)
        if was_on:
            log.warning("tracing turned off by an operator", vhost=vhost, uid=caller_uid())
        return {"was_on": was_on}

    def _vhost(self, arguments: Arguments) -> str:
        vhost = _text(arguments, "vhost") or "/"
        if vhost not in self._node.topology.vhosts:
            raise ControlError(f"there is no virtual host '{vhost}': `amqpd vhost list` says which there are")
        return vhost

    def _list_traces(self, _: Arguments) -> Iterable[dict[str, Any]]:
        for vhost, tap in self._node.firehose.taps.items():
            yield {"vhost": vhost, "traced": tap.traced, "dropped": tap.dropped}


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise ControlError(f"{name} must be a text")
    return value


def _moment(posix_s: float) -> str:
    return datetime.fromtimestamp(posix_s, UTC).isoformat(timespec="seconds")
