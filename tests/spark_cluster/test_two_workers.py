"""The jobs on a standalone cluster of two workers: tasks on both, the tables of a run on one machine, and the same
with a worker killed in the middle.

What is verified: conservation and slo, on the same made-up log with planted faults. Slow: `make spark-cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.spark_cluster.standalone import Cluster, Ran, cluster, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EVENTS, STRETCH = 1_000_000, 4
TABLES = {
    "conservation": ("books", "flow", "findings"),
    "slo": ("latency", "latency_total", "histogram", "rates"),
}
CODES = {"conservation": 1, "slo": 0}
"""exit codes: there are planted faults"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def log(folder: Path) -> str:
    size = (
        "--events",
        str(EVENTS),
        "--stretch",
        str(STRETCH),
        "--hours",
        "3",
        "--plant",
        "lost,duplicate,ghost,late",
    )
    made = job(folder / "generate", "generate", "--output", str(folder / "log"), "--master", "local[2]", *size)
    assert made.code == 0, made.output
    return str(folder / "log")


@pytest.fixture(scope="module")
def local(folder: Path, log: str) -> dict[str, dict[str, Any]]:
    """Job -> its tables, of a run on one machine."""
    found = {}
    for name in TABLES:
        output = folder / "local" / name
        made = job(folder / f"events-{name}", name, "--input", log, "--output", str(output), "--master", "local[2]")
        assert made.code == CODES[name], made.output
        found[name] = tables(output, name)
    return found


def tables(output: Path, name: str) -> dict[str, Any]:
    """Table -> its rows, in an order."""
    found = {}
    for table in TABLES[name]:
        rows = ds.dataset(output / table, format="parquet", partitioning="hive").to_table().to_pylist()
        found[table] = sorted(rows, key=lambda row: sorted((key, str(value)) for key, value in row.items()))
    return found


def on_cluster(two: Cluster, name: str, log: str, folder: Path, **more: Any) -> Ran:
    where = ("--input", log, "--output", str(folder / name), "--master", two.url)
    made = job(folder / f"events-{name}", name, *where, **more)
    print(f"{name} on two workers: {made.seconds:.1f} s, tasks {made.executors}")
    return made


@pytest.mark.parametrize("name", list(TABLES))
def test_both_workers_have_tasks_and_the_tables_are_those_of_one_machine(
    two: Cluster, local: dict[str, dict[str, Any]], log: str, tmp_path: Path, name: str
):
    made = on_cluster(two, name, log, tmp_path)
    assert made.code == CODES[name], made.output
    assert len(made.executors) == 2
    assert min(made.executors.values()) > 1
    assert tables(tmp_path / name, name) == local[name]


@pytest.mark.parametrize("name", list(TABLES))
def test_a_worker_is_killed_in_the_middle_and_the_result_stands(
    two: Cluster, local: dict[str, dict[str, Any]], log: str, tmp_path: Path, name: str
):
    quiet = on_cluster(two, name, log, tmp_path / "quiet")
    heaviest = quiet.heaviest

    def begun(events: list[dict[str, Any]]) -> bool:
        """Of the heaviest stage, as it was without a fault, or one after it."""
        stages = [each["Stage Info"]["Stage ID"] for each in events if each["Event"] == "SparkListenerStageSubmitted"]
        return max(stages, default=-1) >= heaviest

    made = on_cluster(two, name, log, tmp_path, at=begun, then=two.workers[0].kill)
    assert made.lost, "the worker that was killed had an executor"
    assert made.code == CODES[name], made.output
    assert tables(tmp_path / name, name) == local[name]
