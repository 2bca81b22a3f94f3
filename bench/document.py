"""Figures into documents: `python -m bench.document RESULTS.json [MORE.json ...] [--limits LIMITS.json]`.

What comes in: results files (of which the last one that has a scenario counts), limits, and Markdown files with
blocks. What goes out: the same files, each block between `<!-- bench:NAME -->` and `<!-- bench:end -->` written
again. Rules: 1. no figure in a document is typed by hand; 2. NAME is a scenario, a run of PerfTest or one of BLOCKS,
another one is an error; 3. what was not measured is said to be so: an older figure does not stay; 4. equal results,
equal text.
Not here: the sentences around the blocks (`docs/performance.md`), the chart (`chart.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.chart import product_name, ratio_text
from bench.errors import BenchError
from bench.report import number_text
from bench.results import COST_COLUMNS, ORDER, Results, Row, load

DOCUMENTS = (Path("docs/performance.md"), Path("README.md"))
_BEGIN = re.compile(r"<!-- bench:(?!end )[\w-]+ -->")
_BLOCK = re.compile(r"(<!-- bench:(?!end )([\w-]+) -->\n).*?(<!-- bench:end -->)", re.DOTALL)
NOT_MEASURED = "Not measured in this run."

# The ratios to RabbitMQ that amqpd has set itself as floors; for every figure that is shown of the scenario.
FLOORS = {
    "mixed": 12.0,
    "mixed-ack": 12.0,
    "mixed-4x4": 12.0,
    "mixed-durable": 14.0,
    "durable-closed-1": 1.5,
    "durable-closed-1-ack": 1.5,
    "durable-closed-1-stored": 1.5,
    "durable-closed-50": 4.0,
    "durable-paced-1k": 1.0,
    "beside-stream": 1.0,
    "perf-test-1x1-c1": 1.0,
    "perf-test-4x4-c1000": 1.0,
    "perf-test-r1000-c100": 1.0,
    "perf-test-1x1-auto": 1.0,
    "stream": 12.0,
    "stream-ack": 12.0,
    "stream-confirm": 15.0,
    "tls-stream": 3.0,
    "durable-confirm": 12.0,
    "durable-1k": 8.0,
    "large-64k": 3.0,
    "closed-1": 1.3,
    "closed-50": 2.5,
    "closed-500": 3.0,
    "paced-5k": 1.0,
    "fanout-10": 3.0,
    "topic-10k": 3.0,
    "mixed-keys": 3.0,
    "many-queues": 3.0,
    "backlog": 3.0,
    "backlog-5m": 3.0,
    "churn": 3.0,
}

# The figures of the README, with what each of them is of: at most ten, among them one that is below RabbitMQ's.
SHORT: dict[tuple[str, str], str] = {
    ("mixed", "rate"): "A stream of small messages, nothing confirmed",
    ("mixed-durable", "rate"): "The same, persistent and confirmed",
    ("durable-closed-1-stored", "rate"): "One publisher that waits for each confirm from disk",
    ("durable-closed-50", "rate"): "Fifty such publishers",
    ("perf-test-1x1-c1", "rate"): "PerfTest, one persistent message at a time",
    ("perf-test-4x4-c1000", "rate"): "PerfTest, four publishers, four consumers, persistent",
    ("perf-test-r1000-c100", "confirm p99"): "PerfTest, 1,000 persistent messages a second",
    ("large-64k", "rate"): "Bodies of 64 kB, confirmed",
    ("paced-5k", "confirm p99"): "5,000 messages a second",
    ("idle-1000", "memory"): "Memory of an idle connection",
}

Limits = list[dict[str, Any]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.document", description="Write figures into documents.")
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="from python -m bench --json")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="from python -m bench.limits --json")
    parser.add_argument("--into", action="append", type=Path, metavar="FILE", help="instead of the usual documents")
    options = parser.parse_args(arguments)
    try:
        results = load(options.results)
        limits: Limits = json.loads(options.limits.read_text())["limits"] if options.limits else []
        texts = {path: fill(path.read_text(), results, limits) for path in options.into or DOCUMENTS}
    except (BenchError, OSError, ValueError, KeyError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    # Nothing is written before all of it is known to be good.
    for path, text in texts.items():
        path.write_text(text)
        if not _BLOCK.search(text):
            print(f"bench: {path} has no block, as in <!-- bench:short --> and <!-- bench:end -->", file=sys.stderr)
    return 0 if all(_BLOCK.search(text) for text in texts.values()) else 1


def fill(text: str, results: Results, limits: Limits) -> str:
    """`text` with its blocks written again. Raises BenchError for a block that nobody knows, or that has no end."""
    if len(_BEGIN.findall(text)) != text.count("<!-- bench:end -->"):
        raise BenchError("a block has no end, or an end no block: <!-- bench:NAME --> and <!-- bench:end -->")

    def write(match: re.Match[str]) -> str:
        name = match[2]
        if "<!-- bench:" in match[0][len(match[1]) : -len(match[3])]:
            raise BenchError(f"the block {name} has no end: <!-- bench:end --> is missing")
        if name in BLOCKS:
            lines = BLOCKS[name](results, limits)
        elif name in ORDER:
            lines = scenario(results, name)
        else:
            raise BenchError(f"no block is called {name}; there are {', '.join(BLOCKS)} and the scenarios")
        return match[1] + "\n" + "\n".join(lines or [NOT_MEASURED]) + "\n\n" + match[3]

    return _BLOCK.sub(write, text)


def machine(results: Results, limits: Limits) -> list[str]:
    """What it was measured on, a list item for each results file."""
    lines = []
    for run in results.runs:
        brokers = ", ".join(f"{each['name']} {each['version']}".strip() for each in run["brokers"])
        scale = "" if run["scale"] == 1 else f", scale {run['scale']:g}"
        rounds = "round" if run["rounds"] == 1 else "rounds"
        parts = (
            f"{run['at'][:10]}: {run['cores']} cores ({run['machine']}), {run['system']}, Python {run['python']},",
            f"data on {run['data_file_system']};",
            f"{run['rounds']} {rounds} of {run['seconds']:g} s after {run['warmup_s']:g} s{scale};",
            f"load of the machine at the end {run['load_average_1min']:.2f}. {brokers}.",
            f"Scenarios: {', '.join(run['scenarios'])}.",
        )
        lines.append("- " + " ".join(parts))
    return lines


def main_table(results: Results, limits: Limits) -> list[str]:
    """Every scenario's shown figures: medians, ratios, the floor."""
    others = results.brokers[:-1]
    head = ["scenario", "figure", *results.brokers, *(f"{name}: times" for name in others), "floor"]
    rows = []
    for group in _groups(results.shown()):
        first = group[0]
        by_broker = {row.broker: row for row in group}
        medians = [_value(by_broker.get(name)) for name in results.brokers]
        ratios = [_ratio(by_broker.get(name)) for name in others]
        floor = FLOORS.get(first.scenario)
        named = f"{first.figure}, {first.unit}"
        rows.append([f"`{first.scenario}`", named, *medians, *ratios, f"{floor:g}x" if floor else ""])
    return _table(head, rows, left=2)


