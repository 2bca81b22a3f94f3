"""Frame and channel limits: what is negotiated, and what happens beyond it."""

from __future__ import annotations

from collections.abc import Callable

from conformance.rules import rule
from tests.clients.wire import Wire


@rule("AMQP 0-9-1 section 1.4.2.5", "The broker proposes limits that it keeps: channels, frame size, heartbeat.")
def test_tune_proposes_limits(wire: Callable[..., Wire]) -> None:
    tune = wire().tune
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)
