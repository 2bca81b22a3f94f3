"""How Java is started for a small log, and what of that a person's own settings leave.

What is verified: which logs are small, and when that is of use; what a job expects of its shuffles, and that
somebody's `--conf` stays; a session that is still being made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from amqpd_spark import small
from amqpd_spark.door import Refused
from amqpd_spark.options import Options
from amqpd_spark.session import FEW, PLANNED, expect, later
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


def brief(log: Path, **given: Any) -> bool:
    return Options("conservation", (str(log),), "out", **given).brief


def test_little_to_do_is_a_small_log_and_a_spark_of_this_machine(of_bytes: Path, monkeypatch: pytest.MonkeyPatch):
    assert brief(of_bytes)
    assert brief(of_bytes, master="local[2]", conf=(("spark.executor.memory", "1g"),))
    assert not brief(of_bytes, master="spark://127.0.0.1:7077")
    assert not brief(of_bytes, conf=(("spark.hadoop.fs.defaultFS", "hdfs://store/"),))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(of_bytes))
    assert not brief(of_bytes)
    (of_bytes / "date=2" / "one more").write_bytes(b"1")
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert not brief(of_bytes)


def test_the_driver_does_it_alone_only_if_nobody_has_said_anything_of_spark(of_bytes: Path):
    def alone(output: str = "out", **given: Any) -> bool:
        return Options("conservation", (str(of_bytes),), output, **given).alone

    assert alone()
    assert alone(f"file://{of_bytes}/out")
    for said in ({"master": "local[2]"}, {"memory": "1g"}, {"conf": (("spark.ui.enabled", "false"),)}):
        assert not alone(**said)
    assert not alone("s3a://bucket/out")


def test_a_session_that_is_being_made_is_waited_for(spark: SparkSession):
    begun, go = Event(), Event()

    def make() -> SparkSession:
        begun.set()
        assert go.wait(60)
        return spark

    session = later(make)
    # It is being made by another thread, and nobody waits yet.
    assert begun.wait(60)
    go.set()
    assert [row[0] for row in session.range(3).collect()] == [0, 1, 2]
    assert session.sparkContext is spark.sparkContext
    assert SparkSession.getActiveSession() is not None


def test_why_there_is_no_session_is_said_to_who_asks():
    def make() -> SparkSession:
        raise Refused("no Java")

    session = later(make)
    for _ in range(2):
        with pytest.raises(Refused, match="no Java"):
            _ = session.sparkContext


def test_a_session_that_may_not_be_needed_is_made_once_when_somebody_asks():
    begun = []

    def make() -> SparkSession:
        begun.append(1)
        raise AttributeError("as of a Java that is gone")

    session = later(make, at_once=False)
    assert begun == []
    for _ in range(2):
        with pytest.raises(AttributeError):
            _ = session.sparkContext
    assert begun == [1]


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