def short(results: Results, limits: Limits) -> list[str]:
    """The README's table: a line for each figure of SHORT that was measured."""
    name = results.brokers[0]
    head = ["measured", product_name(results.baseline), name, "times"]
    rows = []
    for group in _groups(results.shown()):
        first = group[0]
        if text := SHORT.get((first.scenario, first.figure)):
            by_broker = {row.broker: row for row in group}
            base, ours = by_broker.get(results.baseline), by_broker.get(name)
            figure = "" if first.figure in ("rate", "memory") else f"{first.figure}, "
            said = f"{text} (`{first.scenario}`), {figure}{first.unit}"
            rows.append([said, _value(base), _value(ours), _ratio(ours)])
    return _table(head, rows, left=1) if rows else []


def below(results: Results, limits: Limits) -> list[str]:
    """What is below the baseline, what is below its floor, what failed."""
    rows = [row for row in results.shown() if row.ratio is not None and row.broker != results.baseline]
    under = [row for row in rows if (row.ratio or 0) < 1]
    # The floors are those of amqpd as it is installed, which comes first; the plain kernel's is the baseline.
    ours = [row for row in rows if row not in under and row.broker == results.brokers[0]]
    missed = [row for row in ours if (row.ratio or 0) < FLOORS.get(row.scenario, 0)]
    baseline = product_name(results.baseline)
    lines = _list(f"Below {baseline}", under) + _list("Below its floor, not below " + baseline, missed)
    lines += [f"- Failed: {failure}" for failure in results.failures]
    return lines


