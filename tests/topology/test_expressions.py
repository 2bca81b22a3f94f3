"""Regular expressions of permissions and policies: which are read, by which engine, and for how long at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.topology import expressions
from amqpd.topology.expressions import PatternError, compile_expression, given_up
from amqpd.vocabulary.records import PolicyRecord
from tests.topology.samples import effective_policy

LONG = "a" * 255
# What each engine needs time for that grows with the power of the name's length, or without end.
HOSTILE = ("(a+)+$|x", "(a|a)*b", "(.*)*c", "(a?){100}a{100}", ".*.*.*.*.*=.*")


@pytest.fixture(autouse=True)
def nothing_given_up() -> Iterator[None]:
    compile_expression.cache_clear()
    expressions._given_up.clear()
    yield
    compile_expression.cache_clear()
    expressions._given_up.clear()


@pytest.mark.parametrize("pattern", HOSTILE)
def test_what_ends_no_python_search_is_linear(pattern: str) -> None:
    expression = compile_expression(pattern)
    for _ in range(100):
        expression.is_in(LONG + "!")
    assert isinstance(expression, expressions._Linear)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (r"^(?!amq\.)", "amq.x", False),
        (r"^(?!amq\.)", "x", True),
        (r"^(?=.*a)(?=.*b)", "xbxa", True),
        (r"(?<!\.dlq)$", "orders.dlq", False),
        (r"^(\w+)\.\1$", "a.a", True),
        (r"^(\w+)\.\1$", "a.b", False),
        (r"^a++b", "aab", True),
        (r"^(?>a+)b", "aab", True),
        (r"[[:digit:]]", "x1", True),
        (r"\Qa.b\E", "axb", False),
        (r"(?i)ORDERS", "orders", True),
        (r"x(?i)ORDERS", "xorders", True),
        (r"\d", "٣", False),
        (r"^..$", "é", True),
        ("\udcfe", "\udcfe", True),
        ("{username}", "{username}", True),
    ],
)
def test_patterns_mean_what_they_mean_to_rabbitmq(pattern: str, name: str, found: bool) -> None:
    assert compile_expression(pattern).is_in(name) is found


def test_what_takes_long_is_given_up_and_matches_nothing() -> None:
    pattern = "(?!x)(a|aa)+$"
    assert compile_expression(pattern).is_in("aaa")
    assert not compile_expression(pattern).is_in(LONG + "!")
    assert given_up() == [pattern]
    assert not compile_expression(pattern).is_in("aaa"), "it is tried no more, also when it is set again"


class Slow:
    """An engine whose searches always need more than the usual time, and never more than the patient one."""

    def __init__(self) -> None:
        self.searches = 0

    def search(self, name: bytes, timeout: float) -> bool | None:
        self.searches += 1
        if timeout == expressions.USUAL_S:
            raise TimeoutError
        return True


def test_what_is_always_slow_is_given_up_before_it_has_cost_much() -> None:
    engine = Slow()
    expression = expressions._Bounded("p", engine)
    assert expression.is_in("a")
    for _ in range(10_000):
        expression.is_in("a")
    assert engine.searches < 3 * expressions.SLOW_SEARCHES_MAX
    assert given_up() == ["p"]


def test_a_busy_machine_now_and_then_gives_nothing_up() -> None:
    turns = 0

    class Busy:
        def search(self, name: bytes, timeout: float) -> bool | None:
            nonlocal turns
            turns += timeout == expressions.USUAL_S
            if timeout == expressions.USUAL_S and turns % 500 == 0:
                raise TimeoutError
            return True

    expression = expressions._Bounded("p", Busy())
    assert all(expression.is_in("a") for _ in range(50_000))
    assert given_up() == []


def test_what_is_given_up_is_listed_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "GIVEN_UP_MAX", 3)

    class Endless:
        def search(self, name: bytes, timeout: float) -> None:
            raise TimeoutError

    for n in range(9):
        assert not expressions._Bounded(str(n), Endless()).is_in("a")
    assert given_up() == ["0", "1", "2"]


@pytest.mark.parametrize(
    "pattern", ["a" * 2_001, "(", "a{2}{3}", r"\1", "\ud800", "(?!x)a{e<=3}", "(?!x)" + "(" * 900 + ")" * 900]
)
def test_what_is_no_expression_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_expression(pattern)
    assert str(refused.value)


def test_a_policy_whose_pattern_takes_long_applies_to_nothing() -> None:
    records = [
        PolicyRecord("/", "hostile", "(?!x)(a|aa)+$", "all", {"max-length": 1}, 1),
        PolicyRecord("/", "calm", "^a", "all", {"max-length": 2}, 0),
    ]
    assert effective_policy(records, [], "queue", LONG + "!").name == "calm"


def test_what_would_take_long_to_compile_is_refused() -> None:
    """`regex` needs twice the time and memory for each level: 24 of them, 70 characters, would take the machine's."""
    for opening, closing in (("(", ")+"), ("(?:", ")++"), ("(?>", ")+"), ("(", "){1,9}")):
        with pytest.raises(PatternError, match="nested more than 6 deep"):
            compile_expression("(?!x)" + opening * 30 + "a" + closing * 30)
    assert compile_expression(r"(?!x)\(\(\(\(\(\(\(\([((((((((]").is_in("(" * 9)


def test_nearly_is_not_meant() -> None:
    for pattern in ("(?!x)a{e}", "^(?!amq)(?:foo){1<=e<=3}$"):
        with pytest.raises(PatternError):
            compile_expression(pattern)


@given(st.text(max_size=30), st.text(max_size=60))
def test_any_text_is_an_expression_or_is_refused(pattern: str, name: str) -> None:
    try:
        expression = compile_expression(pattern)
    except PatternError:
        return
    assert expression.is_in(name.encode("utf-8", "replace").decode()) in (True, False)


@given(pattern=st.text("abc.*+?|()[]^$", max_size=12), name=st.text("abc", max_size=12))
def test_both_engines_agree_on_what_both_read(pattern: str, name: str) -> None:
    """Simple patterns: so a broker that has one of them only by a lookahead beside it finds the same names."""
    try:
        linear, bounded = compile_expression(pattern), compile_expression(f"(?!\x00)(?:{pattern})")
    except PatternError:
        return
    if isinstance(linear, expressions._Linear):
        assert linear.is_in(name) == bounded.is_in(name)


def test_names_are_octets() -> None:
    found: Any = compile_expression("^\u00e9\udcff$").is_in("\u00e9\udcff")
    assert found is True
