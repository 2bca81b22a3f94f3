"""exchange.declare, delete, bind, unbind (section 1.6; exchange-to-exchange: https://www.rabbitmq.com/docs/e2e)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPPreconditionFailed

from amqpd.exchanges.types import check_exchange, check_type
from amqpd.methods.bindings import bind_to, unbind_from
from amqpd.methods.names import (
    refuse_default_exchange,
    refuse_reserved,
    require_equal,
    require_equal_arguments,
    strip,
)
from amqpd.topology.policy_keys import ALTERNATE_EXCHANGE
from amqpd.vocabulary.records import ExchangeRecord, Put
from amqpd.wire.values import field_type

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.node.node import Handlers

EQUIVALENCE_ARGUMENTS = (ALTERNATE_EXCHANGE,)


def declare(channel: Channel, method: commands.Exchange.Declare) -> None:
    connection, node = channel.connection, channel.node
    name = strip(method.exchange)
    refuse_default_exchange(name)
    existing = node.topology.vhosts[connection.vhost].exchanges.get(name)
    if method.passive:
        if existing is None:
            raise AMQPNotFound(f"no exchange '{name}' in vhost '{connection.vhost}'")
        _declared(channel, method)
        return
    type_name = strip(method.exchange_type)
    check_type(type_name)
    node.access.require(connection.user, connection.vhost, "configure", "exchange", name)
    record = ExchangeRecord(
        connection.vhost,
        name,
        type_name,
        durable=bool(method.durable),
        auto_delete=bool(method.auto_delete),
        internal=bool(method.internal),
        arguments=method.arguments or {},
    )
    if existing is not None:
        _require_equivalent(record, existing.record)
        _declared(channel, method)
        return
    refuse_reserved("exchange", name)
    _check_alternate(channel, record)
    check_exchange(record)
    node.census.require_exchange(record)

    def declared(created: bool) -> None:
        if created:
            _declared(channel, method)
        else:
            declare(channel, method)  # somebody was faster: it exists now

    node.submit([Put(record, create=True)], channel.suspend(declared), by=connection)


def _declared(channel: Channel, method: commands.Exchange.Declare) -> None:
    if not method.nowait:
        channel.send(commands.Exchange.DeclareOk())


def _require_equivalent(received: ExchangeRecord, current: ExchangeRecord) -> None:
    resource = f"exchange '{current.name}' in vhost '{current.vhost}'"
    require_equal(resource, "type", received.type, current.type)
    require_equal(resource, "durable", received.durable, current.durable)
    require_equal(resource, "auto_delete", received.auto_delete, current.auto_delete)
    require_equal(resource, "internal", received.internal, current.internal)
    require_equal_arguments(resource, EQUIVALENCE_ARGUMENTS, received.arguments, current.arguments)


def _check_alternate(channel: Channel, record: ExchangeRecord) -> None:
    """Who names an alternate must be able to read here and write there, or it would be a way around permissions."""
    if ALTERNATE_EXCHANGE not in record.arguments:
        return
    alternate = record.arguments[ALTERNATE_EXCHANGE]
    if not isinstance(alternate, str):
        raise AMQPPreconditionFailed(
            f"invalid type '{field_type(alternate)}' for arg '{ALTERNATE_EXCHANGE}' in exchange '{record.name}' in "
            f"vhost '{record.vhost}'"
        )
    access, connection = channel.node.access, channel.connection
    access.require(connection.user, connection.vhost, "read", "exchange", record.name)
    access.require(connection.user, connection.vhost, "write", "exchange", alternate)


def delete(channel: Channel, method: commands.Exchange.Delete) -> None:
    connection, node = channel.connection, channel.node
    name = strip(method.exchange)
    refuse_default_exchange(name)
    if name.startswith("amq."):
        raise AMQPAccessRefused(f"deletion of system exchange '{name}' in vhost '{connection.vhost}' not allowed")
    node.access.require(connection.user, connection.vhost, "configure", "exchange", name)
    vhost = node.topology.vhosts[connection.vhost]

    def deleted(unused: bool = True) -> None:
        if not unused:
            raise AMQPPreconditionFailed(f"exchange '{name}' in vhost '{connection.vhost}' in use")
        if not method.nowait:
            channel.send(commands.Exchange.DeleteOk())

    def may_go() -> bool:
        return not (method.if_unused and vhost.bindings_from(name))

    if name not in vhost.exchanges:
        deleted()
    elif not may_go():
        deleted(False)
    else:
        node.remove(vhost.exchanges[name].record, channel.suspend(deleted), may_go, connection)


def bind(channel: Channel, method: commands.Exchange.Bind) -> None:
    def bound() -> None:
        if not method.nowait:
            channel.send(commands.Exchange.BindOk())

    destination, source = strip(method.destination), strip(method.source)
    bind_to(channel, source, destination, "exchange", method.routing_key or "", method.arguments, bound)


def unbind(channel: Channel, method: commands.Exchange.Unbind) -> None:
    def unbound() -> None:
        if not method.nowait:
            channel.send(commands.Exchange.UnbindOk())

    destination, source = strip(method.destination), strip(method.source)
    unbind_from(channel, source, destination, "exchange", method.routing_key or "", method.arguments, unbound)


METHODS: Handlers = {
    commands.Exchange.Declare: declare,
    commands.Exchange.Delete: delete,
    commands.Exchange.Bind: bind,
    commands.Exchange.Unbind: unbind,
}
