"""The table of rules in `README.md`: `python -m conformance.table` writes it.

What comes in: the suite's marks, and the outcomes on amqpd and RabbitMQ in `results/`. What goes out: the lines
between the two markers of the README: a section for each file, a row for each rule.
Rules: 1. The rules and reasons are the suite's, in its order; a test in `tests/` holds the README against them. 2. A
verdict says how many cases of the rule the broker answered as the rule has it; what differs has its reason.
Not here: the outcomes themselves (`outcomes.py`).
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from conformance.outcomes import Results, read_results, test_of
from conformance.rules import applies

HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
COMPARED = {"amqpd": "amqpd", "rabbitmq": "RabbitMQ"}
HEAD = "| rule | source | test | cases | amqpd | RabbitMQ | why |"


@dataclass(frozen=True, slots=True)
class Difference:
    on: str
    why: str
    asserted: bool
    case: str | None
    """the id of the parameters; None for all cases"""


@dataclass(frozen=True, slots=True)
class Rule:
    file: str
    test: str
    source: str
    sentence: str
    cases: int
    differences: tuple[Difference, ...]

    @property
    def id(self) -> str:
        return f"conformance/{self.file}.py::{self.test}"

    @property
    def why(self) -> str:
        """One sentence for each difference, each once."""
        return " ".join(dict.fromkeys(f"{each.on}: {each.why}." for each in self.differences))

    @property
    def fixed(self) -> str:
        """The part of the row that only the suite decides."""
        cells = (self.sentence, self.source, f"`{self.test}`", str(self.cases))
        return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"

    def row(self, results: dict[str, Results | None]) -> str:
        verdicts = [verdict(self, results[name]) for name in COMPARED]
        return f"{self.fixed} {' | '.join(verdicts)} | {_escaped(self.why)} |"


def main() -> int:
    results = {name: read_results(name) for name in COMPARED}
    missing = [name for name, found in results.items() if found is None]
    if missing:
        print(f"no results for {', '.join(missing)}: run make conformance for each broker first", file=sys.stderr)
        return 1
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")
    return 0


def modules() -> list[ModuleType]:
    """The files of tests, in the order of the table: the protocol first, its extensions behind it."""
    names = sorted((path.stem for path in HERE.glob("test_*.py")), key=lambda name: ("_ext_" in name, name))
    return [importlib.import_module(f"conformance.{name}") for name in names]


def rules(module: ModuleType) -> list[Rule]:
    """The rules of a file, in its order. Raises ValueError for a test without one."""
    found = []
    for name, function in vars(module).items():
        if name.startswith("test_") and isinstance(function, FunctionType) and function.__module__ == module.__name__:
            marks = list(getattr(function, "pytestmark", []))
            stated = [mark for mark in marks if mark.name == "rule"]
            if len(stated) != 1:
                raise ValueError(f"{module.__name__}.{name} has {len(stated)} rules; it needs one")
            sets = [mark for mark in marks if mark.name == "parametrize"]
            found.append(
                Rule(
                    module.__name__.rpartition(".")[2],
                    name,
                    stated[0].kwargs["source"],
                    stated[0].kwargs["sentence"],
                    math.prod(len(list(mark.args[1])) for mark in sets),
                    tuple(_differences([*_of_module(module), *marks], sets)),
                )
            )
    return found


def table(results: dict[str, Results | None]) -> str:
    lines = [_summary(results)]
    for module in modules():
        lines += ["", f"### {title(module)}", "", HEAD, "|---|---|---|---|---|---|---|"]
        lines += [rule.row(results) for rule in rules(module)]
    return "\n".join(lines)


def title(module: ModuleType) -> str:
    """ "Exchanges: declaring, binding, routing. (`test_exchange.py`)"."""
    first = (module.__doc__ or "").strip().splitlines()[0].rstrip(".")
    return f"{first} (`{module.__name__.rpartition('.')[2]}.py`)"


def verdict(rule: Rule, results: Results | None) -> str:
    """`yes`, `no`, `3 of 5`, `skipped`, `failed`; a dash when it was not asked."""
    found = results.outcomes if results else {}
    outcomes = {case: outcome for case, outcome in found.items() if test_of(case) == rule.id}
    if results is None or not outcomes:
        return "-"
    if "failed" in outcomes.values():
        return "**failed**"
    asked = {case: outcome for case, outcome in outcomes.items() if outcome != "skipped"}
    if not asked:
        return "skipped"
    broker = SimpleNamespace(name=results.broker, version=results.version)
    other = [each for each in rule.differences if each.asserted and applies(each.on, broker)]
    held = [
        case
        for case, outcome in asked.items()
        if outcome == "passed" and not any(each.case is None or case.endswith(f"[{each.case}]") for each in other)
    ]
    if len(held) in (0, len(asked)):
        return "yes" if held else "no"
    return f"{len(held)} of {len(asked)}"


def _summary(results: dict[str, Results | None]) -> str:
    stated = {rule.id: rule for module in modules() for rule in rules(module)}
    said = [f"{len(stated)} rules, {sum(rule.cases for rule in stated.values())} cases."]
    for name, product in COMPARED.items():
        found = results[name]
        if found is not None:
            counts = Counter(outcome for case, outcome in found.outcomes.items() if test_of(case) in stated)
            shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            said.append(f"{product} {found.version}: {shown}.")
    return " ".join(said)


def _of_module(module: ModuleType) -> list[Any]:
    """Marks of all its tests."""
    marks = getattr(module, "pytestmark", [])
    return marks if isinstance(marks, list) else [getattr(marks, "mark", marks)]


def _differences(marks: list[Any], sets: list[Any]) -> Iterator[Difference]:
    for mark in marks:
        if mark.name == "differs":
            yield Difference(mark.kwargs["on"], mark.kwargs["why"], mark.kwargs["asserted"], None)
    for value in itertools.chain.from_iterable(mark.args[1] for mark in sets):
        for mark in getattr(value, "marks", ()):
            if mark.name == "differs":
                yield Difference(mark.kwargs["on"], mark.kwargs["why"], mark.kwargs["asserted"], value.id)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
