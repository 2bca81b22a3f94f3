"""All jobs in one Spark.

What is verified: the tables are those of the jobs called one by one, the page is there, the exit code is the worst of
theirs; what cannot be done ends it with one sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark.__main__ import main
from tests.spark.log import Log

TABLES = ("conservation/books", "slo/rates", "usage/usage_by_queue", "security/addresses")


def called(*arguments: object) -> tuple[int, str]:
    answer = CliRunner().invoke(main, [str(each) for each in arguments])
    return answer.exit_code, answer.output


def rows(folder: Path, table: str) -> list[str]:
    return sorted(map(str, ds.dataset(folder / table, format="parquet", partitioning="hive").to_table().to_pylist()))


@pytest.fixture
def missing_one(log: Log) -> Log:
    """A confirmed message that the next start does not know."""
    log.add("started")
    common: dict[str, Any] = {"queue": "q", "queue_id": 1}
    log.add("published", publication=1, confirm_tag=1, user="u", connection="c", exchange="")
    log.add("routed", publication=1, confirm_tag=1, persistent=True, connection="c", exchange="", **common)
    log.add("confirmed", publication=1, confirm_tag=1, connection="c")
    log.add("started", incarnation=2)
    log.add("standing", incarnation=2, first=1, count=0, detail="0", reason="recovered", epoch=1, **common)
    log.write_as_broker()
    return log


@pytest.mark.slow
def test_all_tables_are_those_of_the_jobs_one_by_one(spark: SparkSession, missing_one: Log, tmp_path: Path):
    code, said = called("all", "--input", missing_one.path, "--output", tmp_path / "all", "--title", "Shop")
    assert code == 1, said
    assert "missing: 1" in said
    for table in TABLES:
        job = table.partition("/")[0]
        called(job, "--input", missing_one.path, "--output", tmp_path / "each" / job)
        assert rows(tmp_path / "all", table) == rows(tmp_path / "each", table)
    assert "<title>Shop" in (tmp_path / "all" / "report.html").read_text()


def test_what_cannot_be_done_is_one_sentence_and_no_page(spark: SparkSession, tmp_path: Path):
    code, said = called("all", "--input", tmp_path / "none", "--output", tmp_path / "out")
    assert code == 2
    assert f"there is no folder {tmp_path / 'none'}" in said
    assert not (tmp_path / "out" / "report.html").exists()
