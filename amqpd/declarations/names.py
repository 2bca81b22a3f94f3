"""Names and equivalence: the checks that declarations of exchanges and queues share.

What comes in: names and arguments as they were given. What goes out: cleaned names, or the error.
Rules: texts are RabbitMQ's, because libraries and tests compare them; `management/plain_words.py` reads them, and
says them again for people.
Not here: permissions (`security/access.py`).
"""

from __future__ import annotations

from typing import Any

from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPPreconditionFailed, AMQPResourceLocked

from amqpd.declarations.asker import Asker
from amqpd.node.node import Node
from amqpd.queues.arguments import crashed
from amqpd.queues.port import QueuePort
from amqpd.vocabulary.records import QueueRecord
from amqpd.wire.values import NestedTooDeep, equivalent, erlang_term


class Inequivalent(AMQPPreconditionFailed):
    """The exchange or queue that is declared exists with other properties."""


class NotLedHere(AMQPNotFound):
    """The queue is there, and another node leads it, or none does at present."""

    def __init__(self, record: QueueRecord, text: str) -> None:
        super().__init__(text)
        self.source = record.source


def strip(name: str | None) -> str:
    """Without CR and LF, as RabbitMQ stores names."""
    return (name or "").replace("\r", "").replace("\n", "")


def refuse_reserved(kind: str, name: str) -> None:
    if name.startswith("amq."):
        raise AMQPAccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def refuse_default_exchange(name: str) -> None:
    if not name:
        raise AMQPAccessRefused("operation not permitted on the default exchange")


def existing_queue(asker: Asker, name: str) -> QueuePort:
    """The queue, which may be used by the one that asks and is in service. Raises AMQPNotFound,
    AMQPResourceLocked."""
    queue = asker.queue(name)
    if queue is None:
        raise AMQPNotFound(f"no queue '{name}' in vhost '{asker.vhost}'")
    refuse_locked(asker, queue.record)
    refuse_crashed(asker.node, queue)
    return queue


def refuse_crashed(node: Node, queue: QueuePort) -> None:
    """Raises AMQPNotFound for one that is out of service (`amqpd/node/quarantine.py`), or not here."""
    if queue.is_away:
        raise _led_by_another(node, queue.record)
    if queue.crash_reason is not None:
        raise crashed(queue.record)
    if queue.lane in node.cut_off_lanes:
        # Another node may serve it by now: what this one would answer may be out of date.
        raise AMQPNotFound(
            f"{_inaccessible(queue.record, queue.record.node)}: a majority of the nodes that keep it does not answer"
        )


def _led_by_another(node: Node, record: QueueRecord) -> NotLedHere:
    """RabbitMQ's words for a queue whose leader is down; the way out for one whose leader is another node."""
    leader = node.sources.leader_of(record)
    if not record.source and not record.node:
        return NotLedHere(
            record,
            f"{_described(record)} has no node yet: it gets one when all nodes of the cluster have been started, or "
            "were forgotten",
        )
    if not leader or leader == node.identity.name:
        return NotLedHere(record, _inaccessible(record, record.node))
    if not node.cluster.is_member(leader):
        # It led the queue last, and nobody follows it: too few of the others are there.
        return NotLedHere(record, _inaccessible(record, leader))
    return NotLedHere(record, f"home node '{leader}' of {_described(record)} is another node: connect to that one")


def _inaccessible(record: QueueRecord, leader: str) -> str:
    """`leader`: its node; empty where it is not known."""
    leader = f"home node '{leader}'" if leader else "the leader"
    return f"{leader} of {_described(record)} is down or inaccessible"


def _described(record: QueueRecord) -> str:
    durable = "durable " if record.durable else ""
    return f"{durable}queue '{record.name}' in vhost '{record.vhost}'"


def dispatched(node: Node, queue: QueuePort) -> None:
    """Dispatch it, before somebody looks at it. Raises AMQPNotFound when that takes it out of service."""
    node.dispatch(queue)
    refuse_crashed(node, queue)


def refuse_locked(asker: Asker, record: QueueRecord) -> None:
    """Raises AMQPResourceLocked for an exclusive queue of another connection."""
    if record.exclusive and not asker.owns(record):
        raise locked(record)


def locked(record: QueueRecord) -> AMQPResourceLocked:
    # AMQP gives a reply text 255 bytes, and RabbitMQ's has the same words.
    return AMQPResourceLocked(
        f"cannot obtain exclusive access to locked queue '{record.name}' in vhost '{record.vhost}'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the "
        "original declaration."
    )


def require_equal(resource: str, argument: str, received: bool | str, current: bool | str) -> None:
    """Raises Inequivalent when a redeclaration differs in one property."""
    if received != current:
        words = [str(value).lower() if isinstance(value, bool) else value for value in (received, current)]
        raise Inequivalent(
            f"inequivalent arg '{argument}' for {resource}: received '{words[0]}' but current is '{words[1]}'"
        )


def require_equal_arguments(resource: str, names: tuple[str, ...], received: Any, current: Any) -> None:
    """The arguments that matter for equivalence are `names`; the others may differ (rabbitmq-server issue 12346).
    Integers of different width are equal. Raises Inequivalent."""
    received, current = received or {}, current or {}
    for name in names:
        if name not in received and name not in current:
            continue
        if name in received and name in current:
            if equivalent(received[name]) == equivalent(current[name]):
                continue
            # Where both are there RabbitMQ shows no types: '1' and 1 look alike.
            words = f"received '{_term(received[name])[1]}' but current is '{_term(current[name])[1]}'"
        elif name in received:
            words = f"received {_typed(received[name])} but current is none"
        else:
            words = f"received none but current is {_typed(current[name])}"
        raise Inequivalent(f"inequivalent arg '{name}' for {resource}: {words}")


def _typed(value: Any) -> str:
    kind, text = _term(value)
    return f"the value '{text}' of type '{kind}'"


def _term(value: Any) -> tuple[str, str]:
    """(type, value), where text stands for itself."""
    if isinstance(value, str | bytes):
        return "longstr", value if isinstance(value, str) else value.decode("utf-8", "replace")
    try:
        return erlang_term(value)
    except NestedTooDeep:
        return "table" if isinstance(value, dict) else "array", "..."
