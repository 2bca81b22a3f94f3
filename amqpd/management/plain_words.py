"""Refusals in RabbitMQ's words, said again for people.

What comes in: a sentence that tools compare, as RabbitMQ writes it. What goes out: the same in plain words; any other
sentence as it is.
Rules: 1. The sentence itself is never changed: HTTP's `reason` and AMQP's reply text keep it, and who shows it to
people asks here. 2. A sentence that is not known here, or only in part, is shown as it is: nothing is left out.
Not here: who refuses (`amqpd/declarations/`, `amqpd/queues/arguments.py`, `amqpd/topology/policy_keys.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from amqpd.topology.policy_keys import known_keys

_KIND = r"(?P<thing>queue|exchange) '(?P<name>.*)' in vhost '(?P<vhost>[^']*)'"
_TYPES: Mapping[str, str] = {
    "longstr": "a text",
    "shortstr": "a text",
    "binary": "a text",
    "bool": "true or false",
    "double": "a number with a fraction",
    "float": "a number with a fraction",
    "table": "an object",
    "array": "a list",
    "void": "nothing",
    "timestamp": "a time",
}
"""of fields, as AMQP's clients call them; all others are whole numbers"""
_FIELD = re.compile(r'"expected integer, got (?P<type>\w+)"')
_UNACCEPTABLE = re.compile(r"\{unacceptable_type,(?P<type>\w+)\}")
_NUMBER = re.compile(r"\{(?P<why>value_negative|value_too_large|value_zero|max_value_exceeded),(?P<value>-?\d+)\}")
_NUMBERS = {
    "value_negative": "may not be negative",
    "value_too_large": "is too large",
    "value_zero": "may not be 0",
    "max_value_exceeded": "is too large",
}
KEYS_DEPTH = 2
"""of an object's keys in Erlang's form of it, a list of pairs"""
_WORDS = {
    "invalid_overflow": "must be drop-head, reject-publish or reject-publish-dlx",
    "invalid_dlx_strategy": "must be at-most-once or at-least-once",
    "invalid_queue_locator_arg": "must be client-local or balanced",
    "routing_key_but_no_dlx_defined": "has no effect without x-dead-letter-exchange: give that, too",
}


def plain(sentence: str) -> str:
    """A refusal's sentence, in words for people."""
    for form, said in _FORMS:
        match = form.search(sentence)
        if match is not None:
            again = said(match)
            if again is not None:
                return sentence[: match.start()] + again + sentence[match.end() :]
    return sentence


def _argument(match: re.Match[str]) -> str | None:
    wrong = _wrong(match["reason"])
    return None if wrong is None else f"{_named(match)}: the argument {match['argument']} {wrong}"


def _wrong(reason: str) -> str | None:
    if (found := _FIELD.fullmatch(reason)) is not None:
        return f"must be a whole number, and is {_type(found['type'])}"
    if (found := _UNACCEPTABLE.fullmatch(reason)) is not None:
        return f"may not be {_type(found['type'])}"
    if (found := _NUMBER.fullmatch(reason)) is not None:
        return f"{_NUMBERS[found['why']]}: it is {found['value']}"
    if reason.startswith('"unsupported '):
        return f"is not known: {reason.strip(chr(34))}"
    return _WORDS.get(reason)


def _foreign(match: re.Match[str]) -> str:
    return f"{_named(match)}: a queue of its type has no argument {match['argument']}"


def _property(match: re.Match[str]) -> str:
    is_what = {"auto-delete": "deleted by itself", "exclusive-owner": "exclusive", "non-durable": "transient"}
    return f"{_named(match)}: a quorum queue cannot be {is_what.get(match['property'], match['property'])}"


def _different(match: re.Match[str]) -> str:
    wanted, there = (_value(match[each]) for each in ("received", "current"))
    return (
        f"{_named(match)} is there already and differs: its {match['argument']} is {there}, and {wanted} was asked "
        "for; delete it first, or ask for it as it is"
    )


def _value(said: str) -> str:
    found = re.fullmatch(r"the value '(?P<value>.*)' of type '\w+'", said, re.DOTALL)
    return said.strip("'") if found is None else found["value"]


def _unknown_keys(match: re.Match[str]) -> str:
    return "; ".join(map(_unknown_key, _keys_of(match["keys"]))) or match[0]


def _keys_of(term: str) -> list[str]:
    """Of the object itself, not of those in it."""
    depth, found, before = 0, [], ""
    for part in re.findall(r'<<".*?">>|[\[\]{}]', term, re.DOTALL):
        if part[0] == "<" and depth == KEYS_DEPTH and before == "{":
            found.append(part[3:-3])
        depth += part in "[{"
        depth -= part in "]}"
        before = part
    return found


def _unknown_key(name: str) -> str:
    if name in known_keys():
        return f"an operator policy cannot have the key '{name}', which only a policy has"
    near = get_close_matches(name, known_keys(), 1)
    return f"there is no policy key '{name}'" + (f" (did you mean '{near[0]}'?)" if near else "")


def _invalid_value(match: re.Match[str]) -> str:
    return f"{_without_erlang(match['value'])} is not a valid {match['what']}"


def _without_erlang(term: str) -> str:
    """As JSON has it."""
    text = re.sub(r'<<"(.*?)">>', r'"\1"', term)
    text = re.sub(r'\{("[^"]*"),', r"\1: ", text)
    return text.replace("}", "")


def _named(match: re.Match[str]) -> str:
    return f"{match['thing']} '{match['name']}' in virtual host '{match['vhost']}'"


def _type(name: str) -> str:
    return _TYPES.get(name, "a whole number")


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = tuple(
    (re.compile(form, re.DOTALL), said)
    for form, said in (
        (rf"invalid arg '(?P<argument>[^']*)' for {_KIND} of queue type rabbit_\w+", _foreign),
        (rf"invalid arg '(?P<argument>[^']*)' for {_KIND}: (?P<reason>.*)", _argument),
        (rf"invalid property '(?P<property>[^']*)' for {_KIND}", _property),
        (
            rf"inequivalent arg '(?P<argument>[^']*)' for {_KIND}: "
            r"received (?P<received>.*) but current is (?P<current>.*)",
            _different,
        ),
        (r"(?P<keys>\[\{<<.*\]) are not recognised policy settings", _unknown_keys),
        (r'(?P<value><<".*">>|[\[{].*[\]}]) is not a valid (?P<what>[^<\[]*)', _invalid_value),
    )
)