def limit_table(results: Results, limits: Limits) -> list[str]:
    """What a relay does without a broker, beside what brokers do in the scenario that it bounds."""
    name = results.brokers[0]
    head = ["case", "messages/s", "MB/s", "relay cpu", "messages/relay cpu s", "bounds", name]
    head += ["share of the relay's", f"bound, times {product_name(results.baseline)}"]
    rows = []
    for limit in limits:
        by_broker = {row.broker: row.median for row in results.of(limit["scenario"]) if row.figure == "rate"}
        ours, base = by_broker.get(name), by_broker.get(results.baseline)
        rate = limit["messages_per_s"]
        rows.append(
            [
                limit["name"],
                number_text(rate),
                number_text(limit["mb_per_s"]),
                f"{limit['relay_cpu']:.0%}",
                number_text(limit["messages_per_relay_cpu_s"]),
                f"`{limit['scenario']}`" if limit["scenario"] else "",
                number_text(ours) if ours else "",
                f"{ours / rate:.0%}" if ours else "",
                ratio_text(rate / base) if base else "",
            ]
        )
    return _table(head, rows, left=1) if rows else []


def scenario(results: Results, name: str) -> list[str]:
    """All figures of one scenario with their spread, and what the runs cost."""
    rows = results.of(name)
    failed = [f"- Failed: {failure}" for failure in results.failures if failure.startswith(f"{name} on ")]
    if not rows:
        return failed
    head = ["figure", "broker", "median", "lowest", "highest", "unit", "times"]
    cells = []
    for row in rows:
        values = [number_text(value) for value in (row.median, row.lowest, row.highest)]
        cells.append(
            [row.figure, row.broker, *values, row.unit, _ratio(row) if row.broker != results.baseline else ""]
        )
    lines = _table(head, cells, left=2)
    costs = [[broker, *results.costs[name, broker]] for broker in results.brokers if (name, broker) in results.costs]
    return [*lines, "", *_table(["broker", *COST_COLUMNS], costs, left=1), *failed]


BLOCKS: dict[str, Callable[[Results, Limits], list[str]]] = {
    "machine": machine,
    "table": main_table,
    "short": short,
    "below": below,
    "limits": limit_table,
}


def _groups(rows: list[Row]) -> list[list[Row]]:
    """Rows of one figure of one scenario together, in their order."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.scenario, row.figure), []).append(row)
    return list(groups.values())


def _list(title: str, rows: list[Row]) -> list[str]:
    if not rows:
        return [f"- {title}: nothing."]
    named = [f"{row.broker} in `{row.scenario}` ({row.figure}) {_ratio(row)}" for row in rows]
    return [f"- {title}: {', '.join(named)}."]


def _value(row: Row | None) -> str:
    return number_text(row.median) if row else ""


def _ratio(row: Row | None) -> str:
    return ratio_text(row.ratio) if row and row.ratio is not None else ""


def _table(head: list[str], rows: list[list[str]], *, left: int) -> list[str]:
    """Markdown; the first `left` columns are aligned left."""
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    return ["| " + " | ".join(row) + " |" for row in [head, rule, *rows]]


if __name__ == "__main__":
    sys.exit(main())
