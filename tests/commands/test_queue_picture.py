"""What `amqpd queue show` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from amqpd.commands import queues
from amqpd.commands.queue_picture import BAR_CHARACTERS, counted, histogram, picture
from amqpd.management.figures.queue_facts import queue_facts
from tests.harness.harness import Harness, publish_bytes


def test_a_histogram_begins_and_ends_where_something_is() -> None:
    lines = histogram({"1": 0, "500": 3, "1000": 0, "60000": 1200, "7200000": 1, "more": 0})
    assert lines == [
        "up to 500 ms      3    0%  #",
        "up to 1 s         0    0%",
        f"up to 1 min   1,200  100%  {'#' * BAR_CHARACTERS}",
        "up to 2 h         1    0%  #",
    ]
    assert histogram({"1": 0, "more": 0}) == []
    assert histogram({"1": 0, "more": 2}) == [f"longer  2  100%  {'#' * BAR_CHARACTERS}"]


def test_what_is_nothing_is_not_counted() -> None:
    assert counted({"a": 1200, "b": 0, "c": 1}) == "a 1,200, c 1"


def test_a_picture_has_what_there_is_and_nothing_else() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=True, arguments={"x-max-length": 3})
    client.raw(publish_bytes(b"x", "q") * 5)
    lines = picture(queue_facts(harness.node.queues["/", "q"], harness.node.now_ms), []).splitlines()
    found = {line[:15].strip(): line[17:] for line in lines}
    assert found["queue"] == "q in / (classic, durable)"
    assert found["arguments"] == "x-max-length 3"
    assert found["settings"] == "max_length 3, overflow drop-head"
    assert found["messages"] == "3 ready, 0 unacknowledged"
    assert found["totals"] == "accepted 5, dropped 2"
    assert found["consumers"] == "0, capacity 0%"
    assert "policy" not in found
    assert not any("time in queue" in line for line in lines)


def test_a_picture_of_a_cluster_names_the_leader() -> None:
    harness = Harness()
    harness.client().declare("q", durable=True)
    facts = queue_facts(harness.node.queues["/", "q"], harness.node.now_ms)
    assert "led by" not in picture(facts, [])
    assert re.search(r"(?m)^led by +a@x$", picture({**facts, "leader": "a@x"}, []))
    kept = picture({**facts, "leader": "a@x", "members": ["a@x", "b@x"]}, [])
    assert "a@x, kept by a@x, b@x" in kept


@pytest.mark.parametrize(
    ("leaders", "arguments", "named"),
    [
        ((None, None), [], False),
        (("a@x", "a@x"), [], False),
        (("a@x", "b@x"), [], True),
        (("a@x", "b@x"), ["--columns", "name"], False),
    ],
)
def test_a_list_names_leaders_where_there_are_several(
    leaders: tuple[str | None, ...],
    arguments: list[str],
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    harness = Harness()
    harness.client().declare("q", durable=True)
    facts = queue_facts(harness.node.queues["/", "q"], harness.node.now_ms)
    rows = [{**facts, "consumers": 0, **({"leader": leader} if leader else {})} for leader in leaders]
    monkeypatch.setattr(queues, "ask_rows", lambda *_: rows)
    result = CliRunner().invoke(queues.list_queues, ["--data-dir", str(tmp_path), *arguments])
    assert result.exit_code == 0, result.output
    assert ("leader" in result.output, "b@x" in result.output) == (named, named)
