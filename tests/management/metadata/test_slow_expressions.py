"""An expression that was given up is told in the log, once."""

from __future__ import annotations

import pytest
import structlog
import trio
import trio.testing

from amqpd.management.metadata import slow_expressions

pytestmark = pytest.mark.trio


async def test_each_is_told_once(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["(?!x)(a|aa)+$"]
    monkeypatch.setattr(slow_expressions, "given_up", lambda: found)
    with structlog.testing.capture_logs() as told:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow_expressions.tell_given_up)
            await trio.sleep(3 * slow_expressions.LOOK_S)
            found.append("second")
            await trio.sleep(3 * slow_expressions.LOOK_S)
            nursery.cancel_scope.cancel()
    assert [each["pattern"] for each in told] == ["(?!x)(a|aa)+$", "second"]
    assert {each["log_level"] for each in told} == {"warning"}
