"""Exchanges: declared and deleted by an operator.

What comes in: names and properties; arguments as JSON. What goes out: exchanges; whether anything changed.
Rules: 1. What a client would be refused is refused here, with the same words (`amqpd/declarations/`). 2. Deleting
what is not there is `NotFound`: for clients it is a success.
Not here: lists (`figures/inventory.py`), bindings (`bindings.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amqpd.declarations.asker import Asker
from amqpd.declarations.exchanges import declare_exchange, delete_exchange
from amqpd.management.asking import ask, checked_arguments, checked_name
from amqpd.management.errors import Conflict, NotFound
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.vocabulary.records import ExchangeRecord


async def declare(
    on: Running,
    by: Operator,
    vhost: str,
    name: str,
    type_name: str = "direct",
    *,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> bool:
    """Whether it is new. Raises BadArgument, NotFound, AlreadyExists, NotPermitted."""
    name, table = checked_name("exchange's name", name), checked_arguments(dict(arguments or {}))
    record = ExchangeRecord(vhost, name, type_name, durable, auto_delete, internal, table)

    def act(asker: Asker, done: Callable[[bool], None]) -> None:
        declare_exchange(asker, record, done)

    return await ask(on, by, vhost, act)


async def delete(on: Running, by: Operator, vhost: str, name: str, *, if_unused: bool = False) -> None:
    """Raises NotFound, NotPermitted, Conflict when it is in use and must not be."""
    name = checked_name("exchange's name", name)

    def act(asker: Asker, done: Callable[[bool], None]) -> None:
        delete_exchange(asker, name, if_unused=if_unused, deleted=done)

    if not await ask(on, by, vhost, act, otherwise=Conflict):
        raise NotFound(f"no exchange '{name}' in vhost '{vhost}'")
