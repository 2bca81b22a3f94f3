"""What each test's outcome was, on which broker: kept in `results/`, for the table.

What comes in: pytest's reports, in the process that all workers report to. What goes out: `results/<broker>.json`:
{"broker": NAME, "version": TEXT, "outcomes": {TEST ID: "passed" | "xfailed" | "failed" | "skipped"}}.
Rules: a run of a part replaces only the tests that it ran, with all their cases, unless the version is another.
Not here: the README's table (`table.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

RESULTS = Path(__file__).parent / "results"
# Under this name a test reports which broker it spoke to.
PROPERTY = "conformance_broker"


@dataclass(slots=True)
class Results:
    broker: str
    version: str
    outcomes: dict[str, str] = field(default_factory=dict)


class Recorder:
    """A pytest plugin: collects while it runs, writes at the end."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        broker = dict(report.user_properties).get(PROPERTY)
        if not isinstance(broker, (list, tuple)):
            return
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else str(report.outcome)
        name, version = broker
        outcomes = self._found.setdefault((str(name), str(version)), {})
        # A test is its call, unless setup or teardown went wrong or skipped it.
        if report.when == "call" or outcome != "passed":
            outcomes[report.nodeid] = outcome

    def pytest_sessionfinish(self) -> None:
        for (name, version), outcomes in self._found.items():
            before = read_results(name)
            kept = before.outcomes if before is not None and before.version == version else {}
            ran = {test_of(case) for case in outcomes}
            others = {case: outcome for case, outcome in kept.items() if test_of(case) not in ran}
            write_results(Results(name, version, {**others, **outcomes}))


def test_of(case: str) -> str:
    """The test, without the parameters of the case."""
    return case.partition("[")[0]


def read_results(broker: str) -> Results | None:
    """None when it was never asked."""
    path = RESULTS / f"{broker}.json"
    return Results(**json.loads(path.read_text())) if path.exists() else None


def write_results(results: Results) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(asdict(results), indent=1, sort_keys=True)
    (RESULTS / f"{results.broker}.json").write_text(text + "\n")
