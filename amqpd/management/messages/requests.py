"""Which messages a command means: the arguments of `message list`, `delete` and `move`.

What comes in: arguments as a face has them, values of JSON: `vhost`, `queue`, `state`, `body`, `from`, `count`, `ids`
(pairs of first and last), `message_id`, `headers` (pairs of name and value, null for any), `all`, `yes`, `to_vhost`,
`to_queue`. What goes out: a `MessagesRequest`, or the sentence that says what is wrong with it.
Rules: 1. All that is said must hold: places, ids, message_id, headers. 2. What acts says which messages: all of them
only with `all`. 3. Nothing is done without `yes`.
Not here: options of the command line (`commands/messages.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from amqpd.management.errors import BadArgument
from amqpd.queues.browsing import EVERY, ID_MAX, READY, UNACKED, Ids
from amqpd.queues.contents import Condition

# A page for a person; a larger number is possible.
COUNT_DEFAULT = 50
# More of a body is for a consumer.
BODY_BYTES_MAX = 64 << 10
RANGES_MAX = 1000
HEADERS_MAX = 100
# A step of work: some milliseconds in which the broker does nothing else.
STEP_MESSAGES = 256
STEP_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request for messages of a queue. `count` is the most that there may be; `start` a position, from 1 on;
    `body` how many bytes of each body."""

    vhost: str
    queue: str
    start: int
    count: int
    ids: Ids
    condition: Condition
    ready: bool = True
    unacked: bool = False
    body: int = 0
    held_by: bool = True
    """say of those that are unacked who has them"""
    dry_run: bool = True
    to_vhost: str = ""
    to_queue: str = ""
    said: dict[str, Any] = field(default_factory=dict)
    """what selects, for the log"""

    @property
    def step(self) -> int:
        """How many messages to look at in one go."""
        return max(1, min(STEP_MESSAGES, STEP_BODY_BYTES // max(self.body, 1)))

    @classmethod
    def of_listing(cls, arguments: dict[str, Any]) -> MessagesRequest:
        """The request of a command that lists messages. Raises BadArgument."""
        state = arguments.get("state", READY)
        if state not in (READY, UNACKED, "all"):
            raise BadArgument("a state is ready, unacked or all")
        body = _number(arguments, "body", 0, 0)
        if body > BODY_BYTES_MAX:
            raise BadArgument(f"at most {BODY_BYTES_MAX} bytes of a body are listed")
        return cls(
            **_selected(arguments, COUNT_DEFAULT),
            ready=state != UNACKED,
            unacked=state != READY,
            body=body,
            held_by=arguments.get("held_by", True) is True,
        )

    @classmethod
    def of_act(cls, arguments: dict[str, Any]) -> MessagesRequest:
        """The request of a command that deletes, moves or exports messages. Raises BadArgument."""
        said = {
            name: arguments[name] for name in ("ids", "message_id", "headers", "from", "count") if arguments.get(name)
        }
        if not said and arguments.get("all") is not True:
            raise BadArgument("say which messages: ids, a position and a count, a message_id, headers, or all")
        vhost = _text(arguments, "vhost")
        return cls(
            **_selected(arguments, ID_MAX),
            dry_run=arguments.get("yes") is not True,
            to_vhost=_text(arguments, "to_vhost") if arguments.get("to_vhost") else vhost,
            to_queue=_text(arguments, "to_queue") if "to_queue" in arguments else "",
            said=said,
        )


def _selected(arguments: dict[str, Any], count: int) -> dict[str, Any]:
    message_id = arguments.get("message_id")
    if message_id is not None and not isinstance(message_id, str):
        raise BadArgument("message_id must be a text")
    return {
        "vhost": _text(arguments, "vhost"),
        "queue": _text(arguments, "queue"),
        "start": _number(arguments, "from", 1, 1),
        "count": _number(arguments, "count", count, 1),
        "ids": _ids(arguments.get("ids")),
        "condition": Condition(message_id, _headers(arguments.get("headers"))),
    }


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def _number(arguments: dict[str, Any], name: str, default: int, least: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadArgument(f"{name} must be a number, {least} or more")
    return value


def _ids(value: Any) -> Ids:
    """Pairs of first and last id, made ascending and disjoint."""
    if not value:
        return EVERY
    try:
        pairs = sorted((int(first), int(last)) for first, last in value)
    except (TypeError, ValueError, OverflowError):
        raise BadArgument("ids must be pairs of numbers") from None
    if len(pairs) > RANGES_MAX:
        raise BadArgument(f"more than {RANGES_MAX} ranges of ids: give them in several commands")
    found: list[tuple[int, int]] = []
    for first, last in pairs:
        if not 0 <= first <= last <= ID_MAX:
            raise BadArgument(f"{first}-{last} is no range of ids")
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _headers(value: Any) -> tuple[tuple[str, str | None], ...]:
    if not value:
        return ()
    if (
        not isinstance(value, list)
        or len(value) > HEADERS_MAX
        or not all(
            isinstance(pair, list)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and (pair[1] is None or isinstance(pair[1], str))
            for pair in value
        )
    ):
        raise BadArgument(f"headers must be pairs of a name and a value, {HEADERS_MAX} at the most")
    return tuple((name, wanted) for name, wanted in value)
