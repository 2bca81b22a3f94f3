"""`amqpd top`: what a look shows, of a broker and of made-up figures."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pika
import pytest
from rich.console import Console

from amqpd.__main__ import run
from amqpd.commands.status import attention
from amqpd.commands.top import NEEDS_MAX, SORTS, screen
from tests.clients.broker_process import BrokerProcess

SUMS = {
    "node": "amqpd@here", "connections": 3, "channels": 4, "queues": 2, "messages_ready": 1_042,
    "messages_unacknowledged": 7, "alarms": [], "needs_attention": [],
}  # fmt: skip


def queue(name: str, ready: int = 0, rate: float = 0.0, age_s: float | None = None, **more: Any) -> dict[str, Any]:
    stats = {f"{each}_details": {"rate": rate} for each in ("publish", "deliver_get", "ack")}
    plain = {"vhost": "/", "messages_ready": ready, "messages_unacknowledged": 0, "messages": ready, "consumers": 1}
    return {**plain, "name": name, "state": "running", "message_stats": stats, "oldest_message_age_s": age_s, **more}


def drawn(
    sums: dict[str, Any], rows: list[dict[str, Any]], sort: str = "messages", lines: int = 10, width: int = 120
) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"), color_system=None)  # noqa: SIM115
    console.print(screen(sums, rows, sort, lines, width))
    console.file.close()
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_totals() -> None:
    lines = drawn(SUMS, [queue("a", rate=1500), queue("b", rate=2.5)])
    assert lines[0] == "amqpd@here   nothing needs attention"
    assert lines[1] == "connections 3   channels 4   queues 2   ready 1,042   unacknowledged 7"
    assert lines[2] == "in 1,502/s   out 1,502/s   acks 1,502/s"


def need(says: str, severity: str = "warn") -> dict[str, Any]:
    return {"says": says, "severity": severity, "since_ms": None}


def test_what_needs_attention_is_at_the_top() -> None:
    needs = [need("the disk alarm is on", "bad"), need("1 message waits in queue 'a\x1b': nobody consumes")]
    lines = drawn({**SUMS, "needs_attention": needs}, ROWS, lines=3)
    assert lines[:3] == [
        "amqpd@here",
        "The disk alarm is on.",
        "1 message waits in queue 'a\\u001b': nobody consumes.",
    ]
    assert lines[-1] == "and 2 more queues", "its lines are not the queues'"
    many = drawn({**SUMS, "needs_attention": [need(f"thing {at}") for at in range(7)]}, ROWS)
    assert many[0] == "amqpd@here   7 things need attention: amqpd status"
    assert [line for line in many if line.startswith("Thing")] == [f"Thing {at}." for at in range(NEEDS_MAX)]


def test_a_status_begins_with_what_needs_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    needs = [{**need("the m alarm is on", "bad"), "since_ms": 1_800_000_000_000}, need("2 messages wait")]
    assert attention(needs) == [
        "Needs attention:",
        "  ! The m alarm is on (since 2027-01-15 17:00:00 JST).",
        "  - 2 messages wait.",
    ]
    assert attention([]) == ["Nothing needs attention."]
    monkeypatch.undo()
    time.tzset()


ROWS = [queue("a", 5, 1.0, 900.0), queue("b", 50, 0.5, 1.0), queue("c", 1, 20.0)]


@pytest.mark.parametrize(
    ("sort", "order"), [("messages", "bac"), ("in", "cab"), ("out", "cab"), ("oldest", "abc"), ("name", "abc")]
)
def test_which_queues_are_first(sort: str, order: str) -> None:
    assert sort in SORTS
    shown = [line.split()[1] for line in drawn(SUMS, ROWS, sort)[5:]]
    assert "".join(shown) == order


def test_a_line_of_a_queue() -> None:
    [line] = [line for line in drawn(SUMS, ROWS) if line.startswith("/  ") and " a " in line]
    assert line.split()[1:] == ["a", "5", "0", "1.0", "1.0", "1.0", "15", "min", "1"]


def test_a_narrow_terminal_shows_names_and_the_figures_that_matter_most() -> None:
    row = queue("orders-north", 1_234_567, 1_500.0, 900.0)
    [line] = [line for line in drawn(SUMS, [row], width=60) if "orders-n" in line]
    assert line.split() == ["/", "orders-north", "1,234,567", "1,500", "1,500", "1"]


def test_figures_that_nobody_knows_are_question_marks() -> None:
    nothing = {"messages_ready": None, "messages_unacknowledged": None, "messages": None, "consumers": None}
    silent = {**queue("far"), **nothing, "message_stats": None, "state": "down"}
    for sort in SORTS:
        [line] = [line for line in drawn(SUMS, [silent, queue("near", 5)], sort) if " far " in line]
        assert line.split()[2:] == ["?"] * 7


def test_no_more_than_fit() -> None:
    lines = drawn(SUMS, [queue(f"q{number:03}") for number in range(100)], lines=3)
    assert lines[-1] == "and 97 more queues"
    assert len(lines) == 5 + 3 + 1


def test_names_do_nothing_to_the_terminal() -> None:
    text = "\n".join(drawn({**SUMS, "node": "\x1b[2J"}, [queue("\x1b]0;owned\x07[red]x[/red]")]))
    assert "\x1b" not in text
    assert "[red]x[/red]" in text


def test_one_look_at_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    broker = BrokerProcess(tmp_path / "data")
    try:
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("busiest")
            channel.confirm_delivery()
            for _ in range(3):
                channel.basic_publish("", "busiest", b"x")
            assert run(["--data-dir", str(broker.data_dir), "top", "--once"]) == 0
        said = capsys.readouterr().out
        assert run(["--data-dir", str(tmp_path), "top", "--once"]) == 1
        assert "no broker runs on" in capsys.readouterr().err
    finally:
        broker.close()
    assert "connections 1   channels 1   queues 1   ready 3" in said
    [line] = [line for line in said.splitlines() if "busiest" in line]
    assert line.split()[:3] == ["/", "busiest", "3"]
