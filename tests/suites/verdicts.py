"""What a suite said of each of its tests, and where two brokers differ.

What comes in: the folder of results of a run: JUnit files, or the JSON lines of `go test`.
What goes out: outcomes by test, the tests that pass on one broker only, and the table that is printed.
Rules: 1. A test that is reported twice has its worst outcome. 2. A test that one run does not report counts as
missing there, which is not passed.
Not here: which suites there are (`catalogue.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

PASSED, SKIPPED, FAILED, MISSING = "passed", "skipped", "failed", "missing"
WORST_FIRST = (FAILED, PASSED, SKIPPED)
REASON_CHARACTERS_MAX = 400

Outcomes = Mapping[str, str]


def outcomes(results: Path) -> dict[str, str]:
    """{test: passed, skipped or failed}. Raises ValueError when there is no result at all."""
    found: dict[str, str] = {}
    for name, outcome, _ in reports(results):
        known = found.get(name, outcome)
        found[name] = min(known, outcome, key=WORST_FIRST.index)
    if not found:
        raise ValueError(f"no test reported anything in {results}")
    return found


def reasons(results: Path) -> dict[str, str]:
    """{failed test: the beginning of what it said}."""
    return {name: text[:REASON_CHARACTERS_MAX] for name, outcome, text in reports(results) if outcome == FAILED}


def reports(results: Path) -> Iterator[tuple[str, str, str]]:
    """(test, outcome, what it said when it failed), as often as the tools report it."""
    for file in sorted(results.rglob("*.xml")):
        for name, case in cases(ElementTree.parse(file).getroot(), ()):
            bad = [child for child in case if child.tag in ("failure", "error")]
            skipped = any(child.tag == "skipped" for child in case)
            text = bad[0].get("message") or bad[0].text or "" if bad else ""
            yield name, FAILED if bad else SKIPPED if skipped else PASSED, text
    for file in sorted(results.rglob("go-test.json")):
        yield from go_reports(file)


def cases(element: ElementTree.Element, path: tuple[str, ...]) -> Iterator[tuple[str, ElementTree.Element]]:
    """JUnit's cases: named by their class where the tool has classes, by the suites around them where it has not."""
    if element.tag == "testcase":
        class_name = element.get("classname", "")
        yield "::".join([*([class_name] if "." in class_name else path), element.get("name", "")]), element
    inside = (*path, element.get("name", "")) if element.tag == "testsuite" else path
    for child in element:
        yield from cases(child, inside)


def go_reports(file: Path) -> Iterator[tuple[str, str, str]]:
    words = {"pass": PASSED, "skip": SKIPPED, "fail": FAILED}
    said: dict[str, str] = {}
    for line in file.read_text().splitlines():
        # Between the events stands what the tools themselves print.
        event = json.loads(line) if line.startswith("{") else {}
        name = event.get("Test")
        if name is None:
            continue
        said[name] = (said.get(name, "") + event.get("Output", ""))[-REASON_CHARACTERS_MAX:]
        if event["Action"] in words:
            yield name, words[event["Action"]], said[name]


def only_on(passes: Outcomes, other: Outcomes) -> list[str]:
    """The tests that pass in the first run and not in the second."""
    return sorted(name for name, outcome in passes.items() if outcome == PASSED and other.get(name) != PASSED)


def table(runs: Mapping[str, Outcomes]) -> str:
    """A line for each broker: passed, failed, skipped, all."""
    lines = [f"{'':10} {PASSED:>8} {FAILED:>8} {SKIPPED:>8} {'all':>8}"]
    for broker, run in runs.items():
        counted = Counter(run.values())
        numbers = [counted[PASSED], counted[FAILED], counted[SKIPPED], len(run)]
        lines.append(f"{broker:10} " + " ".join(f"{number:8}" for number in numbers))
    return "\n".join(lines)
