"""With a budget that one message uses up, everything goes on in many ticks, and what clients see is the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from amqpd import KERNEL
from amqpd.flow import turns
from amqpd.node import dispatching, node
from tests.model.commands import THEMES, Theme, draw, run
from tests.node.test_no_stall import NoStall

pytestmark = pytest.mark.skipif(KERNEL != "python", reason="what is compiled has its constants built in")

LENGTH, LIVES = 60, 2
# (of a connection's turn, of queues in a tick). Less than a look at one queue and a piece of it would do nothing.
BUDGETS = [(1, 20), (20, 60), (50, 250)]


@pytest.fixture(autouse=True, params=BUDGETS, ids=str)
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    of_turn, of_queues = request.param
    monkeypatch.setattr(turns, "TURN_WORK_MAX", of_turn)
    monkeypatch.setattr(turns, "TURN_WORK_MIN", of_turn)
    monkeypatch.setattr(node, "QUEUES_WORK_MAX", of_queues)
    monkeypatch.setattr(dispatching, "QUEUES_SHARE_MIN", of_queues // 4)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_a_node_does_what_the_model_says(theme: Theme) -> None:
    for incarnation in range(LIVES):
        run(draw(theme, random.Random(f"small {theme.name} {incarnation}"), LENGTH))


def test_a_message_and_a_consumer_with_credit_do_not_wait_beside_each_other() -> None:
    case = NoStall.TestCase("runTest")
    case.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)
    case.runTest()
