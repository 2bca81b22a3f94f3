"""Where a job writes: is that possible, and does it spoil nothing?

What comes in: the addresses of input and output. What goes out: nothing, or `Refused` with a sentence.
Rules: asked before the work, through Spark's own view of files.
Not here: the tables (the jobs).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from amqpd_spark.door import Refused
from amqpd_spark.footers import why

_PROBE = "_amqpd_probe"


def apart(sources: Sequence[str], target: str, both: bool = False) -> None:
    """Raises Refused when `target` is one of `sources` or lies in it; with `both`, also when one lies in
    `target`."""
    second = _place(target)
    for first in map(_place, sources):
        if first == second or first in second.parents or (both and second in first.parents):
            raise Refused(f"--output is --input, or one is in the other: {target}. Give a folder beside it")


def writable(spark: SparkSession, folder: str, tables: Sequence[str] = ()) -> None:
    """Makes the folder. Raises Refused when nothing can be written there, or when a table's name is taken by
    something that is no table."""
    session: Any = spark
    place = session._jvm.org.apache.hadoop.fs.Path(folder)
    try:
        files = place.getFileSystem(session._jsc.hadoopConfiguration())
        if files.exists(place) and files.getFileStatus(place).isFile():
            raise Refused(f"--output {folder} is a file: give a folder")
        for table in tables:
            _free(files, place.suffix(f"/{table}"), f"{folder.rstrip('/')}/{table}")
        probe = place.suffix(f"/{_PROBE}")
        if not files.mkdirs(place):
            raise Refused(f"--output {folder} cannot be made")
        files.create(probe, True).close()
        files.delete(probe, False)
    except Py4JJavaError as error:
        raise Refused(f"--output {folder} cannot be written: {why(error)}") from error


def there(spark: SparkSession, folder: str) -> None:
    """Raises Refused when there is no such folder."""
    session: Any = spark
    place = session._jvm.org.apache.hadoop.fs.Path(folder)
    try:
        if place.getFileSystem(session._jsc.hadoopConfiguration()).exists(place):
            return
    except Py4JJavaError as error:
        raise Refused(f"--input {folder} cannot be read: {why(error)}") from error
    raise Refused(f"there is no folder {folder}: give the one that the other jobs wrote into")


def absent(spark: SparkSession, folder: str) -> None:
    """Raises Refused when there is something, or nothing can be made there."""
    session: Any = spark
    place = session._jvm.org.apache.hadoop.fs.Path(folder)
    try:
        files = place.getFileSystem(session._jsc.hadoopConfiguration())
        if files.exists(place):
            raise Refused(f"{folder} is there already: a log is not written into another")
    except Py4JJavaError as error:
        raise Refused(f"--output {folder} cannot be written: {why(error)}") from error
    writable(spark, folder)
    files.delete(place, True)


def _free(files: Any, place: Any, name: str) -> None:
    if not files.exists(place):
        return
    if files.getFileStatus(place).isFile():
        raise Refused(f"{name} is a file, and a table is to be written there: give another --output")
    for each in files.listStatus(place):
        found = each.getPath().getName()
        if not (found.startswith((".", "_", "part-")) or "=" in found):
            raise Refused(f"{name} has {found} in it, so it is no table to write over: give another --output")


def _place(folder: str) -> Path:
    scheme, colon, rest = folder.partition("://")
    if colon and scheme != "file":
        return Path(f"/{scheme}:") / rest
    return Path(rest if colon else folder.removeprefix("file:")).resolve()
