"""PerfTest's output becomes figures; PerfTest itself is not run here: it needs Java and a Maven repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import perf_test
from bench.errors import BenchError
from bench.perf_test import RUNS, main, read, scenario
from bench.results import ORDER, SHOWN
from bench.scenarios import SCENARIOS, Setting

HEAD = (
    "id,time (s),published (msg/s),returned (msg/s),confirmed (msg/s),nacked (msg/s),received (msg/s),"
    "min consumer latency (µs),median consumer latency (µs),75th p. consumer latency (µs),"
    "95th p. consumer latency (µs),99th p. consumer latency (µs),min confirm latency (µs),"
    "median confirm latency (µs),75th p. confirm latency (µs),95th p. confirm latency (µs),"
    "99th p. confirm latency (µs)"
)


def output(*rows: str) -> str:
    return "\n".join([HEAD, *rows]) + "\n"


CONFIRMED = output(
    "t,1.0,100,,90,0,80,1,2,3,4,5,6,9000,8,9,90000",
    "t,2.0,1000,,1000,0,990,1,2,3,4,5,6,500,8,9,4000",
    "t,3.0,1100,,1100,0,1090,1,2,3,4,5,6,600,8,9,5000",
    "t,4.0,1200,,1200,0,1190,1,2,3,4,5,6,700,8,9,6000",
)


def test_the_warm_up_is_left_out_and_the_rest_is_averaged() -> None:
    figures, received = read(CONFIRMED, 1.0, paced=False)
    values = {figure.name: figure.value for figure in figures}
    assert values["rate"] == pytest.approx(1090)
    assert (values["confirm p50"], values["confirm p99"]) == (0.6, 5.0)
    assert values["received of published"] == pytest.approx(100 * 1090 / 1100)
    assert received == 80 + 990 + 1090 + 1190
    assert [figure.name for figure in figures if figure.compared] == ["rate", "confirm p50", "confirm p99"]


def test_a_rate_that_was_given_is_not_compared() -> None:
    figures, _ = read(CONFIRMED, 1.0, paced=True)
    assert [figure.name for figure in figures if figure.compared] == ["confirm p50", "confirm p99"]


def test_without_confirms_there_are_no_latencies_of_them() -> None:
    figures, _ = read(output("t,1.0,100,,,,80,1,2,3,4,5,,,,,", "t,2.0,200,,,,190,1,2,3,4,5,,,,,"), 1.0, paced=False)
    assert [(figure.name, figure.value) for figure in figures] == [("rate", 190), ("received of published", 95)]


@pytest.mark.parametrize(
    "text",
    ["", HEAD, output("t,1.0,100,,,,0,1,2,3,4,5,,,,,"), output("t,1.0,100,,100,0,100,1,2,3,4,5,,,,,")],
    ids=["empty", "no interval", "nothing received", "confirms without latencies"],
)
def test_output_that_says_nothing_is_an_error(text: str) -> None:
    with pytest.raises(BenchError, match="PerfTest"):
        read(text, 0.0, paced=False)


def test_what_is_shown_names_runs_and_scenarios_that_exist() -> None:
    assert set(SHOWN) <= set(ORDER)
    assert set(ORDER) == {*SCENARIOS, *RUNS}
    assert len(ORDER) == len(set(ORDER))


def test_a_run_reads_what_the_program_wrote(broker_url: str, tmp_path: Path) -> None:
    """The program is one that takes PerfTest's arguments; it must have been told the broker's address."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "options = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        f"assert options['-h'] == {broker_url.removesuffix('/')!r}, options\n"
        f"open(options['-o'], 'w').write({CONFIRMED!r})\n"
    )
    run = scenario([sys.executable, str(program)], "perf-test-1x1-c1")
    result = run.run(Setting(broker_url, None, warmup_s=1.0, seconds=3.0))
    assert result.figures[0].value == pytest.approx(1090)
    assert result.counts["received"] == 3350


def test_a_program_that_fails_is_an_error_in_its_words(broker_url: str) -> None:
    run = scenario([sys.executable, "-c", "raise SystemExit('no such host')"], "perf-test-1x1-c1")
    with pytest.raises(BenchError, match="PerfTest failed: no such host"):
        run.run(Setting(broker_url, None, warmup_s=1.0, seconds=3.0))


def test_without_java_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(perf_test.shutil, "which", lambda name: None)
    assert main(["--amqpd"]) == 2
    assert "PerfTest needs java and mvn" in capsys.readouterr().err
