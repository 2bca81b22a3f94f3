"""How long a topic match and an insert take: `python -m bench.topic_match [--json FILE] [--seconds S]`.

What comes in: nothing. What goes out: a table of nanoseconds (and nodes visited) per operation; with `--json`
the same rows in a file.
Rules: 1. the pattern set is that of NATS's own benchmarks (server/sublist_test.go): every path of 1 to 5 out
of 8 tokens, 37,448 literal patterns, and three with wildcards; "as wildcards" is the same set with `.*`
behind each, so that the trie and not the dict is measured; 2. keys go round in a ring of known size: 64 keys
fit into the cache and 32,768 do not; 3. each figure is the best of five runs, since other work on the machine
only adds.
Not here: brokers and sockets (the other scenarios of `bench/`), right results
(`tests/exchanges/test_sublist.py`).
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from amqpd.exchanges.sublist import CACHE_ENTRIES_MAX, Sublist

TOKENS = ("orders", "billing", "stock", "eu", "us", "created", "paid", "shipped")
WILDCARDS = ("cloud.#", "cloud.stock.eu.#", "cloud.*.*.us.*")
RUNS = 5
WORDS = 200


@dataclass
class Row:
    group: str
    name: str
    ns: float
    visits: float
    results: int


def pattern_set() -> list[str]:
    return [".".join(path) for depth in range(1, 6) for path in itertools.product(TOKENS, repeat=depth)]


def sublist_of(patterns: Sequence[str], cache: int) -> Sublist[int]:
    sublist: Sublist[int] = Sublist(cache_entries_max=cache)
    for value, pattern in enumerate(patterns):
        sublist.insert(pattern, value)
    return sublist


def best_ns(operation: Callable[[], int], seconds: float) -> float:
    """`operation` returns how many things it did; the best rate of RUNS runs, in nanoseconds a thing."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(RUNS):
            done = 0
            begin = time.perf_counter_ns()
            end = begin + int(seconds * 1e9 / RUNS)
            while (now := time.perf_counter_ns()) < end or not done:
                done += operation()
            best = min(best, (now - begin) / done)
    finally:
        gc.enable()
    return best


def measure_match(group: str, name: str, sublist: Sublist[int], keys: Sequence[str], seconds: float) -> Row:
    """Times rounds over the keys; the whole ring once beforehand, so that the cache is as warm as it gets."""
    match = sublist.match
    for key in keys:
        match(key)
    matches = 0
    rounds = itertools.cycle([keys[start : start + 64] for start in range(0, len(keys), 64)])

    def operation() -> int:
        nonlocal matches
        some = next(rounds)
        for key in some:
            match(key)
        matches += len(some)
        return len(some)

    before = sublist.trie.visits
    ns = best_ns(operation, seconds)
    return Row(group, name, ns, (sublist.trie.visits - before) / matches, len(match(keys[0])))


def insert_rows(literal: list[str], seconds: float) -> list[Row]:
    wild = [pattern + ".*" for pattern in literal]
    rows = []
    for name, patterns in (("37,448 literal", literal), ("37,448 as wildcards", wild)):

        def fill(patterns: list[str] = patterns) -> int:
            sublist_of(patterns, CACHE_ENTRIES_MAX)
            return len(patterns)

        rows.append(Row("insert", name, best_ns(fill, seconds), 0, 0))
    begin = time.perf_counter_ns()
    sublist = sublist_of(wild, CACHE_ENTRIES_MAX)
    filled = time.perf_counter_ns()
    for value, pattern in enumerate(wild):
        sublist.remove(pattern, value)
    removed = time.perf_counter_ns()
    assert sublist.trie.nodes == 0
    rows.append(Row("insert", "first fill as wildcards", (filled - begin) / len(wild), 0, 0))
    rows.append(Row("remove", "37,448 as wildcards", (removed - filled) / len(wild), 0, 0))
    return rows


def match_rows(literal: list[str], seconds: float) -> list[Row]:
    five = [pattern for pattern in literal if pattern.count(".") == 4]
    four = [pattern for pattern in literal if pattern.count(".") == 3]
    wild_keys = [f"cloud.{pattern}" for pattern in four]
    rows = []
    for cache in (CACHE_ENTRIES_MAX, 0):
        mode = "cache on" if cache else "cache off"
        sets = {
            "literal": sublist_of([*literal, *WILDCARDS], cache),
            "as wildcards": sublist_of([*[pattern + ".*" for pattern in literal], *WILDCARDS], cache),
        }
        for set_name, sublist in sets.items():
            end = "" if set_name == "literal" else ".x"
            hits = [key + end for key in five]
            misses = [f"{key}.nowhere{end}" for key in four]
            group = f"{set_name}, {mode}"
            rows += [
                measure_match(group, "hit, 64 keys", sublist, hits[:64], seconds),
                measure_match(group, "hit, 32,768 keys", sublist, hits, seconds),
                measure_match(group, "miss on last token, 64 keys", sublist, misses[:64], seconds),
                measure_match(group, "miss on last token, 4,096 keys", sublist, misses, seconds),
                measure_match(group, "cloud wildcards, 64 keys", sublist, wild_keys[:64], seconds),
                measure_match(group, "cloud wildcards, 4,096 keys", sublist, wild_keys, seconds),
            ]
    return rows


def hash_rows(seconds: float) -> list[Row]:
    rows = []
    key = ".".join(["a"] * WORDS)
    for hashes in (1, 2, 4, 8, 16):
        sublist: Sublist[int] = Sublist(cache_entries_max=0)
        pattern = "#." + "".join(["a.#."] * (hashes - 1)) + "b"
        sublist.insert(pattern, 0)
        rows.append(measure_match(f"{hashes} x # against {WORDS} words", "miss", sublist, [key], seconds))
        rows.append(measure_match(f"{hashes} x # against {WORDS} words", "hit", sublist, [key + ".b"], seconds))
    return rows


def fanout_rows(seconds: float) -> list[Row]:
    rows = []
    for bound in (1, 1000, 10_000):
        alone = sublist_of(["#"] * bound, CACHE_ENTRIES_MAX)
        rows.append(measure_match("# alone", f"{bound} bound", alone, TOKENS, seconds))
        among = sublist_of([*["#"] * bound, "a.*"], 0)
        rows.append(measure_match("# and a wildcard, cache off", f"{bound} bound", among, TOKENS, seconds))
    return rows


def print_table(rows: Sequence[Row]) -> None:
    print(f"{'what':44} {'':34} {'ns':>10} {'per second':>12} {'visits':>8} {'results':>8}")
    for row in rows:
        print(
            f"{row.group:44} {row.name:34} {row.ns:10,.0f} {1e9 / row.ns:12,.0f} {row.visits:8,.1f} {row.results:8,}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_match", description="Topic matching, timed.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each figure (default 0.2)")
    options = parser.parse_args()
    literal = pattern_set()
    rows = [
        *insert_rows(literal, options.seconds),
        *match_rows(literal, options.seconds),
        *hash_rows(options.seconds),
        *fanout_rows(options.seconds),
    ]
    print_table(rows)
    if options.json:
        report = {
            "benchmark": "topic_match",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "patterns": len(literal),
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
