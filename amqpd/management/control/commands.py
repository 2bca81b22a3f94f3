"""The commands of the control socket: which use case each of them is, and how its arguments are read.

What comes in: commands with arguments, as JSON. What goes out: what use cases return; of clients in a cluster also
`nodes_missing`, the nodes that did not answer, each with what is known of it.
Rules: 1. Nothing is decided here: a request that makes no sense is refused by the use case, one that is no request of
this form by a `BadArgument` from here. 2. Operators of the socket may do everything: its file mode says who they are.
Not here: the socket (`socket.py`), commands of components that are no use cases of the node: backup, scrub, audit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from amqpd.management import alarms, traces
from amqpd.management.across_nodes import clients
from amqpd.management.across_nodes.clients import Clients
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.connections import CloseRequest
from amqpd.management.control import declaration_commands
from amqpd.management.control.answers import EndedStream, Handler, Listing, Result, Stream, caller
from amqpd.management.control.arguments import Arguments, optional, required, vhost_of
from amqpd.management.damage.damaged_rows import DamagedRows, Which
from amqpd.management.damage.orphan_operations import OrphanOperations
from amqpd.management.errors import BadArgument
from amqpd.management.figures import inventory
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.messages.requests import MessagesRequest
from amqpd.management.metadata import transients
from amqpd.management.running import Running
from amqpd.topology.metadata.codec import decode_key, decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.vocabulary.records import Change, Delete, Put

Rows = list[dict[str, Any]]
Listed = Callable[[Clients, Arguments], AsyncGenerator[Rows, None]]


def handlers(on: Running) -> Mapping[str, Handler]:
    async def set_alarm(arguments: Arguments) -> dict[str, Any]:
        return {"new": alarms.put(on, caller(), optional(arguments, "name") or "")}

    async def clear_alarm(arguments: Arguments) -> dict[str, Any]:
        return dict(alarms.clear(on, caller(), optional(arguments, "name") or ""))

    async def trace(arguments: Arguments) -> dict[str, Any]:
        return {"new": traces.begin(on, caller(), optional(arguments, "vhost") or "/")}

    async def end_trace(arguments: Arguments) -> dict[str, Any]:
        return {"was_on": traces.end(on, caller(), optional(arguments, "vhost") or "/")}

    async def change_transients(arguments: Arguments) -> dict[str, Any]:
        return {"changed": await transients.change(on, _changes(arguments))}

    return {
        **declaration_commands.handlers(on),
        "alarm set": set_alarm,
        "alarm clear": clear_alarm,
        "trace on": trace,
        "trace off": end_trace,
        "transients change": change_transients,
    }


def listings(on: Running) -> Mapping[str, Listing]:
    return {
        "alarm list": lambda _: map(dict, alarms.listed(on)),
        "trace list": lambda _: map(dict, traces.listed(on)),
        "transients list": lambda _: _records(on),
        **{command: partial(listing, on.node) for command, listing in inventory.LISTINGS.items()},
    }


def message_streams(messages: MessageOperations) -> Mapping[str, Stream]:
    return {
        "message list": lambda arguments: messages.list(MessagesRequest.of_listing(arguments), caller()),
        "message delete": lambda arguments: messages.delete(MessagesRequest.of_act(arguments), caller()),
        "message move": lambda arguments: messages.move(MessagesRequest.of_act(arguments), caller()),
    }


def damage_streams(damaged: DamagedRows) -> Mapping[str, Stream]:
    def which(arguments: Arguments) -> Which:
        vhost, queue = required(arguments, "vhost"), required(arguments, "queue")
        return Which(vhost, queue, arguments.get("ids"), arguments.get("delayed") is True)

    return {
        "message export": lambda arguments: damaged.export(which(arguments)),
        "message quarantine": lambda arguments: damaged.quarantine(
            which(arguments), caller(), dry_run=arguments.get("yes") is not True
        ),
    }


def orphan_streams(orphans: OrphanOperations) -> Mapping[str, Stream]:
    async def delete(arguments: Arguments) -> AsyncGenerator[Rows, None]:
        yield [await orphans.delete(_id(arguments), caller(), dry_run=arguments.get("yes") is not True)]

    async def give_back(arguments: Arguments) -> AsyncGenerator[Rows, None]:
        yield [orphans.give_back(_id(arguments), vhost_of(arguments), caller())]

    def adopt(arguments: Arguments) -> AsyncGenerator[Rows, None]:
        if arguments.get("delayed") is True:
            return give_back(arguments)
        return orphans.adopt(_id(arguments), vhost_of(arguments), optional(arguments, "queue"), caller())

    return {
        "orphans list": lambda _: orphans.listed(),
        "orphans adopt": adopt,
        "orphans export": lambda arguments: orphans.export(_id(arguments), caller()),
        "orphans delete": delete,
    }


def client_handlers(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, Handler]:
    """Of the clients of all nodes. `leaders`: of this moment."""

    async def close(arguments: Arguments) -> dict[str, Any]:
        request = CloseRequest(
            which=optional(arguments, "id"),
            user=optional(arguments, "user"),
            vhost=optional(arguments, "vhost"),
            everything=arguments.get("all") is True,
            reason=optional(arguments, "reason"),
        )
        done = await clients.close(on, leaders(), caller(), request)
        return {"closed": done.count, "nodes_missing": done.missing}

    return {"connection close": close}


def client_streams(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, EndedStream]:
    """Lists of the clients of all nodes. `leaders`: of this moment."""

    def listed(of: Listed) -> EndedStream:
        async def rows(arguments: Arguments) -> AsyncGenerator[Rows | Result, None]:
            now = leaders()
            found = Clients(on, now)
            async for page in of(found, arguments):
                yield page
            if now.clustered:
                yield Result({"nodes_missing": found.missing})

        return rows

    return {
        "connection list": listed(Clients.connections),
        "channel list": listed(Clients.channels),
        "consumer list": listed(Clients.consumers),
    }


def _records(on: Running) -> Iterable[dict[str, Any]]:
    """As the metadata store writes them."""
    return ({"key": encode_key(each.key), "record": encode_record(each)} for each in transients.listed(on))


def _changes(arguments: Arguments) -> list[Change]:
    """`put`: objects with `key` and `record`; `delete`: keys."""
    try:
        puts = [Put(decode_record(each["key"], each["record"])) for each in arguments.get("put", [])]
        return [*puts, *(Delete(decode_key(key)) for key in arguments.get("delete", []))]
    except (StoreDamaged, TypeError, KeyError) as error:
        raise BadArgument(f"not a record: {error}") from None


def _id(arguments: Arguments) -> str:
    return str(arguments.get("id", ""))
