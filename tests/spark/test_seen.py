"""What a stream has taken is not taken again, whatever files it comes in.

What is verified: copies, files of `compact`, numbers that jump, batches that are done again, a stream of an earlier
version; that nothing is done where footers show that nothing comes twice. Not verified: what jobs make of it
(`test_slo_stream.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from amqpd_spark import events, seen
from amqpd_spark.batches import Batches, NotOurs
from amqpd_spark.compact import compact
from amqpd_spark.options import Options
from amqpd_spark.seen import MASKS, Taken, merged, met
from amqpd_spark.streaming import Settings, Step, Stop, run
from tests.spark.log import Log


class Numbers:
    """A stream of two folders that writes down the numbers of each batch's rows; it may be killed after that."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = Log(folder / "live")
        self.archive = folder / "archive"
        for each in (self.log.path, self.archive):
            each.mkdir()
        inputs = str(self.log.path), str(self.archive)
        self.options = Options("test", inputs, str(folder / "out"))
        self.batches = Batches(spark, self.options)
        self.killed = False
        self.touched: list[bool] = []
        """for each batch: whether its rows were looked at before"""

    def take(self, files_max: int = 100) -> list[int]:
        """The numbers that were taken up to now."""
        settings = Settings(self.options.table("_checkpoint"), once=True, files_max=files_max)
        run(self.spark, self.options, self._step, settings, Stop())
        last = self.batches.last()
        return [] if last is None else sorted(row[0] for row in self.batches.up_to("rows", last).collect())

    def take_when_killed(self) -> list[int]:
        self.killed = True
        with pytest.raises(StreamingQueryException, match="killed"):
            self.take()
        self.killed = False
        return self.take()

    def compact(self, rows_per_file: int = 100) -> None:
        compact(events.read(self.spark, str(self.log.path)), str(self.archive), rows_per_file)

    def _step(self, step: Step) -> None:
        self.touched.append(step.rows.is_cached)
        step.batches.write("rows", step.number, step.rows.select("number"))
        if self.killed:
            raise ValueError("killed")
        step.batches.end(step.number, self.spark.range(1), ())


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Numbers:
    return Numbers(spark, tmp_path)


def rows(log: Log, count: int) -> None:
    for _ in range(count):
        log.add("started")


def test_files_of_a_broker_are_taken_without_a_look_at_their_rows(stream: Numbers):
    rows(stream.log, 4)
    stream.log.write_as_broker(rows_per_file=2)
    assert stream.take(files_max=1) == [1, 2, 3, 4]
    rows(stream.log, 2)
    stream.log.write_as_broker()
    assert stream.take() == [1, 2, 3, 4, 5, 6]
    assert stream.touched == [False, False, False]
    last = stream.batches.last()
    assert last is not None
    assert [tuple(row) for row in stream.batches.read("seen", last).collect()] == [Taken("n1", 1, 1, 6)]


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(Log.write_as_broker, id="with footers"),
        pytest.param(Log.write, id="without", marks=pytest.mark.slow),
    ],
)
def test_a_copy_is_not_taken_again(stream: Numbers, write: Callable[[Log], str]):
    rows(stream.log, 2)
    write(stream.log)
    assert stream.take() == [1, 2]
    shutil.copy(stream.log.files[0], stream.archive / "of another name.parquet")
    assert stream.take() == [1, 2]


@pytest.mark.slow
def test_the_same_rows_twice_in_a_batch(stream: Numbers):
    rows(stream.log, 2)
    stream.log.write_as_broker()
    shutil.copy(stream.log.files[0], stream.archive / "copy.parquet")
    stream.compact()
    assert stream.take() == [1, 2]


