"""Objectives: what a file may say, which messages are meant and good, budgets, burn rates and breaches."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import burn, objectives, slo
from amqpd_spark.histogram import bucket_of
from amqpd_spark.objectives import Objective, WrongObjectives
from amqpd_spark.rates import FIGURES
from tests.spark.log import START

EXAMPLE = Path(__file__).parents[2] / "examples" / "slo.toml"
LATENCY = 'measure = "publish_to_deliver"\nthreshold_ms = 10'
GOOD = '[[objective]]\nname = "o"\nmeasure = "errors"\ntarget = 0.99\nwindow = "30d"\n'


def test_the_example_is_right():
    assert [each.name for each in objectives.read(str(EXAMPLE))][:2] == [
        "orders are safe quickly",
        "orders do not wait",
    ]


def test_an_objective_is_read_with_its_units(tmp_path: Path):
    file = tmp_path / "slo.toml"
    file.write_text(GOOD + 'queue = "a*"\n')
    wanted = Objective("o", "errors", 0.99, 30 * 86400, "30d", queue="a*")
    assert objectives.read(str(file)) == [wanted]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = [", "is not TOML"),
        ("[objective]\n", "write each one below [[objective]]"),
        ("", "write each one below [[objective]]"),
        (GOOD.replace("name", "nam"), "objective number 1 has no name"),
        (GOOD + GOOD, "two objectives 'o'"),
        (GOOD + "treshold_ms = 3", "unknown key 'treshold_ms'"),
        (GOOD.replace("errors", "error"), "no known measure"),
        (GOOD.replace("0.99", "99.9"), "target = 0.999"),
        (GOOD.replace("0.99", "1"), "target = 0.999"),
        (GOOD.replace('"30d"', "30"), 'window = "30d"'),
        (GOOD.replace("30d", "0d"), 'window = "30d"'),
        (GOOD + "queue = 7", "a queue that is no text"),
        (GOOD + 'queue = "q"\nexchange = "x"', "make two objectives"),
        (GOOD + "threshold_ms = 7", "take threshold_ms out"),
        (GOOD.replace('measure = "errors"', LATENCY).replace("10", "-1"), "threshold_ms = 50"),
        (GOOD.replace("errors", "publish_to_confirm") + 'queue = "q"', "take queue out"),
        (GOOD.replace("errors", "redeliveries") + 'exchange = "x"', "take exchange out"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_way_out(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "slo.toml"
    file.write_text(text)
    with pytest.raises(WrongObjectives, match=re.escape(sentence)) as found:
        objectives.read(str(file))
    assert str(found.value).startswith(str(file))


def test_a_wrong_file_ends_the_job_before_it_starts(tmp_path: Path):
    done = CliRunner().invoke(
        slo.command, ["--input", "x", "--output", "y", "--objectives", str(tmp_path / "none.toml")]
    )
    assert done.exit_code == 2
    assert "none.toml cannot be read" in done.output


@pytest.mark.parametrize(
    ("pattern", "yes", "no"), [("a*", "a.b", "ba"), ("*.q", "x.q", "xxq"), ("a+b", "a+b", "aab"), ("", "", "a")]
)
def test_only_the_star_means_something(pattern: str, yes: str, no: str):
    found = objectives.pattern(pattern).replace(r"\z", r"\Z")
    assert re.search(found, yes)
    assert not re.search(found, no)


def histogram(spark: SparkSession, *rows: tuple[str | None, str | None, int, str, int, int]) -> DataFrame:
    """(exchange, queue, minute, measure, ms, count)"""
    made = [
        ("n1", "/", exchange, queue, START + timedelta(minutes=minute), measure, bucket_of(ms * 1000), count)
        for exchange, queue, minute, measure, ms, count in rows
    ]
    names = "node string, vhost string, exchange string, queue string"
    return spark.createDataFrame(made, f"{names}, minute timestamp, measure string, bucket int, count long")


def rates(spark: SparkSession, *rows: tuple[str | None, str | None, int, dict[str, int]]) -> DataFrame:
    """(exchange, queue, minute, figures)"""
    made = [
        ("n1", "/", exchange, queue, START + timedelta(minutes=minute), *(figures.get(name, 0) for name in FIGURES))
        for exchange, queue, minute, figures in rows
    ]
    names = "node string, vhost string, exchange string, queue string, minute timestamp"
    return spark.createDataFrame(made, f"{names}, {', '.join(f'{name} long' for name in FIGURES)}")


def objective(measure: str, name: str = "o", target: float = 0.99, window_s: int = 3600, **more: object) -> Objective:
    return Objective(name, measure, target, window_s, "1h", **more)  # type: ignore[arg-type]


def counts(spark: SparkSession, wanted: list[Objective], *tables: DataFrame) -> dict[str, tuple[int, int]]:
    rows = burn.minutes(burn.described(spark, wanted), *tables).groupBy("objective").sum("good", "bad").collect()
    return {row[0]: (row[1], row[2]) for row in rows}


def test_messages_are_meant_by_their_names_and_good_within_the_threshold(spark: SparkSession):
    deliver = "publish_to_deliver"
    table = histogram(
        spark,
        *(("x", "orders.a", 0, deliver, 9, 10), ("x", "orders.b", 0, deliver, 11, 2)),
        *(("x", "mail", 0, deliver, 11, 50), ("x", "orders.a", 0, "deliver_to_ack", 11, 70)),
    )
    wanted = [
        objective(deliver, "orders", threshold_ms=10.0, queue="orders.*"),
        objective(deliver, "all", threshold_ms=10.0, vhost="/"),
        objective(deliver, "none", threshold_ms=10.0, exchange=""),
    ]
    assert counts(spark, wanted, table, rates(spark)) == {"orders": (10, 2), "all": (10, 52)}


def test_an_objective_is_of_all_nodes_or_of_those_that_it_names(spark: SparkSession):
    deliver = "publish_to_deliver"
    one = histogram(spark, ("x", "q", 0, deliver, 9, 10), ("x", "q", 0, deliver, 11, 2))
    table = one.unionByName(one.withColumn("node", F.lit("source 5")))
    wanted = [
        objective(deliver, "all", threshold_ms=10.0),
        objective(deliver, "sources", threshold_ms=10.0, node="source *"),
    ]
    assert counts(spark, wanted, table, rates(spark)) == {"all": (20, 4), "sources": (10, 2)}


def test_errors_are_of_ends_in_queues_or_of_publishes_to_exchanges(spark: SparkSession):
    table = rates(
        spark,
        (None, "q", 0, {"acked": 90, "rejected": 1, "expired": 2, "dropped": 3, "delivered": 8, "redelivered": 3}),
        ("x", None, 0, {"published": 50, "returned": 1, "unroutable": 2, "refused": 4}),
    )
    wanted = [
        objective("errors", "queues"),
        objective("errors", "x", exchange="*"),
        objective("redeliveries", "again"),
    ]
    assert counts(spark, wanted, histogram(spark), table) == {"queues": (90, 6), "x": (43, 7), "again": (5, 3)}


def evaluated(spark: SparkSession, table: DataFrame, wanted: Objective, minutes: int) -> dict[str, DataFrame]:
    described = burn.described(spark, [wanted])
    found = burn.minutes(described, histogram(spark), table)
    end = START + timedelta(minutes=minutes)
    rows = burn.burn(found, described, end).localCheckpoint()
    return {"status": burn.status(found, rows, described, end), "burn": rows, "breaches": burn.breaches(rows)}


def test_the_budget_is_what_the_target_leaves_and_old_minutes_are_not_in_the_window(spark: SparkSession):
    table = rates(
        spark,
        (None, "q", 0, {"acked": 0, "rejected": 500}),
        (None, "q", 100, {"acked": 998, "rejected": 2}),
    )
    found = evaluated(spark, table, objective("errors", queue="q"), 101)["status"].collect()[0]
    assert (found["good"], found["bad"], found["share"], found["met"]) == (998, 2, 0.998, True)
    assert found["budget_left"] == pytest.approx(0.8)
    assert found["burn_5m"] == pytest.approx(0.2)
    assert found["burn_6h"] == pytest.approx(502 / 1500 / 0.01)


def test_an_objective_without_messages_is_neither_met_nor_missed(spark: SparkSession):
    found = evaluated(spark, rates(spark), objective("errors"), 1)["status"].collect()[0]
    assert (found["met"], found["share"], found["budget_left"], found["good"]) == (None, None, None, 0)


def test_a_breach_lasts_while_both_windows_burn(spark: SparkSession):
    minutes = [(None, "q", minute, {"acked": 100}) for minute in range(120) if not 60 <= minute < 90]
    table = rates(spark, *minutes, *((None, "q", minute, {"acked": 50, "rejected": 50}) for minute in range(60, 90)))
    found = evaluated(spark, table, objective("errors"), 120)["breaches"].orderBy("alert").collect()
    fast = found[0]
    # 14.4 % of the last hour is bad from the 18th bad minute on (18 x 50 of 6000 are 15 %), and of the last five
    # minutes until the third minute after the last bad one (2 x 50 of 500 are 20 %, 1 x 50 are 10 %).
    begin = START + timedelta(minutes=77)
    assert fast["alert"] == "fast"
    assert fast["minutes"] == 90 + 3 - 77
    assert fast["peak"] == pytest.approx(25)
    assert [row["objective"] for row in found] == ["o", "o"]
    first = found[0]["from"].timestamp(), found[0]["until"].timestamp()
    assert first == (begin.timestamp(), (START + timedelta(minutes=93)).timestamp())
