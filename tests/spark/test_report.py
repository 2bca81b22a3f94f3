"""The report: its verdict, what it says of tables that are not there, that it needs nothing else, figures as read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark import conservation, report, security, slo, usage
from amqpd_spark.report_page import charts, over_time, words
from amqpd_spark.report_page.tables import ROWS_FEW, ROWS_MAX
from amqpd_spark.windows import marked
from tests.harness.slow import slow
from tests.spark import report_tables
from tests.spark.log import Log


class Page(HTMLParser):
    """`tags` with their attributes; raises AssertionError where an element is not closed."""

    VOID = ("meta", "path", "use", "rect")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = report_tables.everything(tmp_path_factory.mktemp("tables"))
    return report.page(spark, str(folder))[0]


def test_the_verdict_is_first_and_green_when_nothing_is_missing(whole: str):
    accepted, standing = (sum(row[name] for row in report_tables.books()) for name in ("accepted", "standing"))
    became = f"{accepted - standing:,} of {accepted:,} ended, {standing:,} stand (&lt; 1 %)"
    assert f'<h1 class="good">Nothing is missing: {became}</h1>' in whole
    assert "2026-11-16 00:00 to 2026-11-22 23:00 UTC" in whole


def test_the_verdict_is_red_and_lists_what_is_missing(spark: SparkSession, tmp_path: Path):
    report_tables.conservation(tmp_path, missing=2, uncertain=5)
    text, verdicts = report.page(spark, str(tmp_path))
    assert verdicts[0].tone == "bad"
    assert verdicts[0].sentence.startswith("2 messages are missing; ")
    assert "5 messages cannot be accounted for: their events were not recorded" in [
        each.sentence for each in verdicts
    ]
    assert "7:3:4711" in text
    assert "order-1" in text


def test_findings_are_faults_or_doubts_or_neither(spark: SparkSession, tmp_path: Path):
    report_tables.conservation(tmp_path)
    where = {"vhost": "shop", "queue": "q", "queue_id": 7, "epoch": 3, "first": 5, "count": 2, "detail": "why"}
    kinds = ("ended_twice", "gap", "unconfirmed")
    report_tables.write(tmp_path, "conservation/findings", [{"kind": kind, **where} for kind in kinds], "kind")
    text, verdicts = report.page(spark, str(tmp_path))
    said = {each.sentence: each.tone for each in verdicts if each.section == "conservation"}
    assert {"1 finding: ended twice": "bad", "1 finding: gap": "unsure"}.items() <= said.items()
    assert not any("unconfirmed" in sentence for sentence in said)
    assert "7:3:5 (+2)" in text
    assert 'q<span class="where">in shop</span>' in text


@pytest.mark.parametrize(
    ("figures", "tone", "sentence"),
    [
        slow(
            {"accepted": 400_000, "acked": 180_000, "standing": 220_000},
            "unsure",
            "Nothing is missing: 180,000 of 400,000 ended, 220,000 stand (55 %)",
        ),
        (
            {"accepted": 1000, "acked": 901, "standing": 99},
            "good",
            "Nothing is missing: 901 of 1,000 ended, 99 stand (10 %)",
        ),
        ({"accepted": 10, "acked": 9, "standing": 1}, "unsure", "Nothing is missing: 9 of 10 ended, 1 stands (10 %)"),
        slow({"accepted": 10, "acked": 5, "uncertain": 5}, "unsure", "Nothing is missing: 5 of 10 ended"),
        slow({"accepted": 10, "acked": 10}, "good", "Nothing is missing: all 10 ended"),
        slow(
            {"accepted": 4, "acked": 1, "standing": 2, "missing": 1},
            "bad",
            "1 message is missing; 1 of 4 ended, 2 stand (50 %)",
        ),
    ],
)
def test_what_merely_stands_is_in_the_verdict(
    spark: SparkSession, tmp_path: Path, figures: dict[str, int], tone: str, sentence: str
):
    zeros = dict.fromkeys((*report_tables.FATES, *report_tables.DOUBTS), 0)
    row = {"window": report_tables.BEGIN, "vhost": "/", "queue": "q", **zeros, **figures}
    report_tables.write(tmp_path, "conservation/books", [row])
    _, verdicts = report.page(spark, str(tmp_path))
    assert (verdicts[0].tone, verdicts[0].sentence) == (tone, sentence)


def test_a_fault_is_red_and_nothing_is_green_beside_it(spark: SparkSession, tmp_path: Path):
    report_tables.conservation(tmp_path)
    where = {"vhost": "/", "queue": "q", "detail": "why"}
    kinds = ("ended_twice", "log_hole", "returned_from_the_dead", "rows_removed")
    report_tables.write(tmp_path, "conservation/findings", [{"kind": kind, **where} for kind in kinds], "kind")
    _, verdicts = report.page(spark, str(tmp_path))
    assert verdicts[0].tone == "unsure"
    assert [(each.tone, each.sentence) for each in verdicts if each.section == "conservation"][1:] == [
        ("bad", "1 hole in the log: a file is not there"),
        ("bad", "1 message came back after its end was on disk"),
        ("bad", "Rows were removed from 1 file of the log"),
        ("bad", "1 finding: ended twice"),
    ]


def book(at: int, **figures: Any) -> dict[str, Any]:
    """A row of the books of the minute `at`."""
    zeros = dict.fromkeys((*report_tables.FATES, *report_tables.DOUBTS), 0)
    when = report_tables.BEGIN + timedelta(minutes=at)
    return {"window": when, "node": "n1", "vhost": "/", "queue": "q", **zeros, "missing": 0, **figures}


def listed(text: str, caption: str) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of a list."""
    part = text.partition(f"<caption>{caption}</caption>")[2].partition("</table>")[0]
    plain = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in part.split("<tr>")[1:]]
    cells = [[re.sub(r"<[^>]*>", " ", cell).split() for cell in line] for line in plain]
    lines = [[" ".join(cell) for cell in line] for line in cells]
    return lines[0], lines[1:]


