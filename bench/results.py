"""Results files, read back: what the chart and the documents show.

What comes in: JSON files that `python -m bench --json` wrote, or a page with their table. What goes out: rows in
ORDER, with ratios to the baseline and their spread. Rules: 1. of a scenario that is in several files the last one's
figures are taken, all of them: figures of two runs are never mixed within a scenario; 2. a ratio above 1 is better
than the baseline, whatever the unit; its spread is the broker's lowest and highest round against the baseline's
median; 3. the first file's baseline is that of all: one that has another cannot be shown with it, unless it has no
figures of the first one's.
Not here: measuring (`runner.py`), writing results (`report.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.perf_test import RUNS
from bench.report import COST_COLUMNS, Summary, costs_of
from bench.scenarios import APPLICATIONS, SCENARIOS, Result

_FIRST = [scenario.name for family in APPLICATIONS for scenario in family.SCENARIOS]
# What applications do, PerfTest's runs, everything else.
ORDER = [*_FIRST, *RUNS, *(name for name in SCENARIOS if name not in _FIRST)]

# What a scenario is known by in charts and short tables; where nothing is said, its first figure.
SHOWN: dict[str, tuple[str, ...]] = {
    "durable-closed-1": ("rate", "p50"),
    "durable-closed-1-ack": ("rate", "p50"),
    "durable-closed-1-stored": ("rate", "p50"),
    "durable-paced-1k": ("confirm p50", "confirm p99"),
    "beside-stream": ("p50", "p99", "stream beside"),
    "perf-test-1x1-c1": ("rate", "confirm p50", "confirm p99"),
    "perf-test-4x4-c1000": ("rate", "confirm p50", "confirm p99"),
    "perf-test-r1000-c100": ("confirm p50", "confirm p99"),
    "paced-5k": ("confirm p50", "confirm p99", "delivery p50", "delivery p99"),
    "declare-1000": ("declare", "delete"),
    "restart": ("first", "all"),
}


@dataclass(frozen=True, slots=True)
class Row(Summary):
    """A summary with the spread of its ratio. The ratios are None where the baseline has no figure."""

    ratio_lowest: float | None
    ratio_highest: float | None

    @property
    def label(self) -> str:
        """The scenario, with the figure where several are shown."""
        return f"{self.scenario} {self.figure}" if len(SHOWN.get(self.scenario, ())) > 1 else self.scenario


@dataclass(frozen=True, slots=True)
class Results:
    """`runs` are the `about` of the files that something was taken from; `costs` holds COST_COLUMNS as text by
    (scenario, broker), `failures` a sentence each."""

    baseline: str
    runs: list[dict[str, Any]]
    rows: list[Row]
    costs: dict[tuple[str, str], list[str]]
    failures: list[str]

    @property
    def brokers(self) -> list[str]:
        """Names in the order of the runs, the baseline last."""
        names = dict.fromkeys(each["name"] for run in self.runs for each in run["brokers"])
        return [name for name in names if name != self.baseline] + [self.baseline]

    def of(self, scenario: str) -> list[Row]:
        return [row for row in self.rows if row.scenario == scenario]

    def shown(self) -> list[Row]:
        """The rows of charts and short tables."""
        kept = []
        for scenario in dict.fromkeys(row.scenario for row in self.rows):
            rows = self.of(scenario)
            names = SHOWN.get(scenario, (rows[0].figure,))
            kept += [row for name in names for row in rows if row.figure == name]
        return kept


def tabled(page: Path, baseline: str = "rabbitmq") -> Results:
    """The figures of the table that `bench.document` wrote into the page: medians, without a spread. Raises
    BenchError where there is no such table."""
    _, _, text = page.read_text().partition("<!-- bench:table -->")
    lines = [
        line.strip("| \n").split("|") for line in text.partition("<!-- bench:end -->")[0].split("\n") if "|" in line
    ]
    cells = [[cell.strip() for cell in line] for line in lines]
    if len(cells) < 3 or baseline not in cells[0]:
        raise BenchError(
            f"{page} has no table of figures beside {baseline}: was it written by `python -m bench.document`?"
        )
    head, rows = cells[0], []
    brokers = head[2 : head.index(baseline) + 1]
    for line in cells[2:]:
        figure, _, unit = line[1].partition(", ")
        for broker in brokers:
            value, times = line[head.index(broker)], f"{broker}: times"
            if value:
                median = float(value.replace(",", ""))
                said = line[head.index(times)].removesuffix("x") if times in head else ""
                ratio = float(said) if said else None
                rows.append(
                    Row(
                        scenario=line[0].strip("`"),
                        figure=figure,
                        unit=unit,
                        higher_is_better=unit.endswith(("/s", "/min")),
                        broker=broker,
                        median=median,
                        lowest=median,
                        highest=median,
                        rounds=0,
                        ratio=ratio,
                        ratio_lowest=None,
                        ratio_highest=None,
                    )
                )
    return Results(baseline, [{"brokers": [{"name": broker} for broker in brokers]}], rows, {}, [])


def load(paths: list[Path]) -> Results:
    """Raises BenchError for a file that is no results file, and for different baselines (rule 3)."""
    values = [_read(path) for path in paths]
    baseline = values[0]["baseline"]
    for value in values:
        if value["baseline"] != baseline and any(each["broker"] == baseline for each in value["outcomes"]):
            raise BenchError(f"the files have several baselines: {baseline}, {value['baseline']}")
    source = {each["scenario"]: value for value in values for each in value["outcomes"]}
    # A scenario that has since been renamed or taken out comes last.
    order = [name for name in ORDER if name in source] + [name for name in source if name not in ORDER]
    rows, costs, failures = [], {}, []
    for scenario in order:
        value = source[scenario]
        rows += _rows([each for each in value["summary"] if each["scenario"] == scenario], baseline)
        outcomes = [each for each in value["outcomes"] if each["scenario"] == scenario]
        failures += [
            f"{scenario} on {each['broker']}, round {each['round']}: {each['error']}"
            for each in outcomes
            if each["result"] is None
        ]
        for broker in dict.fromkeys(each["broker"] for each in outcomes if each["result"]):
            results = [each["result"] for each in outcomes if each["result"] and each["broker"] == broker]
            costs[scenario, broker] = costs_of([Result(**each) for each in results])
    used = [
        value["about"] | {"scenarios": [name for name in order if source[name] is value]}
        for value in values
        if any(value is each for each in source.values())
    ]
    return Results(baseline, used, rows, costs, failures)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
        if isinstance(value, dict) and value.keys() >= {"about", "baseline", "summary", "outcomes"}:
            return value
    except ValueError as error:
        raise BenchError(f"{path} is not JSON: {error}") from None
    raise BenchError(f"{path} is not what `python -m bench --json` writes")


def _rows(summaries: list[dict[str, Any]], baseline: str) -> list[Row]:
    base = {each["figure"]: each["median"] for each in summaries if each["broker"] == baseline}
    rows = []
    for each in summaries:
        edges: list[float] | list[None] = [None, None]
        reference = base.get(each["figure"])
        if reference and each["lowest"] and each["highest"]:
            ratios = [each[end] / reference for end in ("lowest", "highest")]
            edges = sorted(ratios if each["higher_is_better"] else [1 / ratio for ratio in ratios])
        known = each if reference is not None else each | {"ratio": None}  # that of another baseline
        rows.append(Row(*(known[field.name] for field in fields(Summary)), *edges))
    return rows


__all__ = ["COST_COLUMNS", "ORDER", "SHOWN", "Results", "Row", "load"]
