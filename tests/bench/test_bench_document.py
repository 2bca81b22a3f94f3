"""Results read back, and their figures in documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.document import BLOCKS, SHORT, fill, main
from bench.errors import BenchError
from bench.report import as_json
from bench.results import ORDER, Results, load
from bench.scenarios import SCENARIOS, Figure
from tests.bench.results_files import outcome, write_results

LIMIT = {
    "name": "plain-100",
    "scenario": "stream",
    "body_bytes": 100,
    "message_bytes": 161,
    "tls": False,
    "messages_per_s": 1000.0,
    "mb_per_s": 0.161,
    "relay_cpu": 0.98,
    "messages_per_relay_cpu_s": 1020.0,
}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return load([write_results(tmp_path / "results.json")])


def block(name: str, inside: str = "an old figure: 999x") -> str:
    return f"before\n<!-- bench:{name} -->\n{inside}\n<!-- bench:end -->\nafter\n"


def test_ratios_have_a_spread_in_both_directions(results: Results) -> None:
    (rate, *_) = results.of("stream")
    assert (rate.ratio, rate.ratio_lowest, rate.ratio_highest) == pytest.approx((30.0, 27.0, 33.0))
    latency = results.of("paced-5k")[0]
    assert (latency.ratio, latency.ratio_lowest, latency.ratio_highest) == pytest.approx((4.0, 4 / 1.1, 4 / 0.9))


def test_the_last_file_with_a_scenario_counts(tmp_path: Path) -> None:
    long = [outcome("backlog-5m", broker, 1, [Figure("rate", 7.0, "msg/s")]) for broker in ("amqpd", "rabbitmq")]
    again = [outcome("stream", broker, 1, [Figure("rate", 5.0, "msg/s")]) for broker in ("amqpd", "rabbitmq")]
    first = write_results(tmp_path / "one.json")
    second = write_results(tmp_path / "two.json", long + again, rounds=1)
    both = load([first, second])
    assert [row.median for row in both.of("stream")] == [5.0, 5.0]
    assert both.of("large-64k")
    assert [run["rounds"] for run in both.runs] == [3, 1]
    order = list(dict.fromkeys(row.scenario for row in both.rows))
    assert order == sorted(order, key=ORDER.index)


def test_a_file_of_amqpd_alone_is_shown_without_ratios_and_two_baselines_are_refused(tmp_path: Path) -> None:
    first = write_results(tmp_path / "one.json")
    alone = [outcome("small-20m", "amqpd", 1, [Figure("fill", 7.0, "msg/s")])]
    second, third = tmp_path / "two.json", tmp_path / "three.json"
    about = json.loads(first.read_text())["about"]
    second.write_text(json.dumps(as_json(alone, "amqpd", about)))
    [row] = load([first, second]).of("small-20m")
    assert (row.median, row.ratio) == (7.0, None)
    both = [outcome("stream", broker, 1, [Figure("rate", 5.0, "msg/s")]) for broker in ("amqpd", "rabbitmq")]
    third.write_text(json.dumps(as_json(both, "amqpd", about)))
    with pytest.raises(BenchError, match="several baselines: rabbitmq, amqpd"):
        load([first, third])


def test_files_that_are_no_results_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    for text in ("[]", "{}", "no JSON"):
        wrong.write_text(text)
        with pytest.raises(BenchError, match=r"wrong\.json"):
            load([wrong])


def test_a_block_is_written_anew_and_the_rest_kept(results: Results) -> None:
    text = fill(block("table"), results, [])
    assert text.startswith("before\n<!-- bench:table -->\n")
    assert text.endswith("<!-- bench:end -->\nafter\n")
    assert "999x" not in text
    assert "| `stream` | rate, msg/s | 300 | 200 | 10 | 30.0x | 20.0x | 12x |" in text
    assert "| `paced-5k` | confirm p99, ms | 1 |  | 4 | 4.00x |  | 1x |" in text
    assert fill(text, results, []) == text


def test_what_is_below_is_named(results: Results) -> None:
    text = fill(block("below"), results, [])
    assert "Below RabbitMQ: amqpd in `large-64k` (rate) 0.80x, amqpd-python in `large-64k` (rate) 0.50x." in text
    assert "Failed: paced-5k on amqpd-python, round 1: BenchError: 5000/s was not kept" in text


def test_kernels_are_told(results: Results) -> None:
    text = fill(block("machine"), results, [])
    assert "amqpd 0.1.0 (kernel: cython), amqpd-python 0.1.0 (kernel: python), rabbitmq 3.10.8" in text


def test_a_limit_stands_beside_what_it_bounds(results: Results) -> None:
    text = fill(block("limits"), results, [LIMIT])
    assert "| plain-100 | 1,000 | 0.161 | 98% | 1,020 | `stream` | 300 | 30% | 100x |" in text


@pytest.mark.parametrize("name", ["churn", "limits"])
def test_what_was_not_measured_is_said_to_be_so(results: Results, name: str) -> None:
    assert "Not measured in this run." in fill(block(name), results, [])


@pytest.mark.parametrize("name", [*BLOCKS, "stream", "paced-5k"])
def test_equal_results_give_equal_text(results: Results, name: str) -> None:
    once = fill(block(name), results, [LIMIT])
    assert fill(once, results, [LIMIT]) == once
    assert "999x" not in once


def test_a_block_that_nobody_knows_is_an_error(results: Results) -> None:
    with pytest.raises(BenchError, match="no block is called tabel"):
        fill(block("tabel"), results, [])
    with pytest.raises(BenchError, match="has no end"):
        fill("<!-- bench:table -->\n" + block("short"), results, [])


def test_tables_lead_with_what_applications_do(tmp_path: Path) -> None:
    names = ["large-64k", "perf-test-1x1-c1", "durable-closed-1-stored", "mixed"]
    found = [
        outcome(name, broker, 1, [Figure("rate", 7.0, "msg/s")]) for name in names for broker in ("a", "rabbitmq")
    ]
    text = fill(block("short"), load([write_results(tmp_path / "results.json", found)]), [])
    rows = [line.split("`")[1] for line in text.splitlines() if "msg/s" in line]
    assert rows == ["mixed", "durable-closed-1-stored", "perf-test-1x1-c1", "large-64k"]


def test_the_readme_has_at_most_ten_figures_and_each_is_shown_of_its_scenario() -> None:
    assert len(SHORT) <= 10
    assert {name for name, _ in SHORT} <= set(ORDER)
    text = (Path(__file__).parents[2] / "README.md").read_text()
    rows = [line for line in text.partition("<!-- bench:short -->")[2].splitlines() if "(`" in line]
    assert [row.split("`")[1] for row in rows] == [name for name, _ in SHORT]
    assert all(row.startswith(f"| {said} (`") for row, said in zip(rows, SHORT.values(), strict=True))


def test_documents_are_written_or_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_results(tmp_path / "results.json")
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(block("short"))
    bad.write_text(block("nothing"))
    assert main([str(file), "--into", str(good), "--into", str(bad)]) == 1
    assert "999x" in good.read_text()
    assert main([str(file), "--into", str(good)]) == 0
    assert "| Bodies of 64 kB, confirmed (`large-64k`), msg/s | 10 | 8 | 0.80x |" in good.read_text()
    bad.write_text("no block\n")
    assert main([str(file), "--into", str(bad)]) == 1
    assert "has no block" in capsys.readouterr().err


def test_the_projects_own_document_has_a_block_for_every_scenario(results: Results) -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    fill(text, results, [])
    # Those that take long, or need a cluster, are documented where they were asked for.
    extra = {name for name, scenario in SCENARIOS.items() if scenario.takes_long or scenario.needs_cluster}
    due = [name for name in ORDER if name not in extra]
    missing = [name for name in [*due, *BLOCKS] if name != "short" and f"<!-- bench:{name} -->" not in text]
    assert not missing
