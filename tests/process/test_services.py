"""What the core tells is in the log at the level that somebody has decided on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import amqpd
from amqpd.process.services import LEVELS, BrokerServices
from amqpd.security.authentication.logins import Logins

CORE = ("connection.py", "channels.py", "pump.py", "node", "publishing", "queues", "scrub.py", "session", "transport")


def told() -> set[str]:
    """The names of all events that the core tells."""
    names = set()
    package = Path(amqpd.__file__).parent
    for place in CORE:
        for path in [package / place] if place.endswith(".py") else (package / place).rglob("*.py"):
            for each in ast.walk(ast.parse(path.read_text())):
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "log":
                    [name, *_] = each.args
                    if isinstance(name, ast.Constant):
                        names.add(str(name.value))
    return names | {"firehose_dropped", "events_dropped"}  # named by `OwnPublishes`


def test_each_event_has_a_level() -> None:
    assert told() == set(LEVELS)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ("queue_fenced", "error"),
        ("dead_letter_lost", "warning"),
        ("connection_open", "info"),
        ("unheard of", "warning"),
    ],
)
def test_what_stops_deliveries_is_an_error(event: str, level: str) -> None:
    with capture_logs() as lines:
        BrokerServices(Logins(None)).log(event, {"queue": "q"})  # type: ignore[arg-type]
    assert lines == [{"component": "node", "event": event, "log_level": level, "queue": "q"}]
