"""Medians, ratios and the table."""

from __future__ import annotations

import json

from bench.clock import percentiles_ms
from bench.report import Outcome, as_json, summarise, table
from bench.scenarios import Figure, Result


def outcome(broker: str, round_: int, rate: float, p99_ms: float) -> Outcome:
    figures = [Figure("rate", rate, "msg/s"), Figure("p99", p99_ms, "ms", higher_is_better=False)]
    return Outcome("s", broker, round_, Result(figures, {"publish": 0.02, "consume": 0.05}, 1e6, 1.5, 2e5, 80.0, 0.1))


OUTCOMES = [
    outcome("a", 1, 300.0, 1.0),
    outcome("b", 1, 100.0, 4.0),
    outcome("a", 2, 200.0, 2.0),
    outcome("b", 2, 90.0, 5.0),
    outcome("a", 3, 900.0, 9.0),
    Outcome("s", "b", 3, error="BenchError: 7 messages are lost"),
]


def test_median_spread_and_ratio_in_both_directions():
    rate_a, rate_b, p99_a, p99_b = summarise(OUTCOMES, "b")
    assert (rate_a.median, rate_a.lowest, rate_a.highest, rate_a.rounds) == (300.0, 200.0, 900.0, 3)
    assert (rate_b.median, rate_b.rounds) == (95.0, 2)
    assert rate_a.ratio == 300.0 / 95.0
    assert (p99_a.median, p99_b.median, p99_a.ratio) == (2.0, 4.5, 4.5 / 2.0)


def test_without_the_baseline_there_is_no_ratio():
    assert {summary.ratio for summary in summarise(OUTCOMES, "nobody")} == {None}


def test_table_is_aligned_and_tells_failures():
    lines = table(OUTCOMES, "b").splitlines()
    assert lines[-1] == "FAILED  s on b, round 3: BenchError: 7 messages are lost"
    assert "x b" in lines[0]
    assert lines[1].index("msg/s") == lines[2].index("msg/s") == lines[3].index("ms ") == lines[0].index("unit")
    assert "3.16" in lines[1]
    assert "2%+5%" in lines[1]


def test_what_is_below_the_baseline_is_said_under_the_table():
    lines = table(OUTCOMES, "a").splitlines()
    assert lines[-2] == "BELOW a  b: s rate 0.32, s p99 0.44"
    assert not any(line.startswith("BELOW") for line in table(OUTCOMES, "b").splitlines())


def test_json_holds_every_outcome():
    value = json.loads(json.dumps(as_json(OUTCOMES, "b", {"rounds": 3})))
    assert len(value["outcomes"]) == 6
    assert value["outcomes"][0]["result"]["figures"][0]["value"] == 300.0
    assert value["outcomes"][5]["error"].startswith("BenchError")
    assert value["summary"][0]["ratio"] == 300.0 / 95.0


def test_percentiles_by_nearest_rank():
    values = [number / 1000 for number in range(1000)]
    assert percentiles_ms(values) == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0}
    assert percentiles_ms([]) == {}
