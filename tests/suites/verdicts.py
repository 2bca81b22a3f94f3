"""What a suite said of each of its tests, and where two brokers differ.

What comes in: the folder of results of a run: JUnit files, the JSON lines of `go test`, what `cargo test` prints.
What goes out: outcomes by test, the tests that pass on one broker only, and the table that is printed.
Rules: 1. A test that is reported twice has its worst outcome. 2. A test that one run does not report counts as
missing there, which is not passed.
Not here: which suites there are (`catalogue.py`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

PASSED, SKIPPED, FAILED, MISSING = "passed", "skipped", "failed", "missing"
WORST_FIRST = (FAILED, PASSED, SKIPPED)
REASON_CHARACTERS_MAX = 400
# Watermill names each test of its own package after a new one.
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CARGO_LINE = re.compile(
    r"^ +Running (?:unittests )?(?P<program>\S+) \("
    r"|^test (?P<test>\S+) \.\.\. .*?(?P<outcome>\bok$|\bignored\b|\bFAILED$)",
    re.MULTILINE | re.DOTALL,
)
CARGO_SAID = re.compile(r"^---- (\S+) stdout ----\n(.*?)\n\n", re.MULTILINE | re.DOTALL)

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
        for name, case in cases(read_xml(file), ()):
            bad = [child for child in case if child.tag in ("failure", "error")]
            skipped = any(child.tag == "skipped" for child in case)
            text = bad[0].get("message") or bad[0].text or "" if bad else ""
            yield name, FAILED if bad else SKIPPED if skipped else PASSED, text
    for file in sorted(results.rglob("go-test.json")):
        yield from go_reports(file)
    for file in sorted(results.rglob("cargo-test.txt")):
        yield from cargo_reports(file)


def read_xml(file: Path) -> ElementTree.Element:
    """A tool that was ended may have left half a file: then it has reported nothing."""
    try:
        return ElementTree.parse(file).getroot()
    except ElementTree.ParseError:
        return ElementTree.Element("testsuites")


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
        if "Test" not in event:
            continue
        name = UUID.sub("UUID", event["Test"])
        said[name] = (said.get(name, "") + event.get("Output", ""))[-REASON_CHARACTERS_MAX:]
        if event["Action"] in words:
            yield name, words[event["Action"]], said[name]


def cargo_reports(file: Path) -> Iterator[tuple[str, str, str]]:
    """A line for each test, below one that names the program; in front of `ok` may stand what the test printed."""
    words = {"ok": PASSED, "ignored": SKIPPED, "FAILED": FAILED}
    text = file.read_text()
    said = {match[1]: match[2] for match in CARGO_SAID.finditer(text)}
    program = ""
    for match in CARGO_LINE.finditer(text):
        program = match["program"] or program
        if match["test"]:
            outcome = words[match["outcome"]]
            yield f"{program}::{match['test']}", outcome, said.get(match["test"], "")[-REASON_CHARACTERS_MAX:]


def only_on(passes: Outcomes, other: Outcomes) -> list[str]:
    """The tests that pass in the first run and not in the second."""
    return sorted(name for name, outcome in passes.items() if outcome == PASSED and other.get(name) != PASSED)


def exit_code(runs: Mapping[str, Outcomes]) -> int:
    """Of both brokers: 0, if amqpd passes all that RabbitMQ passes, else 1. Of one: 1 if a test failed, 2 if nothing
    was reported, which may be the fault of either, else 0."""
    if len(runs) > 1:
        return 1 if only_on(runs["RabbitMQ"], runs["amqpd"]) else 0
    (run,) = runs.values()
    return 2 if not run else 1 if FAILED in run.values() else 0


def table(runs: Mapping[str, Outcomes]) -> str:
    """A line for each broker: passed, failed, skipped, all."""
    lines = [f"{'':10} {PASSED:>8} {FAILED:>8} {SKIPPED:>8} {'all':>8}"]
    for broker, run in runs.items():
        counted = Counter(run.values())
        numbers = [counted[PASSED], counted[FAILED], counted[SKIPPED], len(run)]
        lines.append(f"{broker:10} " + " ".join(f"{number:8}" for number in numbers))
    return "\n".join(lines)
