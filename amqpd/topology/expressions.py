"""Regular expressions that people write: in permissions and in policies.

What comes in: the text; names. What goes out: the compiled expression, or the reason why it is none; whether it is
found in a name.
Rules: 1. Bounded in length. 2. RE2 reads it: its time is linear in the length of the name. 3. What RE2 does not know,
such as `^(?!amq\\.)`, is read by `regex`, with a bound in time: a search that needs longer finds nothing, and an
expression that needs long again and again is given up, and never found again. To compile it has a bound, too: in how
deep groups are nested, with each of which `regex` may need twice the time and memory. 4. Texts are octets, as they
are to RabbitMQ: `.` is one octet of UTF-8.
Not here: what the empty text means (nothing in permissions, everything in policies): see there; who is told that an
expression was given up (`management/metadata/slow_expressions.py`).

Source: rabbit_re.erl, whose bound is a number of steps (`match_limit`); https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import re2
import regex

# Longer than any list of names that a person keeps up, and still compiled within milliseconds by RE2.
PATTERN_LENGTH_MAX = 2_000
# Of what RE2 does not read: compiled within 50 ms and 25 MB, whatever it is made of.
DEPTH_MAX = 6
# As many as the permissions and policies of a large broker, and what each may take beside its program.
COMPILED_MAX = 1_000
MEMORY_BYTES_MAX = 1 << 20
# A usual search takes some microseconds. More is looked at again, with patience: the machine may have been busy.
USUAL_S = 0.000_2
PATIENT_S = 0.02
# Of this many searches one may need patience, and a few more at first: all names together then take little time.
SLOW_SEARCHES_MAX = 20
SEARCHES_PER_SLOW = 200
GIVEN_UP_MAX = 100

_OPTIONS = re2.Options()
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False
_OPTIONS.max_mem = MEMORY_BYTES_MAX
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
# What may stand where a group or a count would begin, and is none; then these. `regex` reads `a{e<=2}` as "nearly a".
_PARTS = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|[()]|\{(?!\d*(?:,\d*)?\})", re.DOTALL
)

_given_up: dict[str, None] = {}


class PatternError(ValueError):
    """A text is no regular expression that the broker takes; the message says why."""


class Expression(Protocol):
    """A compiled regular expression of a permission or a policy."""

    def is_in(self, name: str) -> bool:
        """Whether it is found anywhere in it."""


@lru_cache(COMPILED_MAX)
def compile_expression(pattern: str) -> Expression:
    """Raises PatternError with the reason."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError(f"it is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        octets = _octets(pattern)
    except UnicodeEncodeError as error:
        raise PatternError("it is not UTF-8") from error
    try:
        return _Linear(re2.compile(octets, options=_OPTIONS))
    except re2.error as error:
        reason = _text(error.args[0])
    _check_parts(pattern, reason)
    try:
        return _Bounded(pattern, regex.compile(octets))
    except (regex.error, OverflowError, RecursionError, ValueError) as error:
        raise PatternError(str(error)) from error


def _check_parts(pattern: str, reason: str) -> None:
    """Of one that RE2 does not read, for the reason. Raises PatternError."""
    depth = 0
    for part in _PARTS.findall(pattern):
        if part == "{":
            raise PatternError(reason)
        depth += (part == "(") - (part == ")")
        if depth > DEPTH_MAX:
            raise PatternError(f"{reason}; and groups are nested more than {DEPTH_MAX} deep")


def given_up() -> list[str]:
    """The expressions that took too long and are not found any more since then, the latest last; a bounded number."""
    return list(_given_up)


class _Linear:
    def __init__(self, compiled: Any) -> None:
        self._search: Callable[[bytes], object] = compiled.search

    def is_in(self, name: str) -> bool:
        return self._search(_octets(name)) is not None


class _Bounded:
    def __init__(self, pattern: str, compiled: Any) -> None:
        self._pattern = pattern
        self._search: Callable[..., object] = compiled.search
        self._searches = 0
        self._slow = 0
        self._given_up = False

    def is_in(self, name: str) -> bool:
        if self._given_up:
            return False
        self._searches += 1
        octets = _octets(name)
        try:
            return self._search(octets, timeout=USUAL_S) is not None
        except TimeoutError:
            self._slow += 1
        except MemoryError:
            return self._give_up()
        if self._slow > SLOW_SEARCHES_MAX + self._searches // SEARCHES_PER_SLOW:
            return self._give_up()
        try:
            return self._search(octets, timeout=PATIENT_S) is not None
        except (TimeoutError, MemoryError):
            return self._give_up()

    def _give_up(self) -> bool:
        self._given_up = True
        if len(_given_up) < GIVEN_UP_MAX:
            _given_up[self._pattern] = None
        return False


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(reason: object) -> str:
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
