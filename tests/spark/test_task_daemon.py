"""Where the Pythons of tasks come from.

What is verified: which of Spark's archives are left out; tasks come from our daemon, and have none in their path;
where their Python may not have our modules, Spark's own daemon is taken. Not verified: how much quicker it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from amqpd_spark import session
from amqpd_spark.session import TASK_DAEMON, of_tasks
from amqpd_spark.task_daemon import without_archives

INSTALLED = str(Path(pyspark.__file__).parents[1])
ARCHIVE = os.path.join(INSTALLED, "pyspark", "python", "lib", "pyspark.zip")
JAR = os.path.join(INSTALLED, "pyspark", "jars", "spark-core.jar")


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (["", ARCHIVE, JAR, "/mine.zip", INSTALLED], ["", "/mine.zip", INSTALLED]),
        (["/other/pyspark.zip", INSTALLED], ["/other/pyspark.zip", INSTALLED]),
        ([ARCHIVE, "/no/packages"], [ARCHIVE, "/no/packages"]),
    ],
    ids=["installed", "of another Spark", "not installed"],
)
def test_archives_of_the_pyspark_that_is_installed_are_left_out(path: list[str], left: list[str]):
    assert without_archives(path) == left


def test_tasks_come_from_our_daemon(spark: SparkSession):
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"path": [os.pathsep.join(sys.path)], "daemon": [getattr(sys.modules["__main__"], "__file__", "")]}
            )

    [row] = spark.range(1).mapInArrow(look, "path string, daemon string").collect()
    assert not [each for each in row["path"].split(os.pathsep) if each.startswith(os.path.join(INSTALLED, "pyspark"))]
    assert row["daemon"].endswith("task_daemon.py")


def test_a_python_that_may_not_have_our_modules_has_the_daemon_of_spark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert of_tasks() == {"spark.python.daemon.module": TASK_DAEMON}
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert of_tasks() == {}
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(session, "TASK_DAEMON", "amqpd_spark.of_no_such_name")
    assert of_tasks() == {}
