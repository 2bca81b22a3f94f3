"""A Spark that starts fast, once for each worker of the tests, and again after a test that hung.

PySpark cannot be interrupted: an exception that a signal raises in a call leaves the link to the JVM in the middle of
an answer, and whoever speaks on it next waits for ever. So a test that takes too long has its JVM killed: every call
that waits for it fails, the test with it, and the next test has another JVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from amqpd_spark.session import COMMON, LOCAL, of_tasks
from tests.spark.log import Log

# What is fast with some rows: no optimisation by the JVM's second compiler, one task for each stage, and no code
# that is generated and compiled for a query which sees ten rows (it is a third of all time).
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans as text, for a page that nobody has open.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "10",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn300m -Xshare:auto",
}

# Else Spark takes the first python3 that it finds for what runs beside the JVM.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# For what hangs; a machine may be many times slower than ours.
TIMEOUT_S = float(os.environ.get("AMQPD_TEST_SPARK_TIMEOUT_S", "600"))
# What hangs elsewhere than in the JVM is found by pytest's own timeout, later.
PYTEST_TIMEOUT_S = TIMEOUT_S + 120

BROKEN = pytest.StashKey[bool]()
"""of the session: its JVM was killed, or is to be"""
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves the sockets that results come through to the garbage collector.
    mark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if "tests/spark/" in item.nodeid:
            item.add_marker(mark)
        if uses_spark(item):
            item.add_marker(pytest.mark.timeout(PYTEST_TIMEOUT_S))


def usable(session: SparkSession) -> bool:
    """The JVM answers, and runs nothing that a test has left there."""
    gateway = SparkContext._gateway
    if gateway is None or gateway.proc.poll() is not None:
        return False
    try:
        stopped = bool(session.sparkContext._jsc.sc().isStopped())
        return not stopped and not session.sparkContext.statusTracker().getActiveJobsIds()
    except (Py4JError, OSError):
        return False


def kill() -> None:
    """End the JVM without asking it, and make PySpark forget it: the next session starts another one."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()
        gateway.proc.stdin.close()
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not uses_spark(item):
        return (yield)
    watchdog = Timer(TIMEOUT_S, hung, (item,))
    watchdog.daemon = True
    watchdog.start()
    try:
        return (yield)
    finally:
        watchdog.cancel()


def hung(item: pytest.Item) -> None:
    item.session.stash[BROKEN] = True
    gateway = SparkContext._gateway
    if gateway is not None:
        print(f"{item.nodeid} took more than {TIMEOUT_S} s: its JVM is killed", file=sys.stderr)
        gateway.proc.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any) -> Iterator[None]:
    """What depends on a session that is of no use any more ends with it, and is made again for the next test that
    wants it."""
    result = yield
    if uses_spark(item) and item.stash.get(FAILED, False):
        definition = item._request._arg2fixturedefs["spark"][-1]
        session = definition.cached_result and definition.cached_result[0]
        if session is not None and (item.session.stash.get(BROKEN, False) or not usable(session)):
            item.session.stash[BROKEN] = True
            definition.finish(item._request)
    return result


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").appName("tests")
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    for key, value in (COMMON | LOCAL | of_tasks() | SMALL | warehouse).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    if request.session.stash.get(BROKEN, False):
        kill()
        request.session.stash[BROKEN] = False
    else:
        session.stop()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "events")
