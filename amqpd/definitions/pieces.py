"""A JSON object of long lists, read an item at a time.

What comes in: the text of a definition file. What goes out: the items of its lists, in the file's order, and its
other members whole.
Rules: 1. Nothing is parsed in one go that is longer than `ITEM_CHARACTERS_MAX`: Python's parser holds the interpreter
from its first character to its last, in whatever thread it runs, and 17 MB took more than a second. A member that is
a text may be longer, and is read in parts. 2. What was read is not kept: of a file of a million queues one is in
memory. 3. More than `ITEMS_MAX` items are refused.
Not here: what an item means (`document.py`), how long a text may be (its callers).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

# As the body of any other request (`admin/amqpd_admin/bodies.py`): some milliseconds.
ITEM_CHARACTERS_MAX = 1 << 18
# A million queues with some bindings each would be more than a broker can keep.
ITEMS_MAX = 2_000_000

# "-Infinity", an escape of a surrogate pair; what begins further before the end of what is seen is not cut off.
TOKEN_CHARACTERS = 16

# Characters and whole escapes of a string. A pair of surrogates is one, and the first of them is not taken where the
# other one may only be cut off. Possessive, so that nothing is remembered for each of them.
_HEX = "[0-9a-fA-F]"
_LOW_IS_CUT = rf"(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}{{0,2}})?)?)?)?\Z"
_HIGH = rf"u[dD][89abAB]{_HEX}{{2}}(?:\\u[dD][c-fC-F]{_HEX}{{2}}|(?!{_LOW_IS_CUT}))"
_IN_STRING = re.compile(rf'(?:[^"\\]|\\(?:{_HIGH}|u(?![dD][89abAB]){_HEX}{{4}}|["\\/bfnrt]))*+')
_SPACE = re.compile(r"[ \t\n\r]*")
_AT_ONCE = 1 << 16

Piece = tuple[str, int | None, Any]
"""the member's name; the item's number in its list, or None for what is no list (or an empty one); its value"""


class NotJson(ValueError):
    """The text of a definition file is no JSON; the message says why, and where."""


class TooLarge(ValueError):
    """A definition file exceeds a bound of this module."""


class Pieces:
    """An iterator over the items of a definition file's lists and over its other members, for one pass."""

    def __init__(self, text: bytes | str, parse_constant: Callable[[str], Any]) -> None:
        """`parse_constant` is called with what is a number to Python and not to JSON."""
        self._characters = _decoded(text)
        self._scan = json.JSONDecoder(parse_constant=parse_constant).raw_decode
        self._window = ""
        self._at = 0
        """in the window"""
        self._before = 0
        """characters that have left the window"""
        self._ended = False
        self._items = 0

    def __iter__(self) -> Iterator[Piece]:
        """Raises NotJson, TooLarge; with a `Piece` of an empty name, a text that is JSON and no object."""
        if self._next() != "{":
            yield "", None, self._value("the file")
            self._end()
            return
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return self._end()
        while True:
            name = self._value("the name of a member")
            if not isinstance(name, str):
                raise self._wrong("the name of a member is expected")
            self._expect(":")
            yield from self._member(name)
            if self._next() != ",":
                break
            self._at += 1
        self._expect("}")
        return self._end()

    def _member(self, name: str) -> Iterator[Piece]:
        first = self._next()
        if first != "[":
            yield name, None, self._text() if first == '"' else self._value(name)
            return
        self._at += 1
        if self._next() == "]":
            self._at += 1
            yield name, None, []
            return
        number = 0
        while True:
            self._items += 1
            if self._items > ITEMS_MAX:
                raise TooLarge(f"it has more than {ITEMS_MAX} things: split it")
            yield name, number, self._value(f"{name}[{number}]")
            number += 1
            if self._next() != ",":
                break
            self._at += 1
        self._expect("]")

    def _text(self) -> str:
        """The next value, which is a string."""
        self._at += 1
        parts: list[str] = []
        while True:
            if len(self._window) - self._at < _AT_ONCE and not self._ended:
                self._fill()
            match = _IN_STRING.match(self._window, self._at, self._at + _AT_ONCE)
            assert match is not None
            try:
                parts.append(self._scan(f'"{match[0]}"')[0])
            except json.JSONDecodeError as error:
                raise self._wrong(_said(error), self._at + error.pos - 1) from None
            self._at = match.end()
            if self._window[self._at : self._at + 1] == '"':
                self._at += 1
                return "".join(parts)
            if not match[0]:
                raise self._wrong("a string does not end, or has an escape that JSON does not have")

    def _value(self, what: str) -> Any:
        """The next value, whole."""
        self._next()
        for refilled in (False, True):
            try:
                value, end = self._scan(self._window, self._at)
            except (ValueError, RecursionError) as error:
                if self._ended or not self._may_be_cut(error):
                    raise self._wrong(_said(error), getattr(error, "pos", self._at)) from None
            else:
                if end - self._at > ITEM_CHARACTERS_MAX:
                    break
                # A number may go on behind the window.
                if end < len(self._window) or self._ended:
                    self._at = end
                    return value
            if not refilled:
                self._fill()
        raise TooLarge(f"{what} is longer than {ITEM_CHARACTERS_MAX} characters, or no JSON")

    def _may_be_cut(self, error: Exception) -> bool:
        """It may only say that the window ends too early."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.msg.startswith("Unterminated") or error.pos > len(self._window) - TOKEN_CHARACTERS

    def _next(self) -> str:
        """The next character that means something; empty at the end."""
        while True:
            match = _SPACE.match(self._window, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._window) or self._ended:
                return self._window[self._at : self._at + 1]
            self._fill()

    def _fill(self) -> None:
        """What is read leaves the window, and as much as one item may have is in it."""
        kept = self._window[self._at :]
        self._before += self._at
        self._at = 0
        parts, length = [kept], len(kept)
        while length <= ITEM_CHARACTERS_MAX:
            more = next(self._characters, None)
            if more is None:
                self._ended = True
                break
            parts.append(more)
            length += len(more)
        self._window = "".join(parts)

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._wrong(f"'{character}' is expected")
        self._at += 1

    def _end(self) -> None:
        if self._next():
            raise self._wrong("something follows the end")

    def _wrong(self, reason: str, at: int | None = None) -> NotJson:
        return NotJson(f"{reason}, at character {self._before + (self._at if at is None else at)}")


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _decoded(text: bytes | str) -> Iterator[str]:
    """In parts. Raises NotJson."""
    if isinstance(text, str):
        yield from (text[at : at + _AT_ONCE] for at in range(0, len(text), _AT_ONCE))
        return
    decoder = codecs.getincrementaldecoder(json.detect_encoding(text[:8]))("surrogatepass")
    try:
        for at in range(0, len(text), _AT_ONCE):
            yield decoder.decode(text[at : at + _AT_ONCE])
        yield decoder.decode(b"", True)
    except UnicodeDecodeError as error:
        raise NotJson(f"it is not {error.encoding}: {error.reason}") from None
