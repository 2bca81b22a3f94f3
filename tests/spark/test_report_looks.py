"""The report in a real browser: a page of one hour, of one day and of one month, on a phone and on a screen, in light
and in dark; and quickly, of tables that no job made.

What is verified: it is not wider than its window; a wide list shows that it scrolls, and its first column stays; axe
finds nothing serious, contrast among it. How it looks is in files, in a temporary directory; `AMQPD_TEST_SCREENSHOTS`
names another one, to look at them. Skipped where there is no Chromium and none can be installed.
The jobs run in a process of their own: the Spark of the tests is made for ten rows. A month takes minutes:
`AMQPD_TEST_SPARK_TIMEOUT_S=1800` on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amqpd_spark import report
from tests.admin.browsing import Axe, launched
from tests.harness.slow import slow
from tests.spark import report_tables

PERIODS = {"hour": 1, "day": 24, "month": 720}
"""hours"""
PHONE, SCREEN = (390, 844), (1280, 800)
OBJECTIVES = """
[[objective]]
name = "orders are delivered within a second"
measure = "publish_to_deliver"
threshold_ms = 1000
target = 0.99
window = "30d"

[[objective]]
name = "confirmed within a millisecond"
measure = "publish_to_confirm"
threshold_ms = 1
target = 0.999
window = "30d"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wanted = os.environ.get("AMQPD_TEST_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def of_jobs(folder: Path, hours: int) -> Path:
    """The page of all jobs on made-up traffic with faults in it."""
    log, tables, objectives = folder / "events", folder / "tables", folder / "slo.toml"
    objectives.write_text(OBJECTIVES)
    size = (
        "--events",
        "8000",
        "--queues",
        "12",
        "--hours",
        hours,
        "--incarnations",
        "3",
        "--plant",
        "lost,duplicate",
    )
    assert run("generate", "--output", log, *size) == 0
    # What was planted is found.
    assert run("all", "--input", log, "--output", tables, "--objectives", objectives, "--title", "Shop") == 1
    return tables / "report.html"


def run(*arguments: object) -> int:
    command = [sys.executable, "-m", "amqpd_spark", *map(str, arguments)]
    return subprocess.run(command, check=False).returncode


def of_tables(spark: SparkSession, folder: Path) -> Path:
    page, _ = report.page(spark, str(report_tables.everything(folder, missing=3)))
    (folder / "report.html").write_text(page)
    return folder / "report.html"


@pytest.fixture(scope="module")
def pages() -> dict[str, Path]:
    """Filled as periods are asked for."""
    return {}


@pytest.mark.parametrize(
    ("period", "window", "colours"),
    [
        ("tables", PHONE, "light"),
        *(
            slow(period, window, colours)
            for period in PERIODS
            for window in (PHONE, SCREEN)
            for colours in ("light", "dark")
        ),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else value,
)
def test_the_page_fits_scrolls_visibly_and_can_be_read(
    browser: Any,
    shots: Path,
    spark: SparkSession,
    pages: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    period: str,
    window: tuple[int, int],
    colours: str,
):
    if period not in pages:
        folder = tmp_path_factory.mktemp(period)
        pages[period] = of_jobs(folder, PERIODS[period]) if period in PERIODS else of_tables(spark, folder)
    width, height = window
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(pages[period].as_uri())
    page.screenshot(path=shots / f"report-{width}-{colours}-{period}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    axe = Axe(page)
    axe.look(period)
    wide = [
        each for each in page.locator(".table").all() if each.evaluate("each => each.scrollWidth > each.clientWidth")
    ]
    if window == PHONE:
        assert wide, "the books of each queue have more columns than a phone is wide"
    for each in wide:
        assert "gradient" in each.evaluate("each => getComputedStyle(each).backgroundImage")
        each.evaluate("each => { each.scrollLeft = each.scrollWidth }")
        edge = each.evaluate("each => each.getBoundingClientRect().left")
        moved = "cells => cells.map(cell => cell.getBoundingClientRect().left)"
        pinned = each.locator("tr > :first-child").evaluate_all(moved)
        others = each.locator("tr > :nth-child(2)").evaluate_all(moved)
        assert all(abs(left - edge) < 1 for left in pinned)
        assert all(left < right for left, right in zip(others, pinned_rights(each), strict=True))
    assert errors == []
    context.close()
    assert axe.found == {}


def pinned_rights(listing: Any) -> list[float]:
    """Where the pinned cells end: what is beside them has moved below them."""
    return listing.locator("tr > :first-child").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().right)"
    )
