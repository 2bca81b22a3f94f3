"""A running node, as use cases act on it, without a shell: it does at once what they settle."""

from __future__ import annotations

from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.node.alarm_board import AlarmBoard
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness

ROOT = Operator(uid=0)
"""somebody at the control socket"""
ALICE = Operator(user="alice")
"""somebody whose permissions count"""


def running(limits: Limits | None = None, automatic: bool = True) -> tuple[Harness, Running]:
    harness = Harness(limits, automatic)

    def changed(kind: str, on: bool) -> None:
        harness.node.alarms.set(kind, on)

    return harness, Running(harness.node, harness.step, AlarmBoard(changed))