@pytest.mark.slow
def test_compacted_again_and_again_with_what_is_new_and_killed_in_between(stream: Numbers):
    rows(stream.log, 3)
    stream.log.write_as_broker()
    assert stream.take() == [1, 2, 3]
    stream.compact()
    rows(stream.log, 2)
    stream.log.write_as_broker()
    assert stream.take_when_killed() == [1, 2, 3, 4, 5]
    rows(stream.log, 1)
    stream.log.write_as_broker()
    # What is compacted comes first: then it is the broker's file that has nothing new.
    late = stream.log.files[-1].rename(stream.log.path / ".late")
    stream.compact()
    shutil.copy(late, stream.archive / "n1-1-9.parquet")
    assert stream.take_when_killed() == [1, 2, 3, 4, 5, 6]
    late.rename(stream.log.files[-1])
    assert stream.take_when_killed() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "islands_max", [pytest.param(256, id="as ranges"), pytest.param(2, id="as masks", marks=pytest.mark.slow)]
)
def test_numbers_that_jump(stream: Numbers, islands_max: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("amqpd_spark.present.ISLANDS_MAX", islands_max)
    monkeypatch.setattr(seen, "ISLANDS_MAX", islands_max)
    for number in (100, 200, 300, 400):
        stream.log.add("started", number=number)
    stream.log.write()
    assert stream.take_when_killed() == [100, 200, 300, 400]
    # Between two of them: by the first and the last number of the file that was taken, it would be there already.
    for number in (150, 500):
        stream.log.add("started", number=number)
    stream.log.write()
    stream.compact()
    assert stream.take_when_killed() == [100, 150, 200, 300, 400, 500]
    assert stream.batches.is_there(MASKS, 0) == (islands_max == 2)
    stream.compact()
    assert stream.take() == [100, 150, 200, 300, 400, 500]


def test_files_of_a_compacted_hour_each_in_a_batch(stream: Numbers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("amqpd_spark.present.ISLANDS_MAX", 2)
    monkeypatch.setattr(seen, "ISLANDS_MAX", 2)
    rows(stream.log, 40)
    stream.log.write_as_broker(rows_per_file=20)
    stream.compact(rows_per_file=15)
    stream.log.files[0].unlink()
    assert stream.take(files_max=1) == list(range(1, 41))


def test_a_file_with_fewer_rows_than_it_says_is_not_believed(stream: Numbers):
    rows(stream.log, 3)
    stream.log.write_as_broker()
    stream.compact()
    whole = next(stream.archive.rglob("*.parquet")).rename(stream.archive.parent / "whole.parquet")
    without_the_second(stream.log.files[0])
    assert stream.take() == [1, 3]
    whole.rename(stream.archive / "whole.parquet")
    assert stream.take() == [1, 2, 3]


def without_the_second(file: Path) -> None:
    table = pq.ParquetFile(file).read()
    pq.write_table(pa.concat_tables([table.slice(0, 1), table.slice(2)]), file)


def test_a_stream_of_an_earlier_version_is_begun_again(stream: Numbers):
    rows(stream.log, 1)
    stream.log.write_as_broker()
    stream.take()
    stream.batches.forget("seen", 0)
    rows(stream.log, 1)
    stream.log.write_as_broker()
    with pytest.raises(NotOurs, match="begun by an earlier amqpd-spark"):
        stream.take()


def test_ranges_are_merged():
    one, other = Taken("a", 1, 1, 4), Taken("a", 2, 1, 4)
    assert merged([other, Taken("a", 1, 5, 9), one, Taken("a", 1, 2, 3)]) == [Taken("a", 1, 1, 9), other]
    assert merged([one, Taken("a", 1, 6, 9)]) == [one, Taken("a", 1, 6, 9)]
    cut = Taken("a", 1, 2, 8, whole=False)
    assert merged([cut, one, cut._replace(first=7, last=20)]) == [one, cut._replace(last=20)]
    assert len(merged([cut, cut._replace(first=1 << 20, last=1 << 20)])) == 2


def test_ranges_meet_within_an_incarnation():
    one = Taken("a", 1, 5, 9)
    assert met([one], [Taken("a", 1, 9, 12)]) == [one]
    assert met([one], [Taken("a", 1, 10, 12), Taken("a", 1, 1, 4), Taken("a", 2, 5, 9), Taken("b", 1, 5, 9)]) == []
