"""Where a job writes: is that possible, and does it spoil nothing?

What comes in: the addresses of input and output. What goes out: nothing, or `Refused` with a sentence.
Rules: asked before the work, while Java may still be starting.
Not here: the tables (the jobs).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from amqpd_spark.door import Refused
from amqpd_spark.files import FILE, Failed, Files, files_of, plain

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
    name, files = plain(folder).rstrip("/"), files_of(spark, folder)
    try:
        if files.kind(folder) == FILE:
            raise Refused(f"--output {name} is a file: give a folder")
        for table in tables:
            _free(files, f"{folder.rstrip('/')}/{table}", f"{name}/{table}")
        files.make_folder(folder)
        probe = f"{folder.rstrip('/')}/{_PROBE}"
        files.write(probe, b"")
        files.remove(probe)
    except Failed as error:
        raise Refused(f"--output {name} cannot be written: {error}") from error


def there(spark: SparkSession, folder: str) -> None:
    """Raises Refused when there is no such folder."""
    try:
        if files_of(spark, folder).kind(folder) is not None:
            return
    except Failed as error:
        raise Refused(f"--input {folder} cannot be read: {error}") from error
    raise Refused(f"there is no folder {folder}: give the one that the other jobs wrote into")


def absent(spark: SparkSession, folder: str) -> None:
    """Raises Refused when there is something, or nothing can be made there."""
    files = files_of(spark, folder)
    try:
        if files.kind(folder) is not None:
            raise Refused(f"{folder} is there already: a log is not written into another")
        writable(spark, folder)
        files.remove(folder)
    except Failed as error:
        raise Refused(f"--output {folder} cannot be written: {error}") from error


def _free(files: Files, place: str, name: str) -> None:
    kind = files.kind(place)
    if kind is None:
        return
    if kind == FILE:
        raise Refused(f"{name} is a file, and a table is to be written there: give another --output")
    for path, _ in files.entries(place):
        found = path.rpartition("/")[2]
        if not (found.startswith((".", "_", "part-")) or "=" in found):
            raise Refused(f"{name} has {found} in it, so it is no table to write over: give another --output")


def _place(folder: str) -> Path:
    scheme, colon, rest = folder.partition("://")
    if colon and scheme != "file":
        return Path(f"/{scheme}:") / rest
    return Path(rest if colon else folder.removeprefix("file:")).resolve()
