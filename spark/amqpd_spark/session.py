"""The Spark session that jobs run in.

What comes in: a name, where to run, how much memory. What goes out: a `SparkSession`.
Rules: 1. What a cluster or `spark-submit` has set stays; `master` and `memory` are set only where they are given. 2.
All times are UTC. 3. A JVM that we start ourselves says errors, and nothing else (`log4j2.properties`).
Not here: whether there is a Java (`java.py`), arguments (`options.py`).
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import cached_property
from importlib.resources import as_file, files
from threading import Lock, Thread
from typing import Any, cast

from pyspark import SparkConf, SparkContext, StorageLevel
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import class_archive

# On every master: what the jobs' results depend on, and what only costs time.
COMMON = {
    "spark.sql.session.timeZone": "UTC",
    # Where each column came from in our source, looked up through py4j: a third of the time of a small job.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A stretch of the log becomes up to 65,536 rows, so a task's share of a file is small.
    "spark.sql.files.maxPartitionBytes": "16m",
    # What opening a file takes, in bytes read: Spark's own 4 MB would make a task of four of a quiet hour's files.
    "spark.sql.files.openCostInBytes": "256k",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
# Only where we start the whole of Spark in this process ourselves.
LOCAL = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Where Java itself has little to do: the compiler that is quick itself, and the collector without threads of its own.
# `conservation` of 20 million events takes half of Java's processor time with it; `slo` would take longer.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Java looks at all that it loads for what no compiler would have made, if no archive says that this was done. What it
# loads are Spark's own jars, and the look is a sixth of a short job's time.
NO_ARCHIVE = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# And stages that are not made into Java's code first, nor their plans into text for a page that nobody has open: both
# take longer than the work.
BRIEF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "10",
}
TASK_DAEMON = "amqpd_spark.task_daemon"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PLANNED = ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")
"""settings that fit one job's log"""
FEW = 16
"""tasks of a shuffle, that need not become fewer where there is little left"""
END_S = 60
"""that a job waits at its end for a Java that it has started"""
# Java's own line on each start that Spark makes it print.
_OF_NO_USE = "WARNING: Using incubator modules"


def start(
    name: str,
    master: str | None = None,
    memory: str | None = None,
    conf: Iterable[tuple[str, str]] = (),
    light: bool = False,
    brief: bool = False,
) -> SparkSession:
    """`memory` of the driver, which with a local master is all there is ("3g"). Without a `master` the one that
    spark-submit or spark-defaults.conf gives, else this machine's cores. `conf`: further settings, which go before
    ours. `light`: it is not Java that works. `brief`: nor has anybody much to do."""
    builder = SparkSession.builder.appName(f"amqpd-spark {name}")
    submitted = "SPARK_ENV_LOADED" in os.environ
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
    settings = dict(COMMON)
    if master is not None and master.startswith("local"):
        settings |= LOCAL | (BRIEF if brief else {})
        archive = class_archive.used()
        if options := " ".join(each for each in (QUICK if light or brief else "", archive or NO_ARCHIVE) if each):
            settings[JAVA_OPTIONS] = options
        # Else Spark takes the first python3 that it finds for what runs beside the JVM.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Executors that are processes of their own have another working directory.
        if not submitted and not master.startswith("local-cluster"):
            settings |= of_tasks()
    if memory is not None:
        settings["spark.driver.memory"] = memory
    settings |= dict(conf)
    if not submitted:
        settings["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
        _start_java(settings | {"spark.master": master or "local[*]", "spark.app.name": f"amqpd-spark {name}"})
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def of_tasks() -> dict[str, str]:
    """Settings of Python's tasks on this machine."""
    python = os.environ.get("PYSPARK_PYTHON", "")
    # Tasks bring our modules along. Their Python need not have them, and this process may have them from anywhere.
    has_ours = python == sys.executable and subprocess.run(
        [python, "-c", f"import {TASK_DAEMON}"], check=False, capture_output=True
    )
    return {"spark.python.daemon.module": TASK_DAEMON} if has_ours and has_ours.returncode == 0 else {}


def later(make: Callable[[], SparkSession], at_once: bool = True) -> SparkSession:
    """A session that is being made: who asks it for anything waits until it is there. Then it may raise what `make`
    did. Without `at_once` nothing is made until somebody asks."""
    made: Future[SparkSession] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody asks
            made.set_exception(error)

    thread = _Once(target=run, daemon=True)
    if at_once:
        thread.begin()
    return cast(SparkSession, _Later(thread, made))


class _Once(Thread):
    """A thread that several may begin."""

    _lock = Lock()

    def begin(self) -> None:
        with self._lock:
            if self.ident is None:
                self.start()
                atexit.register(self._joined)

    def _joined(self) -> None:
        # A job that is refused before Java is there: only then PySpark removes what it has laid down for it.
        with suppress(KeyboardInterrupt):
            self.join(END_S)


class _Later:
    def __init__(self, thread: _Once, made: Future[SparkSession]) -> None:
        self._thread, self._made = thread, made

    def __getattr__(self, name: str) -> object:
        # Attributes of its own are found without this, unless making them failed.
        if name == "_session":
            raise AttributeError(name)
        there: object = getattr(self._session, name)
        return there

    @cached_property
    def _session(self) -> SparkSession:
        self._thread.begin()
        session: Any = self._made.result()
        # To Java that is a matter of each thread.
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        return cast(SparkSession, session)


def kept(table: DataFrame) -> DataFrame:
    """Computed once, when it is first asked for; a lost executor's part of it is computed again."""
    return table.persist(StorageLevel.MEMORY_AND_DISK)


def expect(spark: SparkSession, tasks: int) -> None:
    """Of each shuffle from here on; where `--conf` or a cluster says something else, that."""
    # Planning each stage again, by what the one before brought, takes longer than a small stage does.
    for key, value in zip(PLANNED, (str(tasks), str(tasks > FEW).lower()), strict=True):
        if not spark.sparkContext.getConf().contains(key):
            spark.conf.set(key, value)


def _start_java(settings: dict[str, str]) -> None:
    """As Spark would start it, but silent. Nothing where there is one already."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    # Before the JVM runs: Spark's own level is only there once it has a context. Who has a configuration keeps it.
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ.setdefault("LOG4J_CONFIGURATION_FILE", _log_settings())
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    ours, its = os.pipe()
    Thread(target=_pass_on, args=(ours,), daemon=True).start()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": its})  # type: ignore[no-untyped-call]
    finally:
        os.close(its)
    SparkContext._ensure_initialized(gateway=gateway)


def _log_settings() -> str:
    """Path of the file. Where we are in an archive, a copy of it, for as long as this process runs: Java wants a
    file."""
    kept = ExitStack()
    atexit.register(kept.close)
    return str(kept.enter_context(as_file(files("amqpd_spark").joinpath("log4j2.properties"))))


def _pass_on(end: int) -> None:
    with open(end, errors="replace") as said:
        for line in said:
            if not line.startswith(_OF_NO_USE):
                sys.stderr.write(line)
                sys.stderr.flush()
