"""Folders and files, of this machine or of anything that Spark's connectors reach.

What comes in: addresses, as Spark takes them. What goes out: what is there, or `Failed` with the system's own words.
Rules: 1. What begins with file:/ is of this machine, and is looked at without Java, which may still be starting; for
all else Hadoop decides, with the settings of the session. 2. May be called from several threads.
Not here: what a job makes of it (`footers.py`, `output.py`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

LOCAL = "file:/"
FILE, FOLDER = "file", "folder"
_ELSEWHERE = ("SPARK_ENV_LOADED", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_SETTINGS = ("spark-defaults.conf", "spark-env.sh", "core-site.xml")
_KEYS = ("spark.hadoop.fs.default", "spark.driver.extraClassPath", "spark.driver.defaultExtraClassPath")
"""variables, files of Spark's configuration, and beginnings of settings, any of which may say that a path without a
scheme is of another machine"""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Failed(Exception):
    """A file or folder cannot be read or written; the text has the system's words."""


class Files(Protocol):
    """Every method raises Failed. A path below a folder is in full, with its scheme."""

    def kind(self, path: str) -> str | None:
        """FILE, FOLDER, or None: there is nothing."""

    def entries(self, folder: str) -> list[tuple[str, str]]:
        """(path, kind) of what is in it."""

    def below(self, folder: str) -> Iterator[tuple[str, int]]:
        """(path, bytes) of each file in it and its folders."""

    def full(self, path: str) -> str:
        """The path as `entries` and `below` begin."""

    def read(self, path: str, begin: int = 0, length: int | None = None) -> bytes:
        """Of a file, up to its end if there is no `length`."""

    def write(self, path: str, content: bytes) -> None:
        """A file, over what is there."""

    def make_folder(self, path: str) -> None:
        """With those above it; nothing where it is there."""

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it."""


def address(given: str, conf: Iterable[tuple[str, str]] = (), environment: Mapping[str, str] = os.environ) -> str:
    """`given`, with a scheme where it can only be this machine's. `conf`: settings of Spark."""
    if not given or _SCHEME.match(given) or any(environment.get(name) for name in _ELSEWHERE):
        return given
    home = environment.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    settings = environment.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    if any(os.path.exists(os.path.join(settings, name)) for name in _SETTINGS):
        return given
    return given if any(key.startswith(_KEYS) for key, _ in conf) else f"file:{os.path.abspath(given)}"


def plain(path: str) -> str:
    """As a person writes it."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith(LOCAL) else path


def files_of(spark: SparkSession, path: str) -> Files:
    return _Local() if path.startswith(LOCAL) else _Hadoop(spark)


def fitting(spark: SparkSession, pattern: str) -> list[str]:
    """Folders, sorted. What a pattern means is Hadoop's, also on this machine. Raises Failed."""
    return _Hadoop(spark).fitting(pattern)


class _Local:
    def kind(self, path: str) -> str | None:
        place = plain(path)
        return FOLDER if os.path.isdir(place) else FILE if os.path.exists(place) else None

    def entries(self, folder: str) -> list[tuple[str, str]]:
        root = self.full(folder)
        try:
            with os.scandir(plain(folder)) as found:
                return [(f"{root}/{each.name}", FOLDER if each.is_dir() else FILE) for each in found]
        except OSError as error:
            raise _failed(error) from error

    def below(self, folder: str) -> Iterator[tuple[str, int]]:
        top = plain(self.full(folder))

        def fail(error: OSError) -> None:
            # Retention takes folders away, too.
            if not isinstance(error, FileNotFoundError) or error.filename == top:
                raise _failed(error) from error

        for root, _, names in os.walk(top, onerror=fail, followlinks=True):
            for name in names:
                path = os.path.join(root, name)
                try:
                    yield f"file:{path}", os.stat(path).st_size
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise _failed(error) from error

    def full(self, path: str) -> str:
        return f"file:{os.path.abspath(plain(path))}"

    def read(self, path: str, begin: int = 0, length: int | None = None) -> bytes:
        try:
            with open(plain(path), "rb") as file:
                file.seek(begin)
                return file.read() if length is None else file.read(length)
        except OSError as error:
            raise _failed(error) from error

    def write(self, path: str, content: bytes) -> None:
        place = Path(plain(path))
        try:
            # Of what Hadoop wrote there before.
            place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
            place.write_bytes(content)
        except OSError as error:
            raise _failed(error) from error

    def make_folder(self, path: str) -> None:
        try:
            Path(plain(path)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(error) from error

    def remove(self, path: str) -> None:
        place = Path(plain(path))
        try:
            # Of a link the link, as Hadoop does it.
            if os.path.isdir(place) and not os.path.islink(place):
                shutil.rmtree(place)
            else:
                place.unlink()
        except OSError as error:
            raise _failed(error) from error


class _Hadoop:
    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._conf = session._jsc.hadoopConfiguration()

    def kind(self, path: str) -> str | None:
        def ask(files: Any, place: Any) -> str | None:
            if not files.exists(place):
                return None
            return FILE if files.getFileStatus(place).isFile() else FOLDER

        return self._asked(path, ask)  # type: ignore[no-any-return]

    def entries(self, folder: str) -> list[tuple[str, str]]:
        found = self._asked(folder, lambda files, place: files.listStatus(place))
        return [(str(each.getPath().toString()), FILE if each.isFile() else FOLDER) for each in found]

    def below(self, folder: str) -> Iterator[tuple[str, int]]:
        try:
            files, place = self._place(folder)
            found = files.listFiles(place, True)
            while found.hasNext():
                each = found.next()
                yield str(each.getPath().toString()), int(each.getLen())
        except Py4JJavaError as error:
            raise Failed(_why(error)) from error

    def fitting(self, pattern: str) -> list[str]:
        found = self._asked(pattern, lambda files, place: files.globStatus(place)) or ()
        return sorted(str(each.getPath().toString()) for each in found if each.isDirectory())

    def full(self, path: str) -> str:
        found = self._asked(path, lambda files, place: files.getFileStatus(place).getPath().toString())
        return str(found).rstrip("/")

    def read(self, path: str, begin: int = 0, length: int | None = None) -> bytes:
        streams = self._jvm.org.apache.commons.io.IOUtils

        def ask(files: Any, place: Any) -> bytes:
            stream = files.open(place)
            try:
                stream.seek(begin)
                return bytes(streams.toByteArray(stream) if length is None else streams.toByteArray(stream, length))
            finally:
                stream.close()

        return self._asked(path, ask)  # type: ignore[no-any-return]

    def write(self, path: str, content: bytes) -> None:
        def ask(files: Any, place: Any) -> None:
            stream = files.create(place, True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

        self._asked(path, ask)

    def make_folder(self, path: str) -> None:
        if not self._asked(path, lambda files, place: files.mkdirs(place)):
            raise Failed("the folder cannot be made")

    def remove(self, path: str) -> None:
        self._asked(path, lambda files, place: files.delete(place, True))

    def _asked(self, path: str, ask: Any) -> Any:
        try:
            return ask(*self._place(path))
        except Py4JJavaError as error:
            raise Failed(_why(error)) from error

    def _place(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place


def _failed(error: OSError) -> Failed:
    return Failed(error.strerror or str(error))


def _why(error: Py4JJavaError) -> str:
    """Java's own words, of the deepest cause."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    words = str(cause.getMessage() or cause.getClass().getSimpleName()).partition("\n")[0]
    return words.partition(" but found")[0]
