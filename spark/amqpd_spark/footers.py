"""One footer of a file of the log, and the files beside it that say how far a node's log reaches.

What comes in: paths. What goes out: `File`, `Edge`, or a refusal that names the file.
Rules: may be called from several threads.
Not here: where files are (`files.py`), what follows from footers (`inventory.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, TimestampType

from amqpd_spark.door import Refused
from amqpd_spark.files import FILE, FOLDER, Failed, files_of, fitting, plain
from amqpd_spark.schema import COLUMNS, FORMAT, FORMAT_KEY, MADE_BY_KEY

ROWS_KEY = "amqpd.audit.rows"
SPARK_KEY = "org.apache.spark.sql.parquet.row.metadata"
BROKER, COMPACT, GENERATE, UNKNOWN = "broker", "compact", "generate", "unknown"
"""`File.made_by`; what jobs of earlier versions wrote is of nobody known"""
ROWS_FILE = "_rows.json"
"""beside the files of an hour that `compact` wrote"""
THREADS = 16
"""that read footers at once"""
MAY_LACK = ("source", "source_epoch")
"""columns that files of earlier versions have not"""
LOG_FORMAT = 1

_NAME = re.compile(r"(?:date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/)?([^/]+)\.parquet$")
_BROKERS = re.compile(r"(.+)-(\d+)-(\d+)$")
TAIL = 1 << 16
"""bytes from a file's end, that hold most footers"""
_MAGIC = 8
"""bytes behind a footer: its length, and who wrote it"""
# Of a column of the log: what Parquet may call it. Spark itself writes times as int96, if it is not told otherwise.
_WHOLE = r"(?: \(Int\(bitWidth=(?:8|16|32|64), isSigned=true\)\))?"
_FITS: dict[type[DataType], re.Pattern[str]] = {
    StringType: re.compile(r"byte_array \((?:String|Enum)\)"),
    LongType: re.compile(rf"int(?:32|64){_WHOLE}"),
    IntegerType: re.compile(rf"int32{_WHOLE}"),
    BooleanType: re.compile(r"boolean"),
    TimestampType: re.compile(r"int96|int64 \(Timestamp\(.*timeUnit=(?:microseconds|milliseconds).*\)\)"),
}


@dataclass(frozen=True)
class File:
    """Rows `first` to `last` of (node, incarnation), from `from_us` to `to_us`; null where the footer does not say.
    `rows`: how many there are. `declared`: numbers before this file that the broker did not record, as it says
    itself. `n`: of its name."""

    path: str
    size: int
    rows: int
    made_by: str
    node: str | None = None
    incarnation: int | None = None
    first: int | None = None
    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None
    n: int | None = None
    declared: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Edge:
    """`_log-<node>.json`: `incarnations`, the last row of each that became a file; `removed`, the incarnation and the
    row up to which retention took all, or nothing was there any more when it was made from the files."""

    node: str
    incarnations: dict[int, int]
    removed: tuple[int, int] | None

    def with_other(self, other: Edge) -> Edge:
        """Of two folders that have rows of the same node, as a broker's and an archive: what either has."""
        incarnations = {
            incarnation: max(self.incarnations.get(incarnation, 0), other.incarnations.get(incarnation, 0))
            for incarnation in {*self.incarnations, *other.incarnations}
        }
        removed = min(self.removed, other.removed) if self.removed and other.removed else None
        return Edge(self.node, incarnations, removed)


def named(path: str) -> tuple[str | None, int | None, int | None, str]:
    """What a file's name says, if it is a broker's: node, incarnation, number; and the hour of its folder, as
    "2026-11-22 05" (empty: none)."""
    found = _NAME.search(path)
    if found is None:
        return None, None, None, ""
    hour = f"{found[1]} {found[2]}" if found[1] else ""
    of_broker = _BROKERS.match(found[3])
    if of_broker is None:
        return None, None, None, hour
    return of_broker[1], int(of_broker[2]), int(of_broker[3]), hour


