"""A long JSON object, read an item at a time: the same as in one go, and nothing long is parsed in one go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.definitions import pieces
from amqpd.definitions.document import BadDefinitions, read_definitions
from amqpd.definitions.pieces import NotJson, Pieces, TooLarge


def no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def read(text: bytes | str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, number, value in Pieces(text, no_number):
        if number is None:
            found[name] = value
        else:
            assert len(found.setdefault(name, [])) == number
            found[name].append(value)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of some characters."""
    monkeypatch.setattr(pieces, "ITEM_CHARACTERS_MAX", 60)
    monkeypatch.setattr(pieces, "_AT_ONCE", 17)


TEXTS = st.text(st.characters(codec=None), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXTS.map(lambda text: text[:4]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS.map(lambda text: text[:2]), inner, max_size=1),
    max_leaves=3,
)
OBJECTS = st.dictionaries(TEXTS.map(lambda text: text[:4]), TEXTS | VALUES | st.lists(VALUES, max_size=4), max_size=4)


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_it_reads_what_the_parser_reads(value: dict[str, Any], ascii_: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_AT_ONCE", 17)
        for each in (text, text.encode("utf-8", "surrogatepass"), text.encode("utf-16", "surrogatepass")):
            assert read(each) == json.loads(each)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cut", range(20))
def test_escapes_are_not_cut_in_two(cut: int) -> None:
    value = {"x": "a" * cut + "\\\U0001f600\ud83d\ud83dz\n\U0001f600" + "b" * 100}
    assert read(json.dumps(value)) == value


def test_it_knows_a_byte_order_mark() -> None:
    assert read(b"\xef\xbb\xbf{}") == {}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"',
        '{"a" 1}',
        '{"a": }',
        '{"a": 1',
        '{"a": 1,}',
        '{"a": [1,]}',
        '{"a": [1 2]}',
        '{"a": [1',
        '{"a": "x',
        '{"a": "\\x"}',
        '{"a": "\n"}',
        '{"a": [NaN]}',
        "{1: 2}",
        "{} {}",
        '{"a": [' + "1, " * 100 + "}]}",
        '{"a": [' + '"x", ' * 100 + "{,}]}",
        '{"a": [' + "[" * 50_000,
    ],
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises((NotJson, TooLarge)):
        read(text)
    with pytest.raises((ValueError, RecursionError)):
        json.loads(text, parse_constant=no_number)


def test_it_says_where() -> None:
    with pytest.raises(NotJson, match=r"at character 300012$"):
        read('{"queues": [' + "1," * 150_000 + "}")


def test_what_is_not_utf_8() -> None:
    with pytest.raises(NotJson, match="utf-8"):
        read(b'{"a": "\xff"}')


def test_an_item_and_their_number_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge, match=r"queues\[1\] is longer than 262144 characters"):
        read('{"queues": [1, "' + "x" * 300_000 + '"]}')
    with pytest.raises(TooLarge, match="a is longer"):
        read('{"a": {"b": [' + "1," * 150_000 + "1]}}")
    monkeypatch.setattr(pieces, "ITEMS_MAX", 3)
    with pytest.raises(BadDefinitions, match="the file is too large: it has more than 3 things: split it"):
        read_definitions('{"queues": [1, 2], "bindings": [3, 4]}')


def test_nothing_long_is_parsed_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser holds the interpreter for as long as it runs: a second for 17 MB, in whatever thread."""
    longest = 0
    raw_decode = json.JSONDecoder.raw_decode

    def watched(self: json.JSONDecoder, text: str, at: int = 0) -> tuple[Any, int]:
        nonlocal longest
        value, end = raw_decode(self, text, at)
        longest = max(longest, end - at)
        return value, end

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", watched)
    queues = [{"name": f"q{number}", "vhost": "/", "durable": True} for number in range(20_000)]
    text = json.dumps({"vhosts": [{"name": "/"}], "long": "x" * 1_000_000, "queues": queues}).encode()
    assert len(text) > 1_500_000
    assert len(read_definitions(text).records["queues"]) == 20_000
    assert 0 < longest < 100_000


@pytest.mark.parametrize(
    "order", [("users", "version", "queues", "vhosts"), ("version", "vhosts", "users", "queues")]
)
def test_what_comes_first_in_the_file_does_not_matter(order: tuple[str, ...]) -> None:
    sections: dict[str, Any] = {
        "version": ("rabbit_version", "3.5.7"),
        "users": ("users", [{"name": "u", "password_hash": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "tags": ""}]),
        "vhosts": ("vhosts", [{"name": "v", "default_queue_type": "quorum"}]),
        "queues": ("queues", [{"name": "q", "vhost": "v", "durable": True}, 5]),
    }
    text = json.dumps(dict(sections[name] for name in order))
    with pytest.raises(BadDefinitions) as refused:
        read_definitions(text)
    assert refused.value.problems == ["queues[1] is not an object"]
    whole = read_definitions(text.replace(", 5]", "]"))
    assert whole.records["queues"]["queue", "v", "q"].arguments == {"x-queue-type": "quorum"}  # type: ignore[union-attr]
    assert "MD5" in whole.warnings[0]
