"""How Java is started for a small log, and what of that a person's own settings leave.

What is verified: which logs are small; what a job expects of its shuffles, and that somebody's `--conf` stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from amqpd_spark import small
from amqpd_spark.session import FEW, PLANNED, expect
from amqpd_spark.small import is_small


@pytest.fixture
def of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """30 bytes in folders within folders; 30 are small."""
    monkeypatch.setattr(small, "SMALL", 30)
    for number in range(3):
        folder = tmp_path / "events" / f"date={number}" / "hour=00"
        folder.mkdir(parents=True)
        (folder / "rows.parquet").write_bytes(bytes(10))
    return tmp_path / "events"


def test_a_log_is_small_by_all_its_bytes(of_bytes: Path):
    assert is_small([str(of_bytes)])
    assert is_small([f"file://{of_bytes}"])
    (of_bytes / "date=2" / "one more").write_bytes(b"1")
    assert not is_small([str(of_bytes)])
    assert is_small([str(of_bytes / "date=0"), str(of_bytes / "date=1")])
    assert not is_small([str(of_bytes / "date=0"), str(of_bytes / "date=1"), str(of_bytes / "date=2")])


def test_of_what_is_not_looked_at_nothing_is_known(of_bytes: Path):
    for given in ("s3a://bucket/events", "hdfs:///events", str(of_bytes / "date=?"), str(of_bytes / "absent")):
        assert not is_small([given])
    assert not is_small([])


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[SparkConf]:
    """What `--conf` has set: nothing yet."""
    conf = SparkConf(loadDefaults=False)
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    before = {key: spark.conf.get(key) or "" for key in PLANNED}
    yield conf
    for key, value in before.items():
        spark.conf.set(key, value)


def test_few_tasks_are_not_planned_anew(spark: SparkSession, given: SparkConf):
    expect(spark, FEW)
    assert [spark.conf.get(key) for key in PLANNED] == [str(FEW), "false"]
    expect(spark, FEW + 1)
    assert [spark.conf.get(key) for key in PLANNED] == [str(FEW + 1), "true"]


def test_what_somebody_has_set_stays(spark: SparkSession, given: SparkConf):
    given.set(PLANNED[0], "7")
    spark.conf.set(PLANNED[0], "7")
    expect(spark, 3)
    assert [spark.conf.get(key) for key in PLANNED] == ["7", "false"]