def checksum_of(known: object) -> int:
    """Of what is written as JSON, without its own key `crc`."""
    return crc32(json.dumps(known).encode())


def edge(text: str) -> Edge | None:
    """None: it is damaged, or of a version that is not known; then nothing is known of the edges."""
    try:
        told = json.loads(text)
        checksum = told.pop("crc")
        if checksum != checksum_of(told) or told["format"] != LOG_FORMAT:
            return None
        incarnations = {
            int(incarnation): int(of_incarnation["last"])
            for incarnation, of_incarnation in told["incarnations"].items()
        }
        removed = told["removed"] and (int(told["removed"]["incarnation"]), int(told["removed"]["last"]))
        return Edge(str(told["node"]), incarnations, removed or None)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Footers:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def folders(self, given: str) -> list[str]:
        """The one that has this name, or all that fit it as a pattern; what is nowhere stays what it is. Raises
        Refused."""
        try:
            is_there = files_of(self._spark, given).kind(given) is not None
            return [given] if is_there else fitting(self._spark, given) or [given]
        except Failed as error:
            raise Refused(f"--input {plain(given)} cannot be read: {error}") from error

    def listed(self, folder: str) -> Iterator[tuple[str, int]]:
        """Each file below it, with its size, except what Spark passes over itself; and each ROWS_FILE. Raises
        Refused."""
        name, files = plain(folder), files_of(self._spark, folder)
        try:
            kind = files.kind(folder)
            if kind is None:
                raise Refused(f"there is no folder {name}: give a broker's audit/events, or what `compact` made")
            if kind == FILE:
                raise Refused(f"{name} is a file: give the folder of the log, a broker's audit/events")
            root = files.full(folder)
            for path, size in files.below(folder):
                parts = path.removeprefix(root).strip("/").removesuffix(ROWS_FILE).split("/")
                # Before "=" as in Spark: a column's name may begin with "_".
                if not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts):
                    yield path, size
        except Failed as error:
            raise Refused(f"{name} cannot be read: {error}") from error

    def edges(self, folders: Sequence[str]) -> list[Edge]:
        """Of all nodes; what is damaged counts as missing. Raises Refused."""
        found = []
        for folder in folders:
            files = files_of(self._spark, folder)
            try:
                for path, kind in files.entries(folder) if files.kind(folder) == FOLDER else ():
                    name = path.rpartition("/")[2]
                    if name.startswith("_log-") and name.endswith(".json") and kind == FILE:
                        found.append(edge(self.text(path) or ""))
            except Failed as error:
                raise Refused(f"{plain(folder)} cannot be read: {error}") from error
        return [each for each in found if each is not None]

    def text(self, path: str) -> str | None:
        """Of a small file; None: it cannot be read."""
        try:
            return files_of(self._spark, path).read(path).decode(errors="replace")
        except Failed:
            return None

    def write(self, path: str, text: str) -> None:
        """A small file, over what is there. Raises Refused."""
        try:
            files_of(self._spark, path).write(path, text.encode())
        except Failed as error:
            raise Refused(f"{plain(path)} cannot be written: {error}") from error

    def file(self, path: str, size: int) -> File | None:
        """None: it is not of the log. Raises Refused."""
        try:
            footer = pq.read_metadata(pa.BufferReader(self._tail(path, size)))
        except (Failed, OSError, pa.ArrowException) as error:
            raise Refused(f"{plain(path)} is no whole Parquet file: {error}") from error
        keys = {key.decode(errors="replace"): value for key, value in (footer.metadata or {}).items()}
        said = {
            key: keys[key].decode(errors="replace") if key in keys else None
            for key in (FORMAT_KEY, ROWS_KEY, SPARK_KEY)
        }
        columns = _columns(footer.schema)
        format, made_by = _origin(said)
        if format is None and not {"event", "node", "incarnation", "number"} <= columns.keys():
            return None
        if format is not None and format != FORMAT:
            raise Refused(f"{plain(path)} has format {format}; this amqpd-spark reads {FORMAT}: install a newer one")
        _check(path, columns)
        made = File(path, size, footer.num_rows, made_by, n=named(path)[2])
        return _told(made, said[ROWS_KEY], footer)

    def _tail(self, path: str, size: int) -> bytes:
        """A footer, and perhaps what is before it."""
        files = files_of(self._spark, path)
        found = files.read(path, size - min(size, TAIL), min(size, TAIL))
        length = min(size, int.from_bytes(found[-_MAGIC:-4], "little") + _MAGIC)
        return files.read(path, size - length, length) if length > len(found) else found


