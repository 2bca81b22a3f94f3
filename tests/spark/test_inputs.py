"""A log in several folders is one log: brokers beside each other, an archive and what came since.

What is verified: by the command. Not verified: stores of objects, which need one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from amqpd_spark.footers import Edge
from amqpd_spark.session import start
from tests.spark.log import Log
from tests.spark.test_conservation import called as account
from tests.spark.test_conservation import rows_of
from tests.spark.test_exit_codes import called, refused

MESSAGES = 6


def broker(folder: Path, node: str) -> Log:
    """A log of a whole incarnation."""
    log = Log(folder)
    log.add("started", node=node)
    for number in range(MESSAGES):
        sent: dict[str, Any] = {"publication": number + 1, "confirm_tag": number + 1, "node": node}
        queue: dict[str, Any] = {"queue": "q", "queue_id": 1, "first": number, "node": node}
        log.add("published", number, **sent)
        log.add("routed", number, **(queue | sent), persistent=True)
        log.add("confirmed", number, **sent)
        log.add("acked", number, **queue)
    log.write_as_broker(rows_per_file=4)
    return log


def books(answer: Result, output: Path) -> list[tuple[str, int, int]]:
    assert answer.exit_code == 0, answer.output
    return sorted((row["node"], row["accepted"], row["acked"]) for row in rows_of(output / "books"))


@pytest.mark.parametrize("how", ["each", "pattern", "twice"])
def test_folders_of_two_brokers_are_one_log(spark: SparkSession, tmp_path: Path, how: str) -> None:
    one, two = (broker(tmp_path / "in" / node / "events", node).path for node in ("n1", "n2"))
    given = {
        "each": [str(one), str(two)],
        "pattern": [str(tmp_path / "in" / "n*" / "events")],
        "twice": [str(one), str(two), str(one)],
    }[how]
    options = [word for folder in given[1:] for word in ("--input", folder)]
    answer = account(given[0], tmp_path / "out", *options)
    assert books(answer, tmp_path / "out") == [("n1", MESSAGES, MESSAGES), ("n2", MESSAGES, MESSAGES)]


def test_what_one_folder_lacks_may_be_in_the_other(spark: SparkSession, tmp_path: Path) -> None:
    """The archive has the first files, the broker the others and one of both."""
    now = broker(tmp_path / "now", "n1")
    archive = tmp_path / "archive"
    shutil.copytree(now.path, archive)
    for file in now.files[3:]:
        (archive / file.relative_to(now.path)).unlink()
    for file in now.files[:2]:
        file.unlink()
    answer = account(str(now.path), tmp_path / "both", "--input", str(archive))
    assert books(answer, tmp_path / "both") == [("n1", MESSAGES, MESSAGES)]
    alone = account(str(now.path), tmp_path / "alone")
    assert alone.exit_code == 1, "the broker's folder says that it had them"
    assert "log_hole: 1" in alone.output


def test_folders_of_which_one_is_missing_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    there = broker(tmp_path / "there", "n1").path
    out = tmp_path / "out"
    refused(called("conservation", "--input", there, "--input", tmp_path / "gone", "--output", out), "gone")
    refused(called("conservation", "--input", tmp_path / "n*", "--output", out), "n*")
    assert not out.exists() or not list(out.iterdir())


def test_an_output_in_a_folder_that_a_pattern_means_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    there = broker(tmp_path / "n1", "n1").path
    answer = called("usage", "--input", tmp_path / "n?", "--output", there / "tables")
    refused(answer, "--output", "--input")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (({1: 9}, None), ({1: 4, 2: 7}, None), ({1: 9, 2: 7}, None)),
        (({2: 9}, (1, 30)), ({1: 30}, None), ({1: 30, 2: 9}, None)),
        (({2: 9}, (1, 30)), ({1: 30, 2: 4}, (1, 10)), ({1: 30, 2: 9}, (1, 10))),
    ],
)
def test_edges_of_two_folders_are_the_wider_ones(one: Any, other: Any, both: Any) -> None:
    for first, second in ((one, other), (other, one)):
        assert Edge("n", *first).with_other(Edge("n", *second)) == Edge("n", *both)


def test_settings_are_given_to_spark(spark: SparkSession) -> None:
    key = "spark.amqpd.test"
    start("test", conf=((key, "a=b"),))
    try:
        assert spark.conf.get(key) == "a=b"
    finally:
        spark.conf.unset(key)


@pytest.mark.parametrize("wrong", ["spark.executor.memory", "executor.memory=4g", "=", "spark.=4g"])
def test_what_is_no_setting_is_refused(tmp_path: Path, wrong: str) -> None:
    answer = called("usage", "--input", tmp_path, "--output", tmp_path / "out", "--conf", wrong)
    refused(answer, "--conf", wrong)
