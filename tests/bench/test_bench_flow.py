"""What several publishers report is put together, and what stands beside figures of the disk."""

from __future__ import annotations

from pathlib import Path

from bench.fdatasync import fdatasync_ms
from bench.report import summarise
from bench.scenarios import Figure
from bench.scenarios.flow import together
from tests.bench.results_files import outcome


def test_reports_of_several_publishers_are_summed() -> None:
    one = {"published": 10, "confirmed": 8, "confirm_frames": 2}
    other = {"published": 30, "confirmed": 30, "confirm_frames": 3}
    assert together([one]) is one
    assert together([one, other]) == {
        "published": 40,
        "confirmed": 38,
        "confirm_frames": 5,
        "streams": {"0": 10, "1": 30},
    }
    windows = [
        {"window": {"seconds": 2.0, "count": 10, "cpu_s": 0.5}},
        {"window": {"seconds": 3.0, "count": 20, "cpu_s": 0.25}},
    ]
    whole = together([one | windows[0], other | windows[1]])
    assert whole["window"] == {"seconds": 2.5, "count": 30, "cpu_s": 0.75}


def test_an_fdatasync_takes_some_time_and_leaves_nothing(tmp_path: Path) -> None:
    found = fdatasync_ms(str(tmp_path), 0.01)
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_compared_has_no_ratio() -> None:
    figures = [Figure("rate", 2.0, "msg/s"), Figure("fdatasync p50", 0.2, "ms", False, compared=False)]
    runs = [outcome("durable-closed-1", broker, 1, figures) for broker in ("amqpd", "rabbitmq")]
    ratios = {(row.broker, row.figure): row.ratio for row in summarise(runs, "rabbitmq")}
    assert ratios["amqpd", "rate"] == 1.0
    assert ratios["amqpd", "fdatasync p50"] is None
