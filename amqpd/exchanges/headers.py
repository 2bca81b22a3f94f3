"""The headers exchange: a message goes where its headers agree with a binding's arguments (AMQP 0-9-1,
3.1.3.4).

What comes in: bindings with arguments, message headers. What goes out: the destinations of the bindings that
agree.
Theory of operation. A binding becomes a list of wanted headers. One of them (or with `any` each of them) is
filed in an index by name and value; a message looks up its headers there, and only bindings found that way
are checked further. So a match costs the headers of the message and the bindings that come near, not all
bindings.
Rules (RabbitMQ's rabbit_exchange_type_headers.erl): 1. `x-match` is `all` (also when absent), `any`,
`all-with-x` or `any-with-x`; 2. arguments whose names begin with `x-` are not compared unless it is one of
the last two, and `x-match` itself never is; 3. a binding's void value is met by any value, also by void; 4.
values are compared with their types, see `comparable`; 5. `all` of nothing matches every message, `any` of
nothing none; 6. routing keys are not looked at.
Not here: how values are compared (`wire/values.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.matcher import Destination, Matcher, Reads, destination_of
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, Key, QueueRecord
from amqpd.wire.values import NestedTooDeep, comparable, erlang_term

X_MATCH = "x-match"
_MODES = ("all", "any", "all-with-x", "any-with-x")
_PRESENT = "present"  # stands where a value would be; no value of `comparable` is a plain text
Wanted = tuple[str, Hashable]
# Bindings looked at before other connections may be served.
STEP_WANTS = 250


class Compared(dict[str, Hashable]):
    """A message's headers as values that compare with their types, each worked out once, when it is looked at: a
    large one may stand beside thousands of bindings that want it."""

    def __init__(self, headers: Mapping[str, Any], values: _Values) -> None:
        super().__init__()
        self._headers = headers
        self._values = values

    def __contains__(self, name: object) -> bool:
        return name in self._headers

    def __missing__(self, name: str) -> Hashable:
        value = self[name] = self._values.find(comparable(self._headers[name]))
        return value


class _Values:
    """The values that bindings want. Equal ones are one object: two large ones are compared once for a message, not
    once for each binding."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Hashable, int]] = {}

    def keep(self, value: Hashable) -> Hashable:
        """The object to keep; give it back with `release`."""
        known, count = self._known.get(value, (value, 0))
        self._known[known] = known, count + 1
        return known

    def release(self, value: Hashable) -> None:
        known, count = self._known[value]
        if count > 1:
            self._known[known] = known, count - 1
        else:
            del self._known[known]

    def find(self, value: Hashable) -> Hashable:
        """The kept object that is equal, or the value itself."""
        return self._known.get(value, (value, 0))[0]


class _Want:
    """A binding, read: every pair of `wanted` must be met, or with `any_of` one. `filed` are the pairs that
    lead here in the index."""

    __slots__ = ("any_of", "destination", "filed", "wanted")

    def __init__(self, binding: BindingRecord, values: _Values) -> None:
        mode = binding.arguments.get(X_MATCH)
        with_x = mode in ("all-with-x", "any-with-x")
        self.any_of = mode in ("any", "any-with-x")
        self.destination = destination_of(binding)
        self.filed: tuple[Wanted, ...] = ()
        self.wanted: tuple[Wanted, ...] = tuple(
            (name, _PRESENT if value is None else values.keep(comparable(value)))
            for name, value in binding.arguments.items()
            if name != X_MATCH and (with_x or not name.startswith("x-"))
        )

    def is_met(self, compared: Compared) -> bool:
        return all(name in compared and (value is _PRESENT or compared[name] is value) for name, value in self.wanted)


class HeadersMatcher(Matcher):
    """Matches by headers and the bindings' `x-match`, through an index of wanted values."""

    reads = Reads.HEADERS

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._wants: dict[Key, _Want] = {}
        self._values = _Values()
        self._always: dict[Key, _Want] = {}
        self._index: dict[str, dict[Hashable, dict[Key, _Want]]] = {}

    def validate(self, binding: BindingRecord, queue: QueueRecord | None = None) -> None:
        if X_MATCH not in binding.arguments:
            return  # the specification leaves open whether it may be omitted; RabbitMQ takes it as `all`
        mode = binding.arguments[X_MATCH]
        if mode in _MODES:
            return
        try:
            type_name, text = erlang_term(mode)
        except NestedTooDeep:
            type_name, text = "table", "..."
        if type_name == "longstr":
            raise AMQPPreconditionFailed(
                f"Invalid x-match field value {text}; expected all, any, all-with-x, or any-with-x"
            )
        raise AMQPPreconditionFailed(f"Invalid x-match field type {type_name} (value {text}); expected longstr")

    def add(self, binding: BindingRecord) -> None:
        want = self._wants[binding.key] = _Want(binding, self._values)
        if want.wanted:
            want.filed = want.wanted if want.any_of else (self._rarest(want.wanted),)
        elif not want.any_of:
            self._always[binding.key] = want
        for name, value in want.filed:
            self._index.setdefault(name, {}).setdefault(value, {})[binding.key] = want

    def remove(self, binding: BindingRecord) -> None:
        key = binding.key
        want = self._wants.pop(key)
        self._always.pop(key, None)
        for _, value in want.wanted:
            if value is not _PRESENT:
                self._values.release(value)
        for name, value in want.filed:
            by_value = self._index[name]
            del by_value[value][key]
            if not by_value[value]:
                del by_value[value]
            if not by_value:
                del self._index[name]

    def match(self, routing_key: str, headers: Mapping[str, Any] | None = None) -> Collection[Destination]:
        return tuple(dict.fromkeys(one for some in self._match(headers or {}) for one in some))

    def match_in_steps(self, message: Message) -> Iterator[Collection[Destination]]:
        return self._match(message.headers or {})

    def _match(self, headers: Mapping[str, Any]) -> Iterator[list[Destination]]:
        """In parts, without doubles. Bindings may change between two of them."""
        found: dict[Destination, None] = {want.destination: None for want in self._always.values()}
        yield list(found)
        compared = Compared(headers, self._values)
        for name in headers:
            by_value = self._index.get(name)
            if by_value is None:
                continue
            for value in (_PRESENT, compared[name]):
                near = by_value.get(value)
                wants = () if near is None else tuple(near.values())
                for at in range(0, len(wants), STEP_WANTS):
                    part: list[Destination] = []
                    for want in wants[at : at + STEP_WANTS]:
                        if want.destination not in found and (want.any_of or want.is_met(compared)):
                            found[want.destination] = None
                            part.append(want.destination)
                    self.work += min(STEP_WANTS, len(wants) - at)
                    yield part
        self.work += len(headers) // 4

    def _rarest(self, wanted: tuple[Wanted, ...]) -> Wanted:
        """The pair under which fewest bindings are filed yet: most `all` bindings share some headers and
        differ in one."""
        return min(wanted, key=lambda pair: len(self._index.get(pair[0], {}).get(pair[1], ())))
