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
# Also as parts of names, in any case: `home_of`, `HomeQueue`, `AT_HOME`.
INSTEAD_IN_NAMES = {
    r"home(?:s|d|less)?": "leader, led",
    r"reign(?:s|ed)?": "leader lease",
    r"seal(?:s|ed|ing)?": "vote",
    r"(?<!dead[-_ ])(?<!dead)letters?": "dead letter",
    r"wish(?:es|ed|ing)?": "desired set, request",
    r"life(?!_ms|_sign|time)": "incarnation, lifetime",
    r"elsewhere(?:queue|_queue)": "remote queue",
}
# What is called so elsewhere: by RabbitMQ and other programs, in data directories.
OTHERS = re.compile(
    r"(?:XDG_\w+|SPARK|JAVA)_HOME|\bPath\.home\b|/home/|[\"']HOME\b|[\"'](?:seal|life|letters)[\"']|[\"'`]seal[.`]"
    r"|\.c\.life\b|\bUPDATE seal SET .*|\bcolumn\s(?:# )?`life`|\bSEALED_FORMATS\b|\b[Hh]ome node\b"
    r"|\b[Ss]igns? of life\b|\bletter-spacing\b|\b[Dd]ead\s+(?:# )?letters?\b"
)
# Files that have another thing of that name: directories of users, segments and formats that are sealed, letters.
OF_OTHER_THINGS = re.compile(
    r"amqpd/(?:backup/|checking/(?:metadata|salvage)|config\.py|journal/(?:buffer|pending_row)\.py|journal/sqlite/migrations/"
    r"|flow/alarms|kernel/|queues/(?:paging|segment|store)\.py|security/rabbitmq_hashes|setting_types"
    r"|topology/metadata/|tracing/context|vocabulary/escapes|wire/)|bench/(?:applications|brokers/)|conformance/broker"
    r"|spark/amqpd_spark/(?:files|java)\.py|tests/(?:clients/rabbitmq_process|cost/instructions|events/test_messages"
    r"|faults/(?:every_method|rabbitmq_cluster|test_damage_judge)|harness/namespaces|management/figures/test_recent|flow/test_alarm_board"
    r"|spark/test_(?:class_archive|files)|test_config|wire/)"
)


def names_in(text: str) -> list[str]:
    """As `words_in`, of `INSTEAD_IN_NAMES`."""
    text = OTHERS.sub(lambda found: re.sub(r"\S", " ", found[0]), text)
    plain = list(INSTEAD_IN_NAMES.values())
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]} -> {plain[(match.lastindex or 1) - 1]}"
        for match in in_names().finditer(text)
    ]


@functools.cache
def in_names() -> re.Pattern[str]:
    """A word that is a part of a name begins behind what is no letter, or with a capital behind a small one."""
    words = "|".join(f"({word})" for word in INSTEAD_IN_NAMES)
    return re.compile(rf"(?:(?<![a-zA-Z])|(?<=[a-z])(?=[A-Z]))(?i:{words})(?![a-z])")


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
        # `pip install ./spark` leaves a copy in spark/build.
        yield from (path for path in sorted((ROOT / part).rglob("*")) if "build" not in path.relative_to(ROOT).parts)
    yield from (path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md")


def by_part() -> dict[str, list[str]]:
    """What each package of amqpd, other folder, or file at the top still has."""
    found: dict[str, list[str]] = {}
    for path in sources():
        parts = path.relative_to(ROOT).parts
        if path.suffix in SUFFIXES and "_compiled" not in parts and path != Path(__file__):
            words = words_in(path.read_text(), INSTEAD if parts[0] != "amqpd" else IN_AMQPD)
            if not OF_OTHER_THINGS.match("/".join(parts)):
                words += names_in(path.read_text())
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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("home_of, HomeQueue, AT_HOME, led by another, a home", 4),
        ("NOT_FOUND - home node 'a' of durable queue, $XDG_STATE_HOME, homely", 0),
        ("reign, foreign, sovereign, reigns_lost", 2),
        ("RequestSeal, sealed, sealant", 2),
        ("a letter, a dead letter, dead_letters, DeadLetter, dead-lettered, LETTERS_MAX", 2),
        ("wish_key, WishRecord, unwished", 2),
        ("life, LIFE_SHIFT, lifetime, a sign of life, lives, life_ms, next_life", 3),
        ("ElsewhereQueue goes elsewhere", 1),
    ],
)
def test_the_check_finds_what_it_should_in_names(text: str, count: int) -> None:
    assert len(names_in(text)) == count
