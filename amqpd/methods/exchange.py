"""exchange.declare, delete, bind, unbind (section 1.6; exchange-to-exchange: https://www.rabbitmq.com/docs/e2e)."""

from __future__ import annotations

from pamqp import commands

from amqpd.channels import Channel
from amqpd.declarations.bindings import bind_to, unbind_from
from amqpd.declarations.exchanges import declare_exchange, delete_exchange, require_exchange
from amqpd.declarations.names import strip
from amqpd.methods.channel_asker import asker
from amqpd.node.node import Handlers
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord


def declare(channel: Channel, method: commands.Exchange.Declare) -> None:
    name = strip(method.exchange)

    def declared(_: bool) -> None:
        if not method.nowait:
            channel.send(commands.Exchange.DeclareOk())

    if method.passive:
        require_exchange(asker(channel), name)
        asker(channel).once_known(lambda: declared(False))
        return
    record = ExchangeRecord(
        channel.connection.vhost,
        name,
        strip(method.exchange_type),
        durable=bool(method.durable),
        auto_delete=bool(method.auto_delete),
        internal=bool(method.internal),
        arguments=method.arguments or {},
    )
    declare_exchange(asker(channel), record, declared)


def delete(channel: Channel, method: commands.Exchange.Delete) -> None:
    def deleted(_: bool) -> None:
        if not method.nowait:
            channel.send(commands.Exchange.DeleteOk())

    delete_exchange(asker(channel), strip(method.exchange), if_unused=bool(method.if_unused), deleted=deleted)


def bind(channel: Channel, method: commands.Exchange.Bind) -> None:
    def bound(_: bool) -> None:
        if not method.nowait:
            channel.send(commands.Exchange.BindOk())

    bind_to(asker(channel), _binding(channel, method), bound)


def unbind(channel: Channel, method: commands.Exchange.Unbind) -> None:
    def unbound(_: bool) -> None:
        if not method.nowait:
            channel.send(commands.Exchange.UnbindOk())

    unbind_from(asker(channel), _binding(channel, method), unbound)


def _binding(channel: Channel, method: commands.Exchange.Bind | commands.Exchange.Unbind) -> BindingRecord:
    ends = strip(method.source), strip(method.destination)
    arguments = method.arguments or {}
    return BindingRecord(channel.connection.vhost, *ends, "exchange", method.routing_key or "", arguments=arguments)


METHODS: Handlers = {
    commands.Exchange.Declare: declare,
    commands.Exchange.Delete: delete,
    commands.Exchange.Bind: bind,
    commands.Exchange.Unbind: unbind,
}
