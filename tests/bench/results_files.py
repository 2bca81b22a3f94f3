"""Results files as `python -m bench --json` writes them, of figures that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.report import Outcome, as_json
from bench.scenarios import Figure, Result

RATES = {
    "stream": {"amqpd": 300.0, "amqpd-python": 200.0, "rabbitmq": 10.0},
    "large-64k": {"amqpd": 8.0, "amqpd-python": 5.0, "rabbitmq": 10.0},
}


def outcome(scenario: str, broker: str, round_: int, figures: list[Figure]) -> Outcome:
    return Outcome(scenario, broker, round_, Result(figures, {"publish": 0.1, "consume": 0.2}, 1e6, 0.9, 1e5, 80.0))


def outcomes() -> list[Outcome]:
    """Three rounds: the second is the median, the others 10 % below and above it."""
    found = []
    for round_, factor in ((1, 0.9), (2, 1.0), (3, 1.1)):
        for scenario, by_broker in RATES.items():
            for broker, rate in by_broker.items():
                found.append(outcome(scenario, broker, round_, [Figure("rate", rate * factor, "msg/s")]))
        for broker, ms in (("amqpd", 1.0), ("rabbitmq", 4.0)):
            names = ("confirm p50", "confirm p99", "confirm p99.9", "delivery p50", "delivery p99")
            figures = [Figure(name, ms * factor, "ms", False) for name in names]
            found.append(outcome("paced-5k", broker, round_, figures))
    found.append(Outcome("paced-5k", "amqpd-python", 1, error="BenchError: 5000/s was not kept"))
    return found


def write_results(path: Path, found: list[Outcome] | None = None, **about: Any) -> Path:
    brokers = [
        {"name": "amqpd", "version": "0.1.0 (kernel: cython)"},
        {"name": "amqpd-python", "version": "0.1.0 (kernel: python)"},
        {"name": "rabbitmq", "version": "3.10.8"},
    ]
    run = {
        "at": "2026-01-02T03:04:05+00:00",
        "cores": 2,
        "load_average_1min": 0.5,
        "machine": "x86_64",
        "system": "Linux 6.1",
        "python": "3.11.2",
        "data_file_system": "ext4",
        "seconds": 5.0,
        "warmup_s": 1.0,
        "rounds": 3,
        "scale": 1.0,
        "brokers": brokers,
    }
    path.write_text(json.dumps(as_json(outcomes() if found is None else found, "rabbitmq", run | about)))
    return path
