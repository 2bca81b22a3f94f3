"""Tables of the driver and of Spark: the same is made of both, and whoever reads the files sees no difference.

What is verified: sums by keys; what is asked of a table; that files of the driver are read by Spark as its own, next
to each other, with the columns' metadata; what is left of what was there before. A whole job without Java is in
`test_alone.py`.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from amqpd_spark import tabular
from amqpd_spark.door import Refused
from amqpd_spark.tabular import (
    added,
    brought,
    counted_by,
    first_of,
    frame,
    over,
    sums_of,
    united,
    with_date,
    with_metadata,
    write,
)

NIGHT = datetime(2026, 11, 22, 23, 59, 59, 999_999, UTC)
ROWS = [
    {"queue": "b", "window": NIGHT, "n": 1},
    {"queue": None, "window": NIGHT + timedelta(microseconds=1), "n": 2},
    {"queue": "a", "window": NIGHT, "n": 3},
    {"queue": "b", "window": None, "n": None},
]
SCHEMA = pa.schema([("queue", pa.string()), ("window", pa.timestamp("us", "UTC")), ("n", pa.int64())])


@pytest.fixture
def here() -> pa.Table:
    return pa.Table.from_pylist(ROWS, SCHEMA)


def of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=str)


def test_rows_with_the_same_keys_are_one():
    tables = [
        pa.table({"n": [1, 2], "key": ["a", None], "of": [1, 1]}),
        # Columns that nobody asks for, and in another order.
        pa.table({"other": [0.5, 0.5, 0.5], "of": [1, 1, 2], "key": ["a", None, "a"], "n": [10, 20, 30]}),
    ]
    assert added([], ["key"], {"n": "sum"}) is None
    made = added(tables, ["key", "of"], {"n": "sum"})
    assert made.column_names == ["key", "of", "n"]
    assert of(made) == of(pa.table({"key": ["a", None, "a"], "of": [1, 1, 2], "n": [11, 22, 30]}))
    assert of(added(tables, ["key"], {"n": "max", "of": "min"})) == of(
        pa.table({"key": ["a", None], "n": [30, 20], "of": [1, 1]})
    )


def test_many_small_tables_are_added_up_in_between(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tabular, "_ADDED", 3)
    made = added((pa.table({"key": [n % 5], "n": [n]}) for n in range(1000)), ["key"], {"n": "sum"})
    assert sorted(made.to_pylist(), key=str) == [{"key": key, "n": 99_500 + 200 * key} for key in range(5)]


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sums = added((pa.Table.from_batches([batch]) for batch in batches), ["queue"], {"n": "sum"})
    if sums is not None:
        yield from sums.to_batches()


def test_a_function_makes_the_same_in_the_driver_and_in_a_task(spark: SparkSession, here: pa.Table):
    in_spark = frame(spark, here).coalesce(1)
    made = over(here, doubled, "queue string, n bigint")
    assert of(made) == of(over(in_spark, doubled, "queue string, n bigint").toArrow())
    nothing = over(here.slice(0, 0), doubled, "queue string, n bigint")
    assert (nothing.num_rows, nothing.schema) == (0, made.schema)


def test_tables_of_both_are_united_in_either_place(spark: SparkSession, here: pa.Table):
    both = [here, frame(spark, here.slice(0, 1))]
    assert of(brought(both)) == of(united(both, spark).toArrow()) == of(pa.concat_tables([here, here.slice(0, 1)]))
    assert brought(both).schema == here.schema


def test_what_is_asked_of_a_table_has_one_answer(spark: SparkSession, here: pa.Table):
    for table in (here, frame(spark, here)):
        assert sums_of(table, ["n"]) == {"n": 6}
        assert counted_by(table, "queue") == {"b": 2, None: 1, "a": 1}
        assert [row["n"] for row in first_of(table, "queue", "b", ("window", "n"), 5)] == [None, 1]
        assert [row["n"] for row in first_of(table, "queue", "b", ("window", "n"), 1)] == [None]
        assert first_of(table, "queue", "c", ("n",), 5) == []
    empty = here.slice(0, 0)
    for table in (empty, frame(spark, empty)):
        assert (sums_of(table, ["n"]), counted_by(table, "queue")) == ({"n": 0}, {})


def test_spark_reads_files_of_the_driver_as_its_own(spark: SparkSession, here: pa.Table, tmp_path: Path):
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    rows = here.slice(0, 3)
    for name, table in (("here", rows), ("spark", frame(spark, rows))):
        write(with_metadata(with_date(table), "window", {"length": "1 hour"}), str(tmp_path / name), "date")
    ours, its = (spark.read.parquet(str(tmp_path / name)) for name in ("here", "spark"))
    assert ours.schema == its.schema
    assert ours.schema["window"].metadata == {"length": "1 hour"}
    assert sorted(map(str, ours.collect())) == sorted(map(str, its.collect()))
    assert [path.name for path in sorted((tmp_path / "here").iterdir())] == ["date=2026-11-22", "date=2026-11-23"]
    # Both in one table, for who reads it without Spark, too.
    kinds = [pq.read_schema(next((tmp_path / name).rglob("*.parquet"))) for name in ("here", "spark")]
    assert kinds[0].remove_metadata() == kinds[1].remove_metadata()


def days(folder: Path) -> dict[str, list[int]]:
    return {
        day.name: pq.ParquetFile(file).read().column("n").to_pylist()
        for day in sorted(folder.glob("date=*"))
        for file in day.glob("*.parquet")
    }


def test_days_that_the_table_has_are_written_over_and_others_stay(here: pa.Table, tmp_path: Path):
    write(with_date(here.slice(0, 3)), str(tmp_path), "date")
    assert days(tmp_path) == {"date=2026-11-22": [1, 3], "date=2026-11-23": [2]}
    # Another run's, or one's that was killed: nobody's business.
    (tmp_path / "_writing-abc" / "new" / "date=2026-11-22").mkdir(parents=True)
    write(with_date(here.slice(2, 1)), f"file:{tmp_path}", "date")
    assert days(tmp_path) == {"date=2026-11-22": [3], "date=2026-11-23": [2]}
    assert sorted(path.name for path in tmp_path.glob("_*")) == ["_writing-abc"]


def test_a_day_that_cannot_be_put_in_place_leaves_the_old_one(
    here: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(with_date(here.slice(0, 1)), str(tmp_path), "date")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.parent.name == "new":
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(Refused, match=f"{tmp_path} cannot be written: Directory not empty"):
        write(with_date(here.slice(2, 1)), str(tmp_path), "date")
    assert days(tmp_path) == {"date=2026-11-22": [1]}


def test_more_days_than_files_may_be_open(here: pa.Table, tmp_path: Path):
    many = pa.table({"day": list(range(200)), "n": list(range(200))})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, len(os.listdir("/proc/self/fd")) + 50), hard))
    try:
        write(many, str(tmp_path), "day")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(tmp_path.glob("day=*/*.parquet"))) == 200


def test_a_whole_table_leaves_nothing_of_what_was_there(here: pa.Table, tmp_path: Path):
    write(here, str(tmp_path / "t"), "queue", whole=True)
    names = {path.name for path in (tmp_path / "t").iterdir()}
    assert names == {"_SUCCESS", "queue=__HIVE_DEFAULT_PARTITION__", "queue=a", "queue=b"}
    (tmp_path / "t" / "._SUCCESS.crc").write_bytes(b"of Hadoop")
    write(here.slice(0, 0), str(tmp_path / "t"), "queue", whole=True)
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["_SUCCESS"]


def test_what_cannot_be_written_is_one_sentence(here: pa.Table, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=f"{tmp_path}/file/t cannot be written: "):
        write(here, str(tmp_path / "file" / "t"), "queue")
