"""Bindings: made, listed and removed by an operator.

What comes in: both ends, routing keys, arguments as JSON. What goes out: bindings; rows; keys by which one of several
bindings between two ends is named.
Rules: 1. What a client would be refused is refused here, with the same words (`amqpd/declarations/`). 2. A binding's
`properties_key` is its routing key, escaped as in a form, and "~" when that is empty; arguments add a digest of them.
It is the same at any time and on any node. 3. A key that is given names one routing key and one digest
(`named_by`): what it may be besides is never tried, since another binding may have that name.
Not here: the default exchange's bindings, which every queue has by its name and nobody can change.

Source for the key: https://www.rabbitmq.com/docs/http-api-reference, /api/bindings/{vhost}/e/{exchange}/q/{queue}.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict
from urllib.parse import quote_plus, unquote_plus

from amqpd.declarations.asker import Asker
from amqpd.declarations.bindings import bind_to, unbind_from
from amqpd.management.asking import ask, checked_arguments, checked_name
from amqpd.management.errors import NotFound
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.topology.plans import find_binding
from amqpd.topology.state import VhostTopology
from amqpd.vocabulary.records import BindingRecord, DestinationType
from amqpd.wire.json_values import to_json

# Of a digest of arguments: two bindings with equal keys would need 2 to the power of 48 tries.
DIGEST_BYTES = 12


class BindingRow(TypedDict):
    """A binding as lists have it; `arguments` are JSON."""

    vhost: str
    source: str
    destination: str
    destination_type: DestinationType
    routing_key: str
    durable: bool
    arguments: dict[str, Any]
    properties_key: str


class Bound(TypedDict):
    """A binding that is there now."""

    new: bool
    properties_key: str


def walked(
    vhost: VhostTopology,
    *,
    source: str | None = None,
    destination: str | None = None,
    destination_type: DestinationType | None = None,
) -> Iterator[BindingRecord | None]:
    """Those of which all that is named holds, one by one, over copies of what is there; None for one of which it does
    not. Only what is bound at the rarer end is looked at."""
    for some in _copies(vhost, source, destination, destination_type):
        for each in some:
            holds = (
                source in (None, each.source)
                and destination in (None, each.destination)
                and destination_type in (None, each.destination_type)
            )
            yield each if holds else None


def _copies(
    vhost: VhostTopology, source: str | None, destination: str | None, destination_type: DestinationType | None
) -> Iterator[list[BindingRecord]]:
    kinds = ("queue", "exchange") if destination_type is None else (destination_type,)
    arriving = [] if destination is None else [vhost.bindings_to(kind, destination) for kind in kinds]
    leaving = None if source is None else vhost.bindings_from(source)
    if destination is not None and (leaving is None or sum(map(len, arriving)) <= len(leaving)):
        yield from map(list, arriving)
    elif leaving is not None:
        yield list(leaving)
    else:
        for name in list(vhost.bound_sources()):
            yield list(vhost.bindings_from(name))


async def bind(
    on: Running,
    by: Operator,
    vhost: str,
    source: str,
    destination: str,
    destination_type: DestinationType = "queue",
    routing_key: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> Bound:
    """Raises BadArgument, NotFound, NotPermitted, Conflict for a queue that is exclusive to a connection."""
    source, destination = checked_name("exchange's name", source), checked_name("destination's name", destination)
    table = checked_arguments(dict(arguments or {}))
    ends = source, destination, destination_type
    wanted = BindingRecord(vhost, *ends, checked_key(routing_key), arguments=table)

    def act(asker: Asker, done: Callable[[Bound], None]) -> None:
        def bound(new: bool) -> None:
            record = find_binding(on.vhost(vhost), wanted)
            if record is None:
                raise NotFound("the binding was removed meanwhile")
            done({"new": new, "properties_key": properties_key(record)})

        bind_to(asker, wanted, bound)

    return await ask(on, by, vhost, act)


async def unbind(
    on: Running,
    by: Operator,
    vhost: str,
    source: str,
    destination: str,
    destination_type: DestinationType,
    key: str,
) -> None:
    """The one of these ends with this `properties_key`. Raises NotFound, NotPermitted, Conflict."""
    ends = walked(on.vhost(vhost), source=source, destination=destination, destination_type=destination_type)
    found = [each for each in ends if each is not None and named_by(each, key)]
    gone = f"no binding '{key}' from exchange '{source}' to {destination_type} '{destination}' in vhost '{vhost}'"
    if not found:
        raise NotFound(gone)
    if not await _unbound(on, by, found[0]):
        raise NotFound(gone)


async def unbind_exactly(
    on: Running,
    by: Operator,
    vhost: str,
    source: str,
    destination: str,
    destination_type: DestinationType,
    routing_key: str,
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """That of this routing key and these arguments. Raises BadArgument, NotFound, NotPermitted, Conflict."""
    table = checked_arguments(dict(arguments or {}))
    record = BindingRecord(vhost, source, destination, destination_type, routing_key, arguments=table)
    if not await _unbound(on, by, record):
        ends = f"from exchange '{source}' to {destination_type} '{destination}' in virtual host '{vhost}'"
        raise NotFound(
            f"there is no binding {ends} with the routing key '{routing_key}' and these arguments: "
            "`amqpd binding list` says which there are"
        )


async def _unbound(on: Running, by: Operator, record: BindingRecord) -> bool:
    """Whether there was one of these ends, this routing key and these arguments. Raises NotPermitted, Conflict,
    NotFound for the virtual host."""

    def act(asker: Asker, done: Callable[[bool], None]) -> None:
        unbind_from(asker, record, done)

    return await ask(on, by, record.vhost, act)


def properties_key(record: BindingRecord) -> str:
    """The key by which a binding between two ends is named (rule 2)."""
    key = escaped(record.routing_key)
    digest = _digest(record)
    return f"{key}~{digest}" if digest or not key else key


def escaped(routing_key: str) -> str:
    """The first part of a `properties_key`."""
    # A "~" of the routing key's own is written so that none is mistaken for what separates.
    return quote_plus(routing_key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")


def named_by(record: BindingRecord, key: str) -> bool:
    """Whether the binding is the one that this `properties_key` names."""
    routing_key, _, digest = key.partition("~")
    return record.routing_key == unescaped(routing_key) and _digest(record) == digest


def unescaped(key: str) -> str:
    return unquote_plus(key, errors="surrogateescape")


def _digest(record: BindingRecord) -> str:
    """Of its arguments; empty without any."""
    if not record.arguments:
        return ""
    octets = hashlib.sha256(record.arguments_key.encode("utf-8", "surrogateescape")).digest()
    return urlsafe_b64encode(octets[:DIGEST_BYTES]).decode()


def checked_key(routing_key: str) -> str:
    """Raises BadArgument for a routing key that no client could use."""
    checked_name("routing key", routing_key)
    return routing_key


def binding_row(record: BindingRecord) -> BindingRow:
    """As lists have it."""
    return {
        "vhost": record.vhost,
        "source": record.source,
        "destination": record.destination,
        "destination_type": record.destination_type,
        "routing_key": record.routing_key,
        "durable": record.durable,
        "arguments": to_json(record.arguments),
        "properties_key": properties_key(record),
    }
