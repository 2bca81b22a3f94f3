"""Plain technical English: words that a reader outside the project would have to decode are not in the code.

What is verified: none of them in sources and documents, in names, comments, docstrings and texts. Not verified: the
changelog, which tells what was called otherwise before; what RabbitMQ says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("amqpd", "bench", "conformance", "docs", "examples", "scripts", "spark", "tests")
SUFFIXES = (".md", ".py", ".pyx", ".pxi", ".pyi", ".sh", ".toml")
INSTEAD = {
    r"anew": "again",
    r"but for": "except, without",
    r"so many(?! \w+ that\b)": "at most this number, `count` of them",
    r"(?<![.\w])rooms?(?![(\w])": "module, component; capacity, space",
    r"houses?": "project",
    r"bur(?:y|ies|ied|ying)": "dead-letter",
    r"moulds?": "template",
    r"doomed": "pending",
}
# In the sources of amqpd these are of software, or of what has another word; elsewhere also of people, and of tests.
INSTEAD_IN_AMQPD = {
    r"(?:is|are|was|were) over(?=[.:;,)])": "has ended, has passed, has expired",
    r"whoever": "the client, the process, the caller that",
}
IN_AMQPD = {**INSTEAD, **INSTEAD_IN_AMQPD}


def words_in(text: str, instead: Mapping[str, str] = IN_AMQPD) -> list[str]:
    """`line: word -> what to say`."""
    banned, plain = pattern(tuple(instead)), list(instead.values())
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]} -> {plain[(match.lastindex or 1) - 1]}"
        for match in banned.finditer(text)
    ]


@functools.cache
def pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(f'({word})' for word in words)})\b", re.IGNORECASE)


def sources() -> Iterator[Path]:
    for part in PARTS:
        yield from sorted((ROOT / part).rglob("*"))
    yield from (path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md")


def by_part() -> dict[str, list[str]]:
    """What each package of amqpd, other folder, or file at the top still has."""
    found: dict[str, list[str]] = {}
    for path in sources():
        parts = path.relative_to(ROOT).parts
        if path.suffix in SUFFIXES and "_compiled" not in parts and path != Path(__file__):
            words = words_in(path.read_text(), INSTEAD if parts[0] != "amqpd" else IN_AMQPD)
            if words:
                found.setdefault("/".join(parts[:2]), []).extend(f"{'/'.join(parts)}:{word}" for word in words)
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