def _origin(said: Mapping[str, str | None]) -> tuple[str | None, str]:
    """The format (None: it says none), and who wrote it."""
    if said[FORMAT_KEY] is not None:
        return said[FORMAT_KEY], BROKER
    try:
        fields = json.loads(said[SPARK_KEY] or "{}").get("fields", [])
        told: dict[str, str] = next((field["metadata"] for field in fields if field["name"] == "event"), {})
    except (ValueError, TypeError, KeyError, AttributeError):
        told = {}
    return told.get(FORMAT_KEY), str(told.get(MADE_BY_KEY, UNKNOWN))


def _columns(schema: pq.ParquetSchema) -> dict[str, str]:
    """Name -> type, as Parquet writes it; of columns that are in no other."""
    found = {}
    for number in range(len(schema.names)):
        column = schema.column(number)
        logical = str(column.logical_type)
        kind = column.physical_type.lower()
        found[column.path] = kind if logical == "None" else f"{kind} ({logical})"
    return found


def _told(file: File, said: str | None, footer: pq.FileMetaData) -> File:
    """With its range, as the key says, or else, as the statistics of its columns do."""
    if file.made_by != BROKER:
        return file
    if said is not None:
        return _with_key(file, said)
    number, incarnation, time, node = (_span(footer, name) for name in ("number", "incarnation", "time", "node"))
    if (
        number is None
        or incarnation is None
        or time is None
        or node is None
        or incarnation[0] != incarnation[1]
        or node[0] != node[1]
    ):
        return file
    return _ranged(file, str(node[0]), incarnation[0], *number, *time)


def _span(footer: pq.FileMetaData, name: str) -> tuple[Any, Any] | None:
    """Least and greatest of a column; times are microseconds."""
    place = [footer.schema.column(number).path for number in range(footer.num_columns)].index(name)
    low, high = [], []
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        text = isinstance(statistics.min, str)
        low.append(statistics.min if text else statistics.min_raw)
        high.append(statistics.max if text else statistics.max_raw)
    return (min(low), max(high)) if low else None


def _check(path: str, columns: Mapping[str, str]) -> None:
    for name, kind in COLUMNS.items():
        found = columns.get(name)
        if found is None and name not in MAY_LACK:
            raise Refused(f"{plain(path)} has no column {name}")
        if found is not None and _FITS[type(kind)].fullmatch(found) is None:
            raise Refused(f"{plain(path)}: column {name} is {found}, and should be {kind.simpleString()}")


def _with_key(file: File, said: str) -> File:
    try:
        told = json.loads(said)
        declared = tuple((int(low), int(high)) for low, high in told.get("declared", []))
        incarnation, first, last, begin, end = (
            int(told[name]) for name in ("incarnation", "first", "last", "from_us", "to_us")
        )
        return _ranged(file, str(told["node"]), incarnation, first, last, begin, end, declared)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refused(f"{plain(file.path)}: its metadata key {ROWS_KEY} is not as a broker writes it") from error


def _ranged(
    file: File,
    node: str,
    incarnation: int,
    first: int,
    last: int,
    from_us: int,
    to_us: int,
    declared: tuple[tuple[int, int], ...] = (),
) -> File:
    return File(
        file.path, file.size, file.rows, BROKER, node, incarnation, first, last, from_us, to_us, file.n, declared
    )
