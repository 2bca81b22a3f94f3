"""`conservation` of a small log in which nothing is wrong: it needs no Spark.

What is verified: no Java is started for it, that the tables are those of Spark, and what makes it start one all the
same. A Java that only says its version stands for one that could be started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amqpd_spark import options
from tests.harness.slow import slow
from tests.spark.conservation_stories import Queue
from tests.spark.log import Log
from tests.spark.test_conservation import called, rows_of

ROOT = Path(__file__).parents[2]
Job = Callable[..., tuple[int, str, bool]]
_JAVA = """#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.1"' >&2; exit; }
echo started >> "$0.log"
exit 1
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Runs the command: its exit code, what it says, whether it has started Java."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA)
    java.chmod(0o755)
    path = os.pathsep.join([str(ROOT), str(ROOT / "spark")])
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "java"), "PYTHONPATH": path}

    def run(folder: Path, *more: str) -> tuple[int, str, bool]:
        command = [sys.executable, "-m", "amqpd_spark", "conservation", "--input", str(folder)]
        command += ["--output", str(tmp_path / "out"), "--window", "1 hour", *more]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        return done.returncode, done.stdout + done.stderr, java.with_name("java.log").exists()

    return run


def history(log: Log, standing: int = 10) -> Path:
    """Fifty messages in three hours and two incarnations: they are acked, expire, or stand in the second
    incarnation's anchor. And a gap, which is no fault."""
    log.add("started", incarnation=1)
    queue = Queue(log, "orders", 1)
    queue.routed(50, tag=1)
    queue.confirmed(1, 50)
    queue.add("acked", at=3700, count=30)
    queue.add("expired", 30, at=7300, count=10)
    log.add("stopped", at=7301, incarnation=1)
    log.add("started", at=7302, incarnation=2)
    queue.anchor((1, 40, standing), at=7303, next=50)
    log.add("gap", at=7304, incarnation=2, reason="disk_full", detail='{"from": "2026-11-22T07:01:43.500Z"}')
    log.write_as_broker()
    return log.path


def test_a_small_log_in_which_nothing_is_wrong_needs_no_java(job: Job, log: Log):
    code, said, started = job(history(log))
    assert (code, started) == (0, False), said
    assert "50  messages accepted" in said
    assert "Nothing is missing, nothing ended twice." in said
    assert "gap: 1\n" in said
    # Who says something of Spark has one.
    assert job(log.path, "--conf", "spark.sql.shuffle.partitions=1")[2]


def test_what_is_suspect_is_asked_of_the_whole_log_by_spark(job: Job, log: Log):
    code, said, started = job(history(log, standing=9))
    assert (code, started) == (2, True)
    assert "Java did not start" in said


@pytest.mark.parametrize("standing", [10, slow(9)])
def test_the_tables_are_those_of_spark(
    spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: int
):
    folder = str(history(log, standing))
    answers = [called(folder, tmp_path / "here")]
    # As the driver names them.
    assert list((tmp_path / "here" / "flow").rglob("part-0.zstd.parquet"))
    monkeypatch.setattr(options, "HERE_ROWS", -1)
    answers.append(called(folder, tmp_path / "tasks"))
    for name in ("books", "flow", "findings"):
        here, tasks = (sorted(rows_of(tmp_path / where / name), key=str) for where in ("here", "tasks"))
        assert here == tasks
        assert here or name == "findings"
    said = [answer.output.replace(f"{tmp_path}/here", f"{tmp_path}/tasks") for answer in answers]
    assert said[0] == said[1]
    assert {answer.exit_code for answer in answers} == {int(standing == 9)}
