"""The jobs by spark-submit, from a wheel that is built here and nowhere installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spark import report_tables
from tests.spark.log import Log
from tests.spark.wheel import built
from tests.spark_cluster.standalone import ROOT, SPARK, Ran, cluster, environment, ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def submit(wheel: Path, folder: Path, master: str, *arguments: str) -> Ran:
    """As docs/audit/cluster.md says it; the checkout is not on the path."""
    folder.mkdir(parents=True, exist_ok=True)
    main = folder / "submit.py"
    main.write_text((ROOT / "spark" / "submit.py").read_text())
    given = environment()
    del given["PYTHONPATH"]
    given["PYSPARK_PYTHON"] = given["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master, *settings, "--py-files", str(wheel)]
    return ran([*command, str(main), *arguments], given, folder)


def test_a_job_is_submitted_to_two_workers(wheel: Path, tmp_path: Path):
    log = Log(tmp_path / "events")
    for at in range(200):
        log.add("routed", at=at, queue=f"q{at % 7}", queue_id=at % 7 + 1, first=at // 7, publication=at + 1)
        log.add("acked", at=at + 0.5, queue=f"q{at % 7}", queue_id=at % 7 + 1, first=at // 7)
    folder = log.write_as_broker(rows_per_file=20)
    with cluster(tmp_path / "cluster") as two:
        where = ("--input", folder, "--output", str(tmp_path / "out"))
        made = submit(wheel, tmp_path / "submitted", two.url, "conservation", *where)
    assert made.code == 0, made.output
    assert "200  messages accepted" in made.output
    assert len(made.executors) == 2


def test_the_page_is_made_from_within_the_wheel(wheel: Path, tmp_path: Path):
    report_tables.conservation(tmp_path / "tables")
    page = tmp_path / "report.html"
    arguments = ("--input", str(tmp_path / "tables"), "--output", str(page))
    made = submit(wheel, tmp_path / "submitted", "local[1]", "report", *arguments)
    assert made.code == 0, made.output
    assert page.read_text().startswith("<!doctype html>")


def test_a_job_runs_from_the_wheel_without_spark_submit(wheel: Path, tmp_path: Path):
    """Java is started with settings that are in the wheel, too."""
    log = Log(tmp_path / "events")
    log.add("routed", queue="q", queue_id=1, publication=1)
    given = {**environment(), "PYTHONPATH": str(wheel)}
    where = ["--input", log.write(), "--output", str(tmp_path / "out"), "--master", "local[1]"]
    made = ran([sys.executable, "-m", "amqpd_spark", "conservation", *where], given, tmp_path)
    assert made.code == 0, made.output
    assert "INFO" not in made.output
    assert "1  messages accepted" in made.output
