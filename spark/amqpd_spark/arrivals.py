"""The files that a batch of a stream is made of: which are there, and which are the log's.

What comes in: the batch that Spark is in. What goes out: `Arrived`, or a refusal that names the file.
Rules: 1. The plan of the batch says which files Spark wrote down for it: no row is read, so one that Spark cannot
read is found, and so is an empty one, which Spark passes over. 2. Each footer is read before a row is, as for a job
(`inventory.py`). 3. A file that is gone is said, and does not stop the stream, which would never go on: when it is
started again, Spark gives it the same files.
Not here: which of their rows were taken before (`seen.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from amqpd_spark.batches import QUERY
from amqpd_spark.files import plain
from amqpd_spark.footers import THREADS, File, Footers


@dataclass(frozen=True)
class Arrived:
    """`files` of the log; paths of `foreign` ones, and of those that are `gone`."""

    files: list[File] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def arrived(spark: SparkSession) -> Arrived:
    """In the thread that runs a batch; `spark`: the session that the stream was started in. Raises Refused."""
    there: dict[str, int] = {}
    meant: list[str] = []
    for location in _locations(spark):
        meant += [str(path.toString()) for path in _each(location.rootPaths())]
        there |= {str(file.getPath().toString()): int(file.getLen()) for file in _each(location.allFiles())}
    footers = Footers(spark)
    parquet = [path for path in there if path.endswith(".parquet")]
    with ThreadPoolExecutor(THREADS) as pool:
        read = list(pool.map(lambda path: footers.file(path, there[path]), parquet))
    strange = {path for path, file in zip(parquet, read, strict=True) if file is None} | (there.keys() - {*parquet})
    gone = [path for path in dict.fromkeys(meant) if path not in there]
    return Arrived([file for file in read if file is not None], sorted(strange), gone)


def remarks(found: Arrived) -> list[str]:
    """What a person is to know of it, a sentence each."""
    said = []
    if found.foreign:
        said.append(_of(found.foreign, "that {is} not amqpd's {was} passed over"))
    if found.gone:
        said.append(_of(found.gone, "{was} removed before {it} {was} taken"))
    return said


def _of(paths: list[str], what: str) -> str:
    one = len(paths) == 1
    words = {"is": "is", "was": "was", "it": "it"} if one else {"is": "are", "was": "were", "it": "they"}
    count = "1 file" if one else f"{len(paths):,} files"
    return f"{count} {what.format(**words)}: {'' if one else 'first '}{plain(paths[0])}"


def _locations(spark: SparkSession) -> Iterator[Any]:
    """Spark's list of files for each folder that has any for this batch."""
    # A batch is handed on as rows without a plan; the query still has it.
    query: Any = spark.streams.get(str(spark.sparkContext.getLocalProperty(QUERY)))
    leaves = query._jsq.streamingQuery().lastExecution().optimizedPlan().collectLeaves()
    return (leaf.relation().location() for leaf in _each(leaves) if _is_of_files(leaf))


def _is_of_files(leaf: Any) -> bool:
    # A folder without anything new is an empty relation in the plan.
    return bool(leaf.getClass().getSimpleName() == "LogicalRelation")


def _each(sequence: Any) -> Iterator[Any]:
    """Of one of Scala's."""
    return (sequence.apply(at) for at in range(sequence.size()))
