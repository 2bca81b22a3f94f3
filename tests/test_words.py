"""Plain technical English: words that a reader outside the project would have to decode are not in the code.

What is verified: none of them in the sources of `amqpd/`, in names, comments, docstrings and texts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "amqpd"
INSTEAD = {
    r"anew": "again",
    r"but for": "except, without",
    r"so many": "at most this number, `count` of them",
    r"(?:is|are|was|were) over(?=[.:;,)])": "has ended, has passed, has expired",
    r"(?<![.\w])rooms?(?![(\w])": "module, component; capacity, space",
    r"houses?": "project",
    r"bur(?:y|ies|ied|ying)": "dead-letter",
    r"moulds?": "template",
    r"doomed": "pending",
    r"whoever": "the client, the process, the caller that",
}
BANNED = re.compile(rf"\b(?:{'|'.join(f'({word})' for word in INSTEAD)})\b", re.IGNORECASE)


def words_in(text: str) -> list[str]:
    """`line: word -> what to say`."""
    plain = list(INSTEAD.values())
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]} -> {plain[(match.lastindex or 1) - 1]}"
        for match in BANNED.finditer(text)
    ]


def by_part() -> dict[str, list[str]]:
    """What each package, or module at the top, still has."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py*")):
        parts = path.relative_to(PACKAGE).parts
        if path.suffix in (".py", ".pyx", ".pxi", ".pyi") and parts[0] != "_compiled":
            words = words_in(path.read_text())
            if words:
                found.setdefault(parts[0], []).extend(f"{'/'.join(parts)}:{word}" for word in words)
    return found


def test_the_words_are_those_of_the_field() -> None:
    assert by_part() == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("read anew", 1),
        ("def _bury_dying(self)", 0),
        ("buried messages", 1),
        ("the house's rooms", 2),
        ("queue.room(run)", 0),
        ("no room", 1),
        ("when that is over.", 1),
        ("what is over its limit", 0),
        ("bedrooms and warehouses", 0),
        ("Whoever asks, at most so many", 2),
    ],
)
def test_the_check_finds_what_it_should(text: str, count: int) -> None:
    assert len(words_in(text)) == count
