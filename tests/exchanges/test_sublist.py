"""The Sublist: patterns of words against routing keys, its cache, and the bound on its work."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqpd.exchanges import sublist as sublist_module
from amqpd.exchanges.patterns import normal_form
from amqpd.exchanges.sublist import CACHE_ENTRIES_MAX, Sublist


def naive_match(pattern: list[str], key: list[str]) -> bool:
    """The definition, by recursion over both."""
    if not pattern:
        return not key
    head, rest = pattern[0], pattern[1:]
    if head == "#":
        return naive_match(rest, key) or (bool(key) and naive_match(pattern, key[1:]))
    return bool(key) and head in ("*", key[0]) and naive_match(rest, key[1:])


def naive(pattern: str, key: str) -> bool:
    return naive_match(pattern.split(".") if pattern else [], key.split(".") if key else [])


def of(*patterns: str) -> Sublist[str]:
    sublist: Sublist[str] = Sublist()
    for pattern in patterns:
        sublist.insert(pattern, pattern)
    return sublist


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("", [""], ["a", ".", "a.b"]),
        ("a", ["a"], ["", "b", "a.a", "A"]),
        ("a.b", ["a.b"], ["a", "b", "a.b.c", "a..b"]),
        ("*", ["a", "ab"], ["", "a.b", "."]),
        ("*.*", ["a.b", ".", "a.", ".b"], ["a", "", "a.b.c"]),
        ("#", ["", "a", "a.b.c", ".", "a..b"], []),
        ("#.#", ["", "a", "a.b"], []),
        ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b", "b.a", "ab"]),
        ("#.a", ["a", "b.a", "a.a", ".a"], ["", "b", "a.b"]),
        ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
        ("#.*", ["a", "a.b", "."], [""]),
        ("*.#", ["a", "a.b", "."], [""]),
        ("#.*.#.*", ["a.b", "a.b.c"], ["", "a"]),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.b", "a.b.b"], ["a", "b", "a.b.x"]),
        ("#.a.#", ["a", "x.a", "a.x", "x.a.y"], ["", "x", "x.y"]),
        ("#.a.#.b.#", ["a.b", "x.a.y.b.z", "a.b.b"], ["b.a", "a", ""]),
        ("a..b", ["a..b"], ["a.b", "a.x.b"]),
        ("a*", ["a*"], ["ab", "a"]),
        ("#a.b", ["#a.b"], ["a.b", "x.b"]),
    ],
)
def test_one_pattern(pattern: str, matching: list[str], other: list[str]) -> None:
    sublist = of(pattern)
    for key in matching:
        assert sublist.match(key) == (pattern,), key
        assert naive(pattern, key), key
    for key in other:
        assert sublist.match(key) == (), key
        assert not naive(pattern, key), key


def test_wildcards_in_a_routing_key_are_plain_words() -> None:
    sublist = of("a.b", "a.*", "#.b", "*")
    assert set(sublist.match("a.#")) == {"a.*"}
    assert set(sublist.match("*.b")) == {"#.b"}
    assert set(sublist.match("#")) == {"*"}


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [
        ("", []),
        ("a.b", ["a", "b"]),
        ("#.#", ["#"]),
        ("#.*", ["*", "#"]),
        ("#.*.#.*.a.#.#", ["*", "*", "#", "a", "#"]),
        ("a.#.*.b", ["a", "*", "#", "b"]),
    ],
)
def test_normal_form(pattern: str, normal: list[str]) -> None:
    assert normal_form(pattern) == normal


def test_a_value_under_many_matching_patterns_comes_once() -> None:
    sublist: Sublist[str] = Sublist()
    for pattern in ("#", "a.b", "a.*", "*.b", "a.#", "#.b", "#.#", "*.#"):
        sublist.insert(pattern, "q")
    assert sublist.match("a.b") == ("q",)


def test_a_value_stays_until_every_insert_of_it_is_removed() -> None:
    sublist: Sublist[str] = Sublist()
    sublist.insert("a.#", "q")
    sublist.insert("a.#.#", "q")  # another binding of the same meaning
    sublist.remove("a.#", "q")
    assert sublist.match("a.x") == ("q",)
    sublist.remove("a.#.#", "q")
    assert sublist.match("a.x") == ()
    assert sublist.trie.nodes == 0


@pytest.mark.parametrize("pattern", ["a.b", "a.*", "#", "a.#.b"])
def test_removing_what_is_not_there_is_an_error_and_changes_nothing(pattern: str) -> None:
    sublist = of("a.b", "a.*", "#", "a.#.b", "a.#.b.c")
    before = sublist.trie.nodes
    with pytest.raises(KeyError):
        sublist.remove(pattern, "another value")
    with pytest.raises(KeyError):
        sublist.remove("a.b.c.d", "a.b")
    with pytest.raises(KeyError):
        sublist.remove("a.#.b.*", "a.b")
    with pytest.raises(KeyError):
        sublist.remove("a.#.*", "a.#.b")
    assert sublist.trie.nodes == before
    assert set(sublist.match("a.b")) == {"a.b", "a.*", "#", "a.#.b"}


def test_branches_without_values_are_pruned() -> None:
    sublist = of("a.*.c.#", "a.*", "#.x.y")
    assert sublist.trie.nodes == 4 + 3
    sublist.remove("a.*.c.#", "a.*.c.#")
    assert sublist.trie.nodes == 2 + 3
    sublist.remove("#.x.y", "#.x.y")
    sublist.remove("a.*", "a.*")
    assert sublist.trie.nodes == 0


words = st.sampled_from(["a", "b", "c", ""])
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), max_size=6).map(".".join)
keys = st.lists(words, max_size=7).map(".".join)


@given(st.lists(patterns, max_size=12), st.lists(keys, min_size=1, max_size=6))
def test_matches_as_the_definition_says(inserted: list[str], asked: list[str]) -> None:
    sublist: Sublist[int] = Sublist()
    for value, pattern in enumerate(inserted):
        sublist.insert(pattern, value)
    for key in asked:
        expected = {value for value, pattern in enumerate(inserted) if naive(pattern, key)}
        found = sublist.match(key)
        assert set(found) == expected
        assert len(found) == len(expected)


@given(patterns, keys)
def test_the_normal_form_means_the_same(pattern: str, key: str) -> None:
    key_words = key.split(".") if key else []
    assert naive_match(normal_form(pattern), key_words) == naive(pattern, key)


class InsertAndRemove(RuleBasedStateMachine):
    """A Sublist beside a bag of (pattern, value) pairs. Few words and values, so that pairs meet again, and a
    cache as small as drawn, so that it is swept and passed by."""

    @initialize(cache=st.sampled_from([0, 1, 4, 1024]), judged=st.sampled_from([3, 2048]))
    def start(self, cache: int, judged: int) -> None:
        self.sublist: Sublist[int] = Sublist(cache_entries_max=cache)
        self.bag: Counter[tuple[str, int]] = Counter()
        sublist_module.JUDGED_MISSES = judged
        sublist_module.BYPASSED_MATCHES = 5

    def teardown(self) -> None:
        sublist_module.JUDGED_MISSES = 2048
        sublist_module.BYPASSED_MATCHES = 65_536

    @rule(pattern=patterns, value=st.integers(0, 3))
    def insert(self, pattern: str, value: int) -> None:
        self.sublist.insert(pattern, value)
        self.bag[pattern, value] += 1

    @precondition(lambda self: self.bag)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(sorted(self.bag)))
        self.sublist.remove(*pair)
        self.bag[pair] -= 1
        if not self.bag[pair]:
            del self.bag[pair]

    @rule(asked=st.lists(keys, max_size=8))
    def match(self, asked: list[str]) -> None:
        for key in asked:
            found = self.sublist.match(key)
            assert len(found) == len(set(found))
            assert set(found) == {value for pattern, value in self.bag if naive(pattern, key)}

    @invariant()
    def nothing_is_left_of_nothing(self) -> None:
        if hasattr(self, "sublist") and not self.bag:
            assert self.sublist.trie.nodes == 0


InsertAndRemove.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestInsertAndRemove = InsertAndRemove.TestCase


# -- the bound on the work


@pytest.mark.parametrize("hashes", [1, 2, 4, 8, 16])
def test_many_hashes_visit_at_most_words_times_nodes(hashes: int) -> None:
    """Backtracking would try about C(200 + k, k) ways: for k = 4, seventy million."""
    pattern = "#." + ".#.".join(["a"] * (hashes - 1) + ["b"])
    sublist = Sublist[str](cache_entries_max=0)
    sublist.insert(pattern, "q")
    key = ".".join(["a"] * 200)
    assert sublist.match(key) == ()
    assert sublist.trie.visits <= 200 * (sublist.trie.nodes + 1)
    assert sublist.match(key + ".b") == ("q",)


def test_many_patterns_of_many_hashes_visit_at_most_words_times_nodes() -> None:
    sublist = Sublist[str](cache_entries_max=0)
    for tail in itertools.product("ab", repeat=5):
        sublist.insert("#." + ".#.".join(tail), "".join(tail))
    key = ".".join("ab" * 100)
    assert len(sublist.match(key)) == 16, "those that end in b"
    assert sublist.trie.visits <= 200 * (sublist.trie.nodes + 1)


def test_a_literal_key_does_not_walk_at_all() -> None:
    sublist = of("a.b", "#", "c")
    assert set(sublist.match("a.b")) == {"a.b", "#"}
    assert sublist.trie.visits == 0


# -- the cache


def test_a_hit_does_not_walk_again_and_empty_results_are_hits_too() -> None:
    sublist = of("a.*")
    sublist.match("a.b")
    sublist.match("z.z")
    visits = sublist.trie.visits
    assert sublist.match("a.b") == ("a.*",)
    assert sublist.match("z.z") == ()
    assert sublist.trie.visits == visits
    assert sublist.cached == 2


def test_a_wildcard_change_ends_all_cached_results() -> None:
    sublist = of("a.*")
    assert sublist.match("a.b") == ("a.*",)
    sublist.insert("*.b", "later")
    assert sublist.match("a.b") == ("a.*", "later")
    sublist.remove("a.*", "a.*")
    assert sublist.match("a.b") == ("later",)


def test_a_literal_change_ends_the_result_of_its_key_only() -> None:
    sublist = of("a.*")
    sublist.match("a.b")
    sublist.match("a.c")
    visits = sublist.trie.visits
    sublist.insert("a.b", "later")
    assert set(sublist.match("a.b")) == {"a.*", "later"}
    assert sublist.trie.visits > visits
    visits = sublist.trie.visits
    assert sublist.match("a.c") == ("a.*",)
    assert sublist.trie.visits == visits
    sublist.remove("a.b", "later")
    assert sublist.match("a.b") == ("a.*",)


def test_the_cache_is_bounded_in_entries() -> None:
    sublist = of("a.*")
    for number in range(CACHE_ENTRIES_MAX + 1):
        sublist.match(f"a.{number}")
    assert sublist.cached == CACHE_ENTRIES_MAX // 4
    visits = sublist.trie.visits
    sublist.match(f"a.{CACHE_ENTRIES_MAX}")
    assert sublist.trie.visits == visits, "the newest entries are kept"


def test_the_cache_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublist_module, "CACHE_BYTES_MAX", 8_000)
    sublist: Sublist[int] = Sublist()
    for value in range(300):
        sublist.insert("a.*", value)
    for number in range(10):
        assert len(sublist.match(f"a.{number}")) == 300
        assert sublist.cached * 300 <= 1000
    assert sublist.match("b") == ()
    sublist.insert("#", 1000)
    for value in range(1001, 2000):
        sublist.insert("#", value)
    assert len(sublist.match("a.b")) == 1300, "one result above the bound is answered, and not kept"
    assert sublist.cached == 0


def test_a_cache_without_hits_is_passed_by_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublist_module, "JUDGED_MISSES", 100)
    monkeypatch.setattr(sublist_module, "BYPASSED_MATCHES", 200)
    sublist = of("a.*")
    for number in range(100):
        sublist.match(f"a.{number}")
    assert sublist.cached == 0
    for _ in range(200):
        sublist.match("a.b")
    assert sublist.cached == 0
    sublist.match("a.b")
    assert sublist.cached == 1


def test_a_cache_with_hits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublist_module, "JUDGED_MISSES", 100)
    sublist = of("a.*")
    for number in range(300):
        sublist.match(f"a.{number}")
        sublist.match("a.b")
    assert sublist.cached > 250


# -- the pattern set of NATS's benchmarks (server/sublist_test.go): every path of 1 to 5 out of 8 tokens

TOKENS = ("orders", "billing", "stock", "eu", "us", "created", "paid", "shipped")


def benchmark_set() -> list[str]:
    literal = [".".join(path) for depth in range(1, 6) for path in itertools.product(TOKENS, repeat=depth)]
    return [
        *literal,
        "cloud.#",
        "cloud.stock.eu.#",
        "cloud.*.*.us.*",
        "#.paid",
        "#.eu.#.us.#",
        "orders.*.#.paid",
    ]


@pytest.mark.parametrize("cache", [0, CACHE_ENTRIES_MAX])
def test_the_large_pattern_set_matches_as_the_definition_says(cache: int) -> None:
    everything = benchmark_set()
    assert len(everything) == 37_448 + 6
    literal, wild = set(everything[:37_448]), everything[37_448:]
    sublist: Sublist[str] = Sublist(cache_entries_max=cache)
    for pattern in everything:
        sublist.insert(pattern, pattern)
    sample = random.Random(20)
    for _ in range(400):
        path = [sample.choice((*TOKENS, "nowhere")) for _ in range(sample.randint(1, 7))]
        key = ".".join((["cloud"] if sample.random() < 0.3 else []) + path)
        expected = {pattern for pattern in wild if naive(pattern, key)} | ({key} & literal)
        assert set(sublist.match(key)) == expected
    for pattern in everything:
        sublist.remove(pattern, pattern)
    assert (sublist.trie.nodes, sublist.match("orders.paid")) == (0, ())


def test_the_large_set_as_wildcards_matches_as_the_definition_says() -> None:
    """The same set with its last token a `*`, so that all of it is in the trie; at depth 4, or removal alone
    would take seconds."""
    wild = [f"{pattern}.*" for pattern in benchmark_set() if pattern.count(".") < 4 and "cloud" not in pattern]
    sublist: Sublist[str] = Sublist()
    for pattern in wild:
        sublist.insert(pattern, pattern)
    sample = random.Random(21)
    for _ in range(40):
        key = ".".join(sample.choice(TOKENS) for _ in range(sample.randint(1, 6)))
        assert set(sublist.match(key)) == {pattern for pattern in wild if naive(pattern, key)}


def wild(patterns: int) -> Sublist[int]:
    """Patterns with so many wildcards that a match takes many steps."""
    sublist: Sublist[int] = Sublist()
    draw = random.Random(3)
    for value in range(patterns):
        sublist.insert("#." + ".#.".join(draw.choice("ab") for _ in range(20)) + ".#", value)
    return sublist


LONG_KEY = ".".join("ab" * 30)


def test_a_match_in_steps_finds_what_a_match_finds() -> None:
    sublist, other = wild(400), wild(400)
    *steps, found = sublist.match_in_steps(LONG_KEY)
    assert len(steps) > 5
    assert set(steps) == {()}
    assert found == other.match(LONG_KEY)
    assert found
    assert [*sublist.match_in_steps(LONG_KEY)] == [found], "it is remembered"


def test_a_pattern_that_comes_between_two_steps_is_found_the_next_time() -> None:
    for pattern in (LONG_KEY, "a.#"):
        sublist = wild(400)
        steps = sublist.match_in_steps(LONG_KEY)
        next(steps)
        sublist.insert(pattern, -1)
        for _ in steps:
            pass
        assert -1 in sublist.match(LONG_KEY)
