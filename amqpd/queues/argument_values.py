"""What the value of one argument of a queue may be: a check for each kind of value.

What comes in: the value as it was read off the wire, and all arguments beside it. What goes out: what is wrong with
it, as Erlang prints RabbitMQ's reason (`{value_negative,-1}`, or a text in double quotes), or None.
Rules: 1. A boolean is not an integer, though Python has it so. 2. A long string is text or, where it is not UTF-8,
bytes.
Not here: which queue has which argument (`arguments.py`), what it does (`settings.py`).

Source: RabbitMQ 4.2's rabbit_amqqueue (declare_args, consume_args).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amqpd.queues.settings import CLASSIC, DROP_HEAD, PRIORITY_MAX, QUORUM, REJECT_PUBLISH, REJECT_PUBLISH_DLX
from amqpd.vocabulary.records import Arguments
from amqpd.wire.values import field_type

# Ten years, as RabbitMQ.
EXPIRY_MS_MAX = 315_360_000_000

_LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders", "min-masters")

_ESCAPED = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})

Check = Callable[[Any, Arguments], str | None]
"""(value, all arguments) -> what is wrong with the value"""


def is_text(value: Any) -> bool:
    return isinstance(value, str | bytes)


def text_of(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def says_no_type(arguments: Arguments) -> bool:
    """An empty type, and "undefined", which some clients send for none, are as good as none in RabbitMQ 4."""
    return arguments.get("x-queue-type", "") in ("", "undefined")


def type_name(arguments: Arguments) -> str:
    """What was asked for, whether or not there is such a type."""
    value = arguments.get("x-queue-type")
    return CLASSIC if says_no_type(arguments) or not is_text(value) else text_of(value)


def _quoted(text: str) -> str:
    """A reason that is a text in RabbitMQ, printed with ~p."""
    return f'"{text.translate(_ESCAPED)}"'


def _integer(value: Any, _: Arguments) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return _quoted(f"expected integer, got {field_type(value)}")


def _not_negative(value: Any, arguments: Arguments) -> str | None:
    wrong = _integer(value, arguments)
    return wrong if wrong or value >= 0 else f"{{value_negative,{value}}}"


def _message_ttl(value: Any, arguments: Arguments) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong if wrong or value <= EXPIRY_MS_MAX else f"{{value_too_large,{value}}}"


def _expires(value: Any, arguments: Arguments) -> str | None:
    wrong = _integer(value, arguments)
    return "{value_zero,0}" if wrong is None and value == 0 else wrong or _message_ttl(value, arguments)


def _group_size(value: Any, arguments: Arguments) -> str | None:
    wrong = _not_negative(value, arguments)
    return "{value_zero,0}" if wrong is None and value == 0 else wrong


def _priority(value: Any, arguments: Arguments) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong if wrong or value <= PRIORITY_MAX else f"{{max_value_exceeded,{value}}}"


def _version(value: Any, arguments: Arguments) -> str | None:
    wrong = _not_negative(value, arguments)
    return wrong if wrong or value in (1, 2) else _quoted(f"unsupported queue version '{value}'")


def _boolean(value: Any, _: Arguments) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{field_type(value)}}}"


def _any_text(value: Any, _: Arguments) -> str | None:
    return None if is_text(value) else f"{{unacceptable_type,{field_type(value)}}}"


def _one_of(texts: tuple[str, ...], reason: str) -> Check:
    def check(value: Any, arguments: Arguments) -> str | None:
        wrong = _any_text(value, arguments)
        return wrong or (None if text_of(value) in texts else reason)

    return check


def _dead_letter_routing_key(value: Any, arguments: Arguments) -> str | None:
    wrong = _any_text(value, arguments)
    if wrong is None and "x-dead-letter-exchange" not in arguments:
        return "routing_key_but_no_dlx_defined"
    return wrong


def _queue_mode(value: Any, arguments: Arguments) -> str | None:
    wrong = _any_text(value, arguments)
    if wrong is None and text_of(value) not in ("lazy", "default"):
        return _quoted(f"unsupported queue mode '{text_of(value)}'")
    return wrong


def check_queue_type(value: Any, arguments: Arguments) -> str | None:
    wrong = _any_text(value, arguments)
    # Streams are another protocol's queues; RabbitMQ says the same of a type whose plugin is not there.
    if wrong is None and type_name(arguments) not in (CLASSIC, QUORUM):
        return _quoted(f"unsupported queue type '{text_of(value)}'")
    return wrong


# In the order in which RabbitMQ looks at them.
DECLARE_CHECKS: Mapping[str, Check] = {
    "x-expires": _expires,
    "x-message-ttl": _message_ttl,
    "x-dead-letter-exchange": _any_text,
    "x-dead-letter-routing-key": _dead_letter_routing_key,
    "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _priority,
    "x-overflow": _one_of((DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX), "invalid_overflow"),
    "x-queue-mode": _queue_mode,
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-consumer-timeout": _not_negative,
    "x-quorum-initial-group-size": _group_size,
    "x-queue-leader-locator": _one_of(_LEADER_LOCATORS, "invalid_queue_locator_arg"),
}
CONSUME_CHECKS: Mapping[str, Check] = {"x-priority": _integer, "x-consumer-timeout": _not_negative}
