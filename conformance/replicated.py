"""Queues that tests make exclusive, so that they go with the connection, made durable: then they are quorum queues.

What comes in: a test's connections, and its names. What goes out: the same, whose declarations are changed on the
way.
Rules: 1. Only where the default queue type is quorum. 2. A quorum queue cannot have a name of the broker's: it gets
one of the test's, which is deleted at its end. 3. A test that names a queue's type, or is about exclusive queues
themselves (`EXCLUSIVE`), is left as it is.
Not here: what is otherwise then, and why (`quorum_default.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pamqp import base, commands

from tests.clients.wire import Wire

Name = Callable[[str], str]
EXCLUSIVE = frozenset(
    f"test_queue::{test}"
    for test in (
        "test_declare_exclusive_or_not",
        "test_names_of_the_broker",
        "test_a_name_of_the_broker_again",
        "test_exclusive",
        "test_exclusive_goes_with_its_connection",
    )
) | {"test_ext_redeclare::test_classic_is_the_type_of_a_queue_without_one"}
"""`file::test`: it asks what exclusive queues are, names that a broker gives, or classic queues"""


def is_about_exclusive(case: str) -> bool:
    """`case`: an id of pytest's."""
    return case.removeprefix("conformance/").replace(".py::", "::").partition("[")[0] in EXCLUSIVE


class ReplicatedWire(Wire):
    """`new_name` gives a name that nobody else uses."""

    new_name: Name
    made = 0

    def send(self, *methods: base.Frame, channel: int = 0) -> None:
        for method in methods:
            if isinstance(method, commands.Queue.Declare) and _is_to_change(
                method.exclusive, method.passive, method.arguments
            ):
                method.exclusive, method.durable = False, True
                method.queue = method.queue or self._name()
        super().send(*methods, channel=channel)

    def _name(self) -> str:
        self.made += 1
        return self.new_name(f"made{id(self)}.{self.made}")


def replicate(connection: pika.BlockingConnection, name: Name) -> pika.BlockingConnection:
    """The connection; channels that it opens from now on declare what `ReplicatedWire` does."""
    opened = connection.channel
    made = 0

    def channel(*arguments: Any, **options: Any) -> Any:
        channel = opened(*arguments, **options)
        declared = channel.queue_declare

        def declare(queue: str, **options: Any) -> Any:
            nonlocal made
            if _is_to_change(options.get("exclusive"), options.get("passive"), options.get("arguments")):
                made += 1
                options |= {"exclusive": False, "durable": True}
                queue = queue or name(f"made{id(connection)}.{made}")
            return declared(queue, **options)

        channel.queue_declare = declare
        return channel

    connection.channel = channel
    return connection


def _is_to_change(exclusive: bool | None, passive: bool | None, arguments: dict[str, Any] | None) -> bool:
    return bool(exclusive) and not passive and "x-queue-type" not in (arguments or {})
