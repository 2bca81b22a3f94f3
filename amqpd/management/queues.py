"""Queues: declared, deleted and purged by an operator.

What comes in: names and properties; arguments as JSON. What goes out: queues; counts of messages.
Rules: 1. What a client would be refused is refused here, with the same words (`amqpd/declarations/`). 2. Deleting
what is not there is `NotFound`: for clients it is a success. 3. No queue is declared exclusive: an operator has no
connection that it would belong to.
Not here: lists and facts (`figures/inventory.py`, `figures/queue_facts.py`), messages one by one
(`messages/operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog
import trio
from pamqp.exceptions import AMQPSoftError

from amqpd.declarations.asker import Asker
from amqpd.declarations.names import dispatched, existing_queue
from amqpd.declarations.queues import WantedQueue, declare_queue, delete_queue
from amqpd.management.asking import ask, checked_arguments, checked_name, refusals
from amqpd.management.errors import BadArgument, Conflict, NotFound, Unavailable
from amqpd.management.operators import Operator
from amqpd.management.running import NodeAnswer, Running
from amqpd.queues.port import QueuePort

log = structlog.get_logger(component="operations")


async def declare(
    on: Running,
    by: Operator,
    vhost: str,
    name: str,
    *,
    durable: bool = True,
    auto_delete: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> bool:
    """Whether it is new. Raises BadArgument, NotFound, AlreadyExists, NotPermitted, Conflict for one that is
    exclusive to a connection."""
    if not name:
        raise BadArgument("a queue needs a name that is not empty")
    name, table = checked_name("queue's name", name), checked_arguments(dict(arguments or {}))
    wanted = WantedQueue(name, durable, auto_delete=auto_delete, arguments=table)

    def act(asker: Asker, done: Callable[[bool], None]) -> None:
        declare_queue(asker, wanted, lambda _, new: done(new))

    return await ask(on, by, vhost, act)


async def delete(
    on: Running,
    by: Operator,
    vhost: str,
    name: str,
    *,
    if_unused: bool = False,
    if_empty: bool = False,
    any_type: bool = False,
) -> int:
    """How many ready messages went with it. `any_type`: the conditions hold for quorum queues that this node leads,
    too. Raises NotFound, NotPermitted, Conflict when it is in use or not empty and must not be."""
    name = checked_name("queue's name", name)

    def act(asker: Asker, done: Callable[[int | None], None]) -> None:
        delete_queue(asker, name, if_unused=if_unused, if_empty=if_empty, deleted=done, any_type=any_type)

    count = await ask(on, by, vhost, act, otherwise=Conflict)
    if count is None:
        raise NotFound(f"no queue '{name}' in vhost '{vhost}'")
    return count


async def purge(on: Running, by: Operator, vhost: str, name: str) -> int:
    """How many ready messages are gone, the broker going on in between. Raises NotFound, NotPermitted, Conflict,
    Unavailable when the queue goes out of service."""
    node = on.node

    def act(asker: Asker, done: Callable[[QueuePort], None]) -> None:
        asker.require("read", "queue", name)
        queue = existing_queue(asker, name)
        dispatched(node, queue)
        done(queue)

    queue = await ask(on, by, vhost, act)
    answer: NodeAnswer[int] = NodeAnswer()

    def purged(count: int | AMQPSoftError) -> None:
        if isinstance(count, AMQPSoftError):
            answer.fail(count)
            return
        log.warning("queue purged by an operator", queue=name, vhost=vhost, count=count, **by.log_fields)
        node.acts.purged(by.caller, vhost, name, count)
        answer.give(count)

    steps = queue.purging(purged)
    try:
        while _goes_on(on, queue, steps):
            on.run_effects()
            await trio.lowlevel.checkpoint()
    finally:
        steps.close()
    with refusals(Conflict):
        return await answer.wait()


def _goes_on(on: Running, queue: QueuePort, steps: Iterator[int]) -> bool:
    """Do one more step; whether there was one."""
    try:
        return next(steps, None) is not None
    except Exception as error:
        on.node.quarantine(queue, error)
        raise Unavailable(f"the queue '{queue.record.name}' is out of service: `amqpd status` says why") from error