def test_zeros_are_dashes_and_columns_of_them_are_left_out(spark: SparkSession, tmp_path: Path):
    one = book(0, accepted=3, acked=3)
    other = book(0, accepted=2, expired=2, queue="r")
    report_tables.write(tmp_path, "conservation/books", [one, other])
    text, _ = report.page(spark, str(tmp_path))
    assert listed(text, "The books of each queue") == (
        ["Queue", "Accepted", "Missing", "Acked", "Expired"],
        [["q", "3", "–", "3", "–"], ["r", "2", "–", "–", "2"]],  # noqa: RUF001
    )


def test_equal_names_are_told_apart_by_virtual_host_and_node(spark: SparkSession, tmp_path: Path):
    other = {"vhost": "shop", "node": "n2"}
    report_tables.write(
        tmp_path, "conservation/books", [book(0, accepted=3, acked=3), book(1, accepted=2, acked=2, **other)]
    )
    text, _ = report.page(spark, str(tmp_path))
    assert [line[0] for line in listed(text, "The books of each queue")[1]] == ["q in / at n1", "q in shop at n2"]


def test_one_usual_virtual_host_and_one_node_are_not_named(spark: SparkSession, tmp_path: Path):
    report_tables.write(tmp_path, "conservation/books", [book(0, accepted=3, acked=3)])
    text, _ = report.page(spark, str(tmp_path))
    assert [line[0] for line in listed(text, "The books of each queue")[1]] == ["q"]


@pytest.mark.parametrize(
    ("length", "step"),
    [
        ("15 minutes", "each 15 minutes"),
        slow("1 minute", "each minute"),
        slow("1 hour", "each hour"),
        slow(None, "each hour"),
    ],
)
def test_the_step_of_the_chart_is_the_tables_window(
    spark: SparkSession, tmp_path: Path, length: str | None, step: str
):
    """Of one burst, too, that begins with an hour; what does not say its window is of an earlier version."""
    made = spark.createDataFrame([book(0, accepted=3, acked=3)])
    (marked(made, length) if length else made).write.parquet(str(tmp_path / "conservation" / "books"))
    text, _ = report.page(spark, str(tmp_path))
    assert f"Messages that came in {step}, " in text


def test_what_stood_is_reckoned_back_from_the_end(spark: SparkSession):
    """Two had entered before the log begins; one of the second minute ended without a word."""
    books = [book(0, accepted=5, acked=5), book(1, accepted=4, acked=2, transient=1, standing=1)]
    moved = [(0, 5, 2), (1, 4, 0), (3, 0, 7)]
    flow = [
        {"window": report_tables.BEGIN + timedelta(minutes=at), "entered": entered, "ended": ended}
        for at, entered, ended in moved
    ]
    table = marked(spark.createDataFrame(books), "1 minute")
    *_, came, stood = over_time.charts(table, spark.createDataFrame(flow))
    # Before: 2 that had entered; after three minutes: one.
    assert [value for _, value in stood.series[0].points] == [5, 8, 8, 1]
    assert [[value for _, value in each.points] for each in came.series] == [[5, 4, 0, 0], [2, 0, 0, 7]]


