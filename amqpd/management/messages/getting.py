"""Messages that an operator gets from a queue, as a client's basic.get would.

What comes in: a queue, how many, what becomes of them. What goes out: rows of messages.
Rules: 1. Messages are taken: consumers do not get what is being looked at, and what goes back is redelivered. To look
without taking there is `operations.py`. 2. What goes back does so however the command ends. 3. What is acknowledged
is gone when the answer is made: an answer that is lost takes the messages with it.
Not here: publishing (`publishing.py`), who consumes (`figures/inventory.py`).

Source for names: https://www.rabbitmq.com/docs/http-api-reference, /api/queues/{vhost}/{name}/get.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Literal, TypedDict, get_args

from pamqp.exceptions import AMQPSoftError

from amqpd.audit.kinds import REDELIVERED
from amqpd.audit.party import Party
from amqpd.declarations.asker import Asker
from amqpd.declarations.names import dispatched, existing_queue, refuse_crashed
from amqpd.management.asking import ask, refusals
from amqpd.management.errors import BadArgument, Unavailable
from amqpd.management.operators import Operator
from amqpd.management.running import NodeAnswer, Running
from amqpd.queues.contents import names, properties_of
from amqpd.queues.levels import SEQ_MASK
from amqpd.queues.port import Got, QueuePort

AckMode = Literal["ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false"]
Encoding = Literal["auto", "base64"]
# All of them stand in memory and in one answer.
COUNT_MAX = 1_000


class GotRow(TypedDict):
    """A message, by the names of RabbitMQ's HTTP API."""

    payload_bytes: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int
    """ready messages that are left"""
    properties: dict[str, Any]
    payload: str
    payload_encoding: str
    """string or base64"""


async def get(
    on: Running,
    by: Operator,
    vhost: str,
    name: str,
    *,
    count: int = 1,
    ackmode: AckMode = "ack_requeue_true",
    encoding: Encoding = "auto",
    truncate: int | None = None,
) -> list[GotRow]:
    """At most `count` messages, `truncate` bytes of each body; fewer when there are no more. With `auto` a body is a
    text where it is UTF-8. Raises BadArgument, NotFound, NotPermitted, Conflict for another's exclusive queue,
    Unavailable when it goes out of service."""
    if not 1 <= count <= COUNT_MAX:
        raise BadArgument(f"count must be a number from 1 to {COUNT_MAX}")
    if ackmode not in get_args(AckMode):
        raise BadArgument(f"ackmode is one of {', '.join(get_args(AckMode))}")
    if encoding not in get_args(Encoding):
        raise BadArgument(f"encoding is one of {', '.join(get_args(Encoding))}")
    if truncate is not None and truncate < 0:
        raise BadArgument("truncate must be a number, 0 or more")

    def act(asker: Asker, done: Callable[[QueuePort], None]) -> None:
        asker.require("read", "queue", name)
        queue = existing_queue(asker, name)
        # What was published before is the consumers', as far as they have credit.
        dispatched(asker.node, queue)
        refuse_crashed(asker.node, queue)
        done(queue)

    queue = await ask(on, by, vhost, act)
    taken: list[int] = []
    found: list[GotRow] = []
    requeue = True
    try:
        answer: Got | AMQPSoftError | None = None
        while len(found) < count and isinstance(answer := await _take(on, by, queue), Got):
            taken.append(answer.piece[3])
            found.append(_row(answer, encoding, truncate))
        if not found:
            with refusals(Unavailable):
                refuse_crashed(on.node, queue)
                if isinstance(answer, AMQPSoftError):
                    raise answer
        requeue = ackmode not in ("ack_requeue_false", "reject_requeue_false")
    finally:
        _conclude(on, queue, taken, requeue, acknowledge=ackmode == "ack_requeue_false")
    return found


async def _take(on: Running, by: Operator, queue: QueuePort) -> Got | AMQPSoftError | None:
    """The next message, or why there is none. The queue may have to read it from the disk."""
    answer: NodeAnswer[Got | AMQPSoftError | None] = NodeAnswer()
    left = False

    def take(got: Got | AMQPSoftError | None) -> bool:
        if not left:
            answer.give(got)
        return not left

    try:
        queue.get(False, take)
    except Exception as error:
        on.node.quarantine(queue, error)
        raise Unavailable(f"the queue '{queue.record.name}' is out of service: `amqpd status` says why") from error
    on.node.to_dispatch.add(queue)
    on.run_effects()
    try:
        got = await answer.wait()
    finally:
        left = True
    if isinstance(got, Got) and got.book is not None:
        party = Party({"connection": "", "user": by.user or "", "consumer": ""})
        run, _, _, seq, redelivered = got.piece
        got.book.delivered(
            seq & SEQ_MASK, 1, REDELIVERED if redelivered else 0, party, 0, run.body_bytes // run.count
        )
    return got


def _conclude(on: Running, queue: QueuePort, taken: list[int], requeue: bool, *, acknowledge: bool) -> None:
    """What was taken goes back, is acknowledged, or rejected: a dead letter, where the queue has somewhere to send
    it."""
    try:
        for seq in taken:
            if requeue:
                queue.requeue(seq, seq)
            elif acknowledge:
                queue.settle(seq, seq)
            else:
                queue.reject(seq, seq)
    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
        on.node.quarantine(queue, error)
    on.node.to_dispatch.add(queue)
    on.run_effects()


def _row(got: Got, encoding: str, truncate: int | None) -> GotRow:
    piece = got.piece
    run, at = piece[0].part(piece[1], piece[1] + 1), 0
    body = run.body(at)[:truncate]
    text = None
    if encoding == "auto":
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = None
    named = names(run)
    return {
        "payload_bytes": run.body_size,
        "redelivered": piece[4],
        "exchange": named["exchange"],
        "routing_key": named["routing_key"],
        "message_count": got.ready,
        "properties": properties_of(run.properties),
        "payload": b64encode(body).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "string",
    }
