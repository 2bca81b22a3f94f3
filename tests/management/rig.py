"""A running node, as use cases act on it, without a shell: it does at once what they cause."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import trio

from amqpd.management.across_nodes import led_queues
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.node.node import Node
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness

ROOT = Operator(uid=0)
"""somebody at the control socket"""
ALICE = Operator(user="alice")
"""somebody whose permissions count"""


def running(limits: Limits | None = None, automatic: bool = True) -> tuple[Harness, Running]:
    harness = Harness(limits, automatic)
    return harness, Running(harness.node, harness.step)


def listed(node: Node) -> AsyncGenerator[list[dict[str, Any]], None]:
    """What `queue list` says on a node that nobody else speaks to."""
    on = Running(node, lambda: None)
    return led_queues.listed(on, Leaders(node.identity.name, node.sources, None, None), {})


def queue_rows(node: Node) -> list[dict[str, Any]]:
    """The same, to the end."""
    return rows_of(listed(node))


def rows_of(pages: AsyncGenerator[list[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """All of them, to the end."""

    async def gathered() -> list[dict[str, Any]]:
        return [row async for page in pages for row in page]

    return trio.run(gathered)