def test_objectives_without_messages_are_not_called_met(spark: SparkSession, tmp_path: Path):
    row = {"objective": "a", "measure": "errors", "target": 0.9, "share": 1.0, "budget_left": 1.0, "met": True}
    silent = row | {"objective": "b", "share": None, "budget_left": None, "met": None}
    report_tables.write(tmp_path, "slo/objectives", [row, silent])
    _, verdicts = report.page(spark, str(tmp_path))
    assert "1 of 2 objectives met; no messages for the other 1" in [each.sentence for each in verdicts]


def test_a_page_with_everything_has_a_part_for_each_table(whole: str):
    captions = re.findall(r"<caption>(.*?)</caption>", whole)
    assert captions == [
        *("The books of each queue", "Objectives", "Budgets that burnt too fast", "The slowest ways"),
        *("Top talkers", "Busiest queues", "Oldest messages", "Idle queues", "Fan-out", "Findings", "Failed log-ins"),
    ]
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", whole) == [
        *("What became of messages", "Entered and ended", "Standing", "Burn rate", "Latency", "Published"),
    ]
    assert "1 of 3 objectives missed: delivered within 100 ms" in whole


def test_the_page_needs_nothing_else(whole: str):
    page = Page(whole)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert all(value.startswith("#") for name in ("href", "src", "xlink:href") for value in page.values(name))
    assert "url(http" not in whole
    assert "@import" not in whole


def test_names_in_the_page_are_there_once_and_links_lead_to_them(whole: str):
    names = Page(whole).values("id")
    assert len(names) == len(set(names))
    assert {value.removeprefix("#") for value in Page(whole).values("href")} <= set(names)


def test_each_chart_is_told_to_who_does_not_see_it(whole: str):
    drawings = [attributes for tag, attributes in Page(whole).tags if attributes.get("role") == "img"]
    assert len(drawings) == 6
    assert all(attributes["aria-label"] for attributes in drawings)


def test_a_job_that_did_not_run_is_named_with_its_command(spark: SparkSession, tmp_path: Path):
    report_tables.security(tmp_path)
    text, verdicts = report.page(spark, str(tmp_path))
    assert verdicts[0].tone == "unknown"
    for job in ("conservation", "slo", "usage"):
        assert f"amqpd-spark {job} --input AUDIT_LOG --output {tmp_path}/{job}" in text
    assert "amqpd-spark security" not in text


def test_a_table_without_a_column_that_is_needed_is_left_out_with_a_note(spark: SparkSession, tmp_path: Path):
    report_tables.write(tmp_path, "slo/objectives", [{"name": "fast", "met": True}])
    text, _ = report.page(spark, str(tmp_path))
    assert "slo/objectives has no column measure, target, share, budget_left." in text


def test_the_objectives_of_a_newer_job_have_other_names_and_are_read_too(spark: SparkSession, tmp_path: Path):
    when = report_tables.BEGIN
    row = {"objective": "fast", "measure": "errors", "target": 0.9, "share": 0.8, "budget_left": -1.0, "met": False}
    breach = {"objective": "fast", "alert": "slow", "from": when, "until": when + timedelta(hours=1), "peak": 7.5}
    report_tables.write(tmp_path, "slo/objectives", [row])
    report_tables.write(tmp_path, "slo/breaches", [breach])
    text, _ = report.page(spark, str(tmp_path))
    assert "1 of 1 objectives missed: fast" in text
    assert "spent 2.0 times" in text
    assert "Budgets that burnt too fast" in text


def test_a_list_says_how_much_of_it_is_not_shown(spark: SparkSession, tmp_path: Path):
    begin = report_tables.BEGIN
    row = {"objective": "fast", "measure": "errors", "target": 0.9, "share": 0.8, "budget_left": -1.0, "met": False}
    breaches: list[dict[str, Any]] = [
        {"objective": "fast", "alert": "slow", "from": at, "until": at + timedelta(minutes=5), "peak": 7.5}
        for at in (begin + timedelta(hours=hour) for hour in range(ROWS_MAX + 7))
    ]
    old = [
        {"vhost": "/", "queue": f"q{number}", "standing": 1, "oldest_age_s": 60.0, "oldest_is_at_least": False}
        for number in range(ROWS_FEW + 3)
    ]
    report_tables.write(tmp_path, "slo/objectives", [row | {"objective": f"fast {number}"} for number in range(60)])
    report_tables.write(tmp_path, "slo/breaches", breaches)
    report_tables.write(tmp_path, "usage/queue_age", old)
    text, _ = report.page(spark, str(tmp_path))
    for more in (7, 3):
        assert f"{more} more are in the table." in text
    assert "60 of 60 objectives missed" in text


