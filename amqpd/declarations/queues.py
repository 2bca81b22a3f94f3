"""Queues: declared, found, deleted.

What comes in: who asks, a name, properties. What goes out: a change; and a call when it has been made, with the
queue.
Rules: 1. One that is there is equivalent, or it is refused; another connection's exclusive one is refused whatever
else differs. 2. `amq.*` is the broker's.
Not here: methods and their answers (`methods/queue.py`), arguments (`queues/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pamqp.exceptions import AMQPAccessRefused, AMQPNotImplemented, AMQPPreconditionFailed, AMQPSoftError

from amqpd.declarations.asker import Asker, RoundTrip
from amqpd.declarations.locating import wanted_of
from amqpd.declarations.names import (
    existing_queue,
    locked,
    refuse_crashed,
    refuse_locked,
    refuse_reserved,
    require_equal,
    require_equal_arguments,
)
from amqpd.node.cluster import LOCAL, WantedSource
from amqpd.queues.arguments import (
    DECLARE_ARGUMENTS,
    check_dead_letter_exchange,
    check_declaration,
    described_queue,
    refuse_server_named,
    with_default_type,
)
from amqpd.queues.port import Condition, QueuePort, Resume
from amqpd.queues.settings import QUORUM, type_of
from amqpd.security.access import Permission
from amqpd.vocabulary.records import Arguments, QueueRecord

_ANY: tuple[Permission, ...] = ("configure", "write", "read")


def passive_queue(asker: Asker, name: str) -> QueuePort:
    """The queue, for those who may do anything with it; compares nothing: KEDA relies on that. Raises AMQPNotFound,
    AMQPAccessRefused, AMQPResourceLocked."""
    for permission in _ANY:
        try:
            asker.require(permission, "queue", name)
            break
        except AMQPAccessRefused as error:
            refused = error
    else:
        raise refused
    return existing_queue(asker, name)


class WantedQueue(NamedTuple):
    """A queue as somebody declares it; an empty name asks for one of the broker's."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Arguments = {}


def declare_queue(
    asker: Asker, wanted: WantedQueue, declared: Callable[[QueuePort, bool], None], *, balanced: bool = True
) -> None:
    """`declared` is given the queue, and whether it is new: a new one may be led by another node. `balanced`: it may
    have it elsewhere. Raises AMQPAccessRefused, AMQPResourceLocked, AMQPPreconditionFailed."""
    node = asker.node
    name, durable, exclusive, auto_delete, arguments = wanted
    # An exclusive queue does not outlive its connection: transient whatever it says, as in RabbitMQ.
    stays = durable and not exclusive
    metadata = node.topology.vhost_records[asker.vhost].metadata
    typed = with_default_type(arguments, metadata.get("default_queue_type"), stays, exclusive, auto_delete)
    again = partial(declare_queue, asker, wanted, declared, balanced=balanced)
    if not name:
        refuse_server_named(typed)
        name = "amq.gen-" + node.token()
    else:
        # Even of a queue that is there: only a passive declaration may name one that the broker named.
        refuse_reserved("queue", name)
    asker.require("configure", "queue", name)
    record = QueueRecord(
        asker.vhost,
        name,
        node.new_queue_id(),
        durable=stays,
        auto_delete=auto_delete,
        exclusive=exclusive,
        owner=asker.client.id if exclusive and asker.client is not None else None,
        arguments=typed,
        node=node.sources.node,
    )

    def found() -> None:
        queue = asker.queue(name)
        if queue is None:
            again()  # it has gone while this waited
            return
        node.totals.queues_declared += 1
        declared(queue, False)

    if (existing := asker.queue(name)) is not None:
        _require_equivalent(record, existing.record)
        refuse_crashed(node, existing)
        asker.once_known(found)
        return
    _check_new(asker, record)

    def done(created: bool) -> None:
        if created and (queue := asker.queue(name)) is not None:
            node.totals.queues_declared += 1
            declared(queue, True)
            return
        # Somebody was faster.
        again()

    if node.cluster.replicates and type_of(typed) == QUORUM:
        source = _source_of(asker, record, balanced, again)
        if source == LOCAL:
            return
        record = replace(record, source=source, node="")
    node.client_counters.declare_queue(record, asker.suspend(done), partial(node.changes.submit, by=asker.by))


