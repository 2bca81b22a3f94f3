"""The figures of a run as text for people and as JSON for programs.

What comes in: outcomes, one for every scenario, broker and round. What goes out: an aligned table, and one
JSON value. Rules: 1. median and spread (lowest to highest) over the rounds, never the best; 2. a ratio above
1 means better than the baseline, whatever the unit; 3. a failed run is shown as failed, and takes the
figure's place.
Not here: running (`runner.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.scenarios.base import Figure, Result

COST_COLUMNS = ("broker cpu", "msg/cpu s", "rss MB", "gen cpu", "msg/gen cpu s", "other cpu")
"""Shares are of one core; `gen cpu` is publisher + consumer; `other cpu` is neither broker nor generator."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a scenario on a broker: `result`, or `error` in words."""

    scenario: str
    broker: str
    round: int
    result: Result | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """One figure of one scenario on one broker, over all its valid rounds."""

    scenario: str
    figure: str
    unit: str
    higher_is_better: bool
    broker: str
    median: float
    lowest: float
    highest: float
    rounds: int
    ratio: float | None


def summarise(outcomes: list[Outcome], baseline: str) -> list[Summary]:
    """In the order of first appearance; `ratio` is against `baseline`'s median, None where that is
    missing."""
    values: dict[tuple[str, str], dict[str, list[Figure]]] = {}
    for outcome in outcomes:
        for figure in outcome.result.figures if outcome.result else ():
            values.setdefault((outcome.scenario, figure.name), {}).setdefault(outcome.broker, []).append(figure)
    summaries = []
    for (scenario, name), by_broker in values.items():
        base = median(figure.value for figure in by_broker[baseline]) if baseline in by_broker else None
        for broker, figures in by_broker.items():
            numbers = [figure.value for figure in figures]
            middle, first = median(numbers), figures[0]
            summaries.append(
                Summary(
                    scenario,
                    name,
                    first.unit,
                    first.higher_is_better,
                    broker,
                    middle,
                    min(numbers),
                    max(numbers),
                    len(numbers),
                    _ratio(middle, base, first.higher_is_better) if first.compared else None,
                )
            )
    return summaries


def table(outcomes: list[Outcome], baseline: str) -> str:
    """Aligned text: a line per figure and broker, then what is below the baseline, then what failed."""
    costs = _costs(outcomes)
    head = ["scenario", "figure", "broker", "median", "lowest", "highest", "unit", f"x {baseline}"]
    head += list(COST_COLUMNS)
    rows, main = [head], set[tuple[str, str]]()
    summaries = summarise(outcomes, baseline)
    for summary in summaries:
        key = (summary.scenario, summary.broker)
        ratio = "" if summary.ratio is None or summary.broker == baseline else f"{summary.ratio:.2f}"
        numbers = [number_text(value) for value in (summary.median, summary.lowest, summary.highest)]
        cost = [""] * len(COST_COLUMNS) if key in main else costs[key]
        main.add(key)
        rows.append([summary.scenario, summary.figure, summary.broker, *numbers, summary.unit, ratio, *cost])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    left = {0, 1, 2, 6}
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    failures = [
        f"FAILED  {outcome.scenario} on {outcome.broker}, round {outcome.round}: {outcome.error}"
        for outcome in outcomes
        if outcome.result is None
    ]
    return "\n".join(lines + below(summaries, baseline) + failures)


def below(summaries: list[Summary], baseline: str) -> list[str]:
    """A line for each broker that has a figure below the baseline's: a long table hides it."""
    found: dict[str, list[str]] = {}
    for summary in summaries:
        if summary.ratio is not None and summary.ratio < 1:
            found.setdefault(summary.broker, []).append(f"{summary.scenario} {summary.figure} {summary.ratio:.2f}")
    return [f"BELOW {baseline}  {broker}: {', '.join(figures)}" for broker, figures in found.items()]


def as_json(outcomes: list[Outcome], baseline: str, about: dict[str, Any]) -> dict[str, Any]:
    """`about` the run, the `summary`, and every single outcome."""
    return {
        "about": about,
        "baseline": baseline,
        "summary": [asdict(summary) for summary in summarise(outcomes, baseline)],
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


def _costs(outcomes: list[Outcome]) -> dict[tuple[str, str], list[str]]:
    """COST_COLUMNS by scenario and broker."""
    results: dict[tuple[str, str], list[Result]] = {}
    for outcome in outcomes:
        if outcome.result:
            results.setdefault((outcome.scenario, outcome.broker), []).append(outcome.result)
    return {key: costs_of(runs) for key, runs in results.items()}


def costs_of(runs: list[Result]) -> list[str]:
    """COST_COLUMNS as text: medians over the runs of one scenario on one broker, of which there is at least one."""
    roles = {role: median(run.generator_cpu[role] for run in runs) for role in runs[0].generator_cpu}
    return [
        _share(_median(run.broker_cpu for run in runs)),
        _text(_median(run.messages_per_broker_cpu_s for run in runs)),
        _text(_median(run.broker_rss_mb for run in runs)),
        "+".join(f"{share:.0%}" for share in roles.values()),
        _text(median(run.messages_per_generator_cpu_s for run in runs)),
        _share(_median(run.other_cpu for run in runs)),
    ]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _text(value: float | None) -> str:
    return "" if value is None else number_text(value)


def _ratio(value: float, base: float | None, higher_is_better: bool) -> float | None:
    if not base or not value:
        return None
    return value / base if higher_is_better else base / value


def number_text(value: float) -> str:
    """Thousands with commas, below 100 three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
