"""Names, levels and number of the cluster's lines in the log.

What is verified: the table of docs/clustering.md is what the code has; a flood is cut, and what is left out is said.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from amqpd.cluster.log_events import BURST, LEFT_OUT, LEVELS, WITHIN_S, LogEvents

ROOT = Path(__file__).parents[2]


class Lines:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.written: list[tuple[str, str, dict[str, Any]]] = []
        self.events = LogEvents(lambda *line: self.written.append(line), lambda: self.now_s)

    def log(self, event: str, count: int = 1) -> None:
        for number in range(count):
            self.events.log(event, {"number": number})


def test_a_line_has_its_level_and_its_fields() -> None:
    lines = Lines()
    lines.log("source_lost")
    lines.log("copies_complete")
    assert lines.written == [("warning", "source_lost", {"number": 0}), ("info", "copies_complete", {"number": 0})]


def test_of_a_flood_the_first_lines_are_written_and_the_others_counted() -> None:
    lines = Lines()
    lines.log("source_lost", 256)
    lines.log("vote_granted")
    assert [line[1] for line in lines.written] == ["source_lost"] * BURST + ["vote_granted"]
    lines.events.beat()
    assert len(lines.written) == BURST + 1
    lines.now_s += WITHIN_S
    lines.events.beat()
    assert lines.written[-1] == ("warning", LEFT_OUT, {"of": "source_lost", "count": 256 - BURST})
    lines.events.beat()
    assert len(lines.written) == BURST + 2


def test_what_was_left_out_is_said_with_the_next_line_of_its_name() -> None:
    lines = Lines()
    lines.log("source_lost", BURST + 7)
    lines.now_s += WITHIN_S
    lines.log("source_lost", 2)
    assert [line[2] for line in lines.written[-2:]] == [{"number": 0, "left_out_before": 7}, {"number": 1}]
    lines.events.beat()
    assert lines.written[-1][1] == "source_lost"


def test_the_documentation_has_each_event_with_its_level() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (info|warning|error) \|", (ROOT / "docs" / "clustering.md").read_text(), re.M)
    assert dict(rows) == LEVELS


def test_each_event_of_the_table_is_told_by_somebody_and_no_other_is() -> None:
    paths = [path for path in (ROOT / "amqpd" / "cluster").glob("*.py") if path.name != "log_events.py"]
    text = "\n".join(path.read_text() for path in paths)
    assert set(re.findall(r'(?:self|shell)\.log\(\s*"(\w+)"', text)) <= set(LEVELS)
    assert {event for event in LEVELS if f'"{event}"' not in text} == {LEFT_OUT}
