"""A Spark that starts fast, once for each worker of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amqpd_spark.session import COMMON, LOCAL
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves the sockets that results come through to the garbage collector.
    mark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if "tests/spark/" in item.nodeid:
            item.add_marker(mark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[1]").appName("tests")
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    for key, value in (COMMON | LOCAL | SMALL | warehouse).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "events")