def test_what_others_chose_cannot_become_markup(spark: SparkSession, tmp_path: Path):
    name = "<script>alert(1)</script>"
    when = report_tables.BEGIN
    row: dict[str, Any] = {"window": when, "vhost": "/", "queue": name, "accepted": 1, "acked": 1, "missing": 0}
    report_tables.write(tmp_path, "conservation/books", [row])
    text, _ = report.page(spark, str(tmp_path), title="<b>")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<b>" not in text


def test_the_command_writes_the_page_and_says_the_verdicts(spark: SparkSession, tmp_path: Path):
    report_tables.security(tmp_path)
    file = tmp_path / "report.html"
    arguments = ["--input", str(tmp_path), "--output", str(file)]
    said = CliRunner().invoke(report.command, arguments, catch_exceptions=False)
    assert said.exit_code == 0
    assert "1 grave security finding" in said.output
    assert file.read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_a_log_without_messages_makes_a_page_that_says_so(spark: SparkSession, log: Log, tmp_path: Path):
    """That of a broker as it is installed: acts, and no messages."""
    for event in ("started", "connection_opened", "login_failed", "connection_closed"):
        log.add(event, user="alice", address="192.0.2.1", connection="c")
    events, tables = log.write(), tmp_path / "tables"
    for job in (conservation, slo, security, usage):
        arguments = ["--input", events, "--output", str(tables / job.__name__.rpartition(".")[2])]
        said = CliRunner().invoke(job.command, arguments, catch_exceptions=False)
        assert said.exit_code == 0
        if job is conservation:
            assert "No messages are in this log" in said.output
            assert "Nothing is missing" not in said.output
    text, verdicts = report.page(spark, str(tables))
    assert "No messages were recorded" in verdicts[0].sentence
    assert "Nothing is missing" not in text
    Page(text)


def test_the_same_points_are_the_same_drawing():
    points = [(datetime(2026, 11, 22, hour, tzinfo=UTC), 1.5 * hour + 1) for hour in range(5)]
    one, two = (charts.lines("a", "b", [charts.Series("s", points)], words.milliseconds, log=True) for _ in range(2))
    assert one == two
    assert "var(--series-1)" in one.wide
    assert not re.search("#a1b2", one.wide)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (words.number, 2_639_213, "2,639,213"),
        (words.number, None, words.NOTHING),
        (words.percent, 0.9997, "99.97 %"),
        (words.percent, 0.99999, "99.999 %"),
        (words.percent, 1.0, "100.0 %"),
        (words.percent, 0.5, "50.0 %"),
        (words.milliseconds, 0.25, "250 µs"),
        (words.milliseconds, 12.345, "12.3 ms"),
        (words.milliseconds, 1500, "1.5 s"),
        (words.seconds, 90, "1.5 min"),
        (words.seconds, 7 * 86400, "7.0 days"),
        (words.octets, 999, "999 B"),
        (words.octets, 3.2e9, "3.2 GB"),
        (words.short, 14400, "14,400"),
    ],
)
def test_figures_are_as_people_read_them(write: Any, value: float | None, text: str):
    assert write(value) == text


def test_a_period_of_one_day_says_the_day_once():
    begin = datetime(2026, 11, 22, 5, tzinfo=UTC)
    assert words.period(begin, begin + timedelta(hours=3)) == "2026-11-22, 05:00 to 08:00 UTC"
    assert words.period(begin, begin) == "from 2026-11-22 05:00 UTC"


@pytest.mark.parametrize("minutes", [1, 2, 3, 150, 170, 2 * 1440 + 100, 85 * 1440])
def test_times_are_labelled_whatever_the_length(minutes: int):
    """matplotlib warns, which fails here, where it finds no distance of labels that fits."""
    begin = datetime(2026, 11, 22, 5, 7, tzinfo=UTC)
    points = [(begin, 1.0), (begin + timedelta(minutes=minutes), 2.0)]
    assert charts.lines("t", "", [charts.Series("a", points)], str).narrow.count("<text") > 3


def test_one_minute_alone_is_not_shown_among_years():
    alone = charts.Series("a", [(datetime(2026, 11, 22, 5, 7, tzinfo=UTC), 3.0)], 0)
    drawn = charts.lines("t", "", [alone], str).wide
    ticks = re.findall(r">(\d\d:\d\d)<", drawn)
    assert len(ticks) > 2
    assert {tick[:2] for tick in ticks} == {"05"}
    assert "2027" not in drawn
