"""Exchanges: declared and deleted.

What comes in: who asks, a name, properties. What goes out: a change; and a call when it has been made.
Rules: 1. One that is there is equivalent, or it is refused. 2. `amq.*` is the broker's.
Not here: methods and their answers (`methods/exchange.py`), types (`amqpd/exchanges/`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPPreconditionFailed

from amqpd.declarations.asker import Asker
from amqpd.declarations.names import (
    refuse_default_exchange,
    refuse_reserved,
    require_equal,
    require_equal_arguments,
)
from amqpd.exchanges.types import check_exchange, check_type
from amqpd.topology.policy_keys import ALTERNATE_EXCHANGE
from amqpd.vocabulary.records import ExchangeRecord, Put
from amqpd.wire.values import field_type

EQUIVALENCE_ARGUMENTS = (ALTERNATE_EXCHANGE,)


def require_exchange(asker: Asker, name: str) -> None:
    """A passive declaration. Raises AMQPNotFound, AMQPAccessRefused for the default exchange."""
    refuse_default_exchange(name)
    if name not in asker.node.topology.vhosts[asker.vhost].exchanges:
        raise AMQPNotFound(f"no exchange '{name}' in vhost '{asker.vhost}'")


def declare_exchange(asker: Asker, record: ExchangeRecord, declared: Callable[[bool], None]) -> None:
    """`declared` is told whether it is new. Raises AMQPAccessRefused, AMQPPreconditionFailed, and what `check_type`
    and `check_exchange` raise."""
    node, name = asker.node, record.name
    refuse_default_exchange(name)
    existing = node.topology.vhosts[asker.vhost].exchanges.get(name)
    check_type(record.type)
    asker.require("configure", "exchange", name)
    if existing is not None:
        _require_equivalent(record, existing.record)
        asker.once_known(lambda: declared(False))
        return
    refuse_reserved("exchange", name)
    _check_alternate(asker, record)
    check_exchange(record)
    node.client_counters.require_exchange(record)

    def done(created: bool) -> None:
        if created:
            declared(True)
        else:
            declare_exchange(asker, record, declared)  # somebody was faster: it exists now

    node.changes.submit([Put(record, create=True)], asker.suspend(done), by=asker.by)


def _require_equivalent(received: ExchangeRecord, current: ExchangeRecord) -> None:
    resource = f"exchange '{current.name}' in vhost '{current.vhost}'"
    require_equal(resource, "type", received.type, current.type)
    require_equal(resource, "durable", received.durable, current.durable)
    require_equal(resource, "auto_delete", received.auto_delete, current.auto_delete)
    require_equal(resource, "internal", received.internal, current.internal)
    require_equal_arguments(resource, EQUIVALENCE_ARGUMENTS, received.arguments, current.arguments)


def _check_alternate(asker: Asker, record: ExchangeRecord) -> None:
    """Who names an alternate must be able to read here and write there, or it would be a way around permissions."""
    if ALTERNATE_EXCHANGE not in record.arguments:
        return
    alternate = record.arguments[ALTERNATE_EXCHANGE]
    if not isinstance(alternate, str):
        raise AMQPPreconditionFailed(
            f"invalid type '{field_type(alternate)}' for arg '{ALTERNATE_EXCHANGE}' in exchange '{record.name}' in "
            f"vhost '{record.vhost}'"
        )
    asker.require("read", "exchange", record.name)
    asker.require("write", "exchange", alternate)


def delete_exchange(asker: Asker, name: str, *, if_unused: bool, deleted: Callable[[bool], None]) -> None:
    """`deleted` is told whether it was there. Raises AMQPAccessRefused, AMQPPreconditionFailed when it is in use and
    must not be."""
    node = asker.node
    refuse_default_exchange(name)
    if name.startswith("amq."):
        raise AMQPAccessRefused(f"deletion of system exchange '{name}' in vhost '{asker.vhost}' not allowed")
    asker.require("configure", "exchange", name)
    vhost = node.topology.vhosts[asker.vhost]

    def may_go() -> bool:
        return not (if_unused and vhost.bindings_from(name))

    def done(gone: bool) -> None:
        if not gone:
            raise AMQPPreconditionFailed(f"exchange '{name}' in vhost '{asker.vhost}' in use")
        deleted(True)

    if name not in vhost.exchanges:
        asker.once_known(lambda: deleted(False))
    elif not may_go():
        done(False)
    else:
        node.changes.remove(vhost.exchanges[name].record, asker.suspend(done), may_go, asker.by)