def _source_of(asker: Asker, record: QueueRecord, balanced: bool, again: Callable[..., None]) -> int:
    """`LOCAL`: there is none yet, and it goes on `again` when there is."""
    cluster = asker.node.cluster
    _refuse_isolated(asker, record)
    policy = asker.node.topology.policy_of("queue", record.vhost, record.name, QUORUM).definition
    request = wanted_of(record, policy)
    if not balanced:
        request = request._replace(balanced="")
    source = cluster.source_for(request)
    if source == LOCAL:
        cluster.want_source(request, asker.suspend(partial(_source_came, asker, record, request, again)))
    return source


def _refuse_isolated(asker: Asker, record: QueueRecord) -> None:
    """A node that the others refuse, or do not reach: nobody would keep the queue. Raises
    AMQPPreconditionFailed."""
    reason = asker.node.cluster.isolation()
    if reason:
        raise AMQPPreconditionFailed(f"{described_queue(record)} cannot be declared here: {reason}")


def _source_came(
    asker: Asker, record: QueueRecord, request: WantedSource, again: Callable[..., None], found: bool
) -> None:
    if not found:
        _refuse_isolated(asker, record)
    if not found and request.balanced:
        again(balanced=False)  # a leader that is not where it would be best is better than no queue
        return
    if not found:
        raise AMQPPreconditionFailed(
            f"{described_queue(record)} cannot be declared now: this node reaches no majority of the cluster's "
            "nodes, try again later"
        )
    again()


def _check_new(asker: Asker, record: QueueRecord) -> None:
    """Who names a dead letter exchange must be able to read here and write there, or it would be a way around
    permissions (https://www.rabbitmq.com/docs/dlx#security). RabbitMQ looks at that first."""
    dead_letter_exchange = check_dead_letter_exchange(record)
    if dead_letter_exchange is not None:
        asker.require("read", "queue", record.name)
        asker.require("write", "exchange", dead_letter_exchange)
    check_declaration(record)


def _require_equivalent(received: QueueRecord, current: QueueRecord) -> None:
    resource = described_queue(current)
    if received.owner != current.owner or (received.owner is not None and received.node != current.node):
        raise locked(current)  # whatever else differs, as RabbitMQ has it
    require_equal(resource, "durable", received.durable, current.durable)
    require_equal(resource, "auto_delete", received.auto_delete, current.auto_delete)
    names = DECLARE_ARGUMENTS[type_of(current.arguments)]
    require_equal_arguments(resource, names, _with_type(received.arguments), _with_type(current.arguments))


def _with_type(arguments: Arguments) -> dict[str, Any]:
    """A queue without a type is a classic one, and RabbitMQ 4 compares it so."""
    return {"x-queue-type": "classic", **arguments}


def delete_queue(
    asker: Asker,
    name: str,
    *,
    if_unused: bool,
    if_empty: bool,
    deleted: Callable[[int | None], None],
    any_type: bool = False,
) -> None:
    """`deleted` is told how many ready messages went with it, None when there was none of that name. `any_type`: a
    quorum queue's leader judges the conditions, too, which clients are refused. Raises AMQPAccessRefused,
    AMQPResourceLocked, AMQPNotImplemented, AMQPNotFound when they cannot be judged here, AMQPPreconditionFailed, or
    has the asker told so later, when it is in use or not empty and must not be."""
    node = asker.node
    asker.require("configure", "queue", name)
    queue = asker.queue(name)
    if queue is None:
        asker.once_known(lambda: deleted(None))
        return
    refuse_locked(asker, queue.record)
    node.dispatch(queue)  # one that is out of service, or goes out of it now, can be deleted
    if queue.quorum and not any_type:
        _refuse_conditions(queue.record, if_unused, if_empty)
    elif (if_unused or if_empty) and (queue.is_remote or queue.quorum):
        refuse_crashed(node, queue)  # only the node that leads it can judge them

    def take_out(condition: Condition, done: Resume) -> None:
        node.changes.remove(queue.record, done, condition, asker.by)

    def answered(count: int | AMQPSoftError) -> None:
        if isinstance(count, AMQPSoftError):
            raise count
        deleted(count)

    trip = RoundTrip()
    queue.remove(if_unused, if_empty, take_out, trip.answer)
    trip.then(asker.suspend, answered)


def _refuse_conditions(record: QueueRecord, if_unused: bool, if_empty: bool) -> None:
    """https://www.rabbitmq.com/docs/specification: quorum queues are deleted whatever is in them."""
    for flag, asked in (("if-unused", if_unused), ("if-empty", if_empty)):
        if asked:
            raise AMQPNotImplemented(
                f"cannot delete {described_queue(record)}. queue.delete operations with {flag} flag set are not "
                "supported by quorum queues"
            )
