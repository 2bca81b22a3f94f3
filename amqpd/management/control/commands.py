"""The commands of the control socket: which use case each of them is, and how its arguments are read.

What comes in: commands with arguments, as JSON. What goes out: what use cases return.
Rules: 1. Nothing is decided here: a wish that makes no sense is refused by the use case, one that is no wish of this
form by a `BadArgument` from here. 2. Operators of the socket may do everything: its file mode says who they are.
Not here: the socket (`socket.py`), commands of components that are no use cases of the node: backup, scrub, audit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from typing import Any

from amqpd.management import alarms, connections, queues, traces
from amqpd.management.control.answers import Handler, Listing, Stream, caller
from amqpd.management.damage.damaged_rows import DamagedRows, Which
from amqpd.management.damage.orphan_operations import OrphanOperations
from amqpd.management.errors import BadArgument
from amqpd.management.figures import inventory
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.messages.wishes import Wish
from amqpd.management.metadata import transients
from amqpd.management.running import Running
from amqpd.management.why.queues import explained
from amqpd.topology.metadata.codec import decode_key, decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.vocabulary.records import Change, Delete, Put

Arguments = dict[str, Any]
Rows = list[dict[str, Any]]


def handlers(on: Running) -> Mapping[str, Handler]:
    async def close_connections(arguments: Arguments) -> dict[str, Any]:
        closed = await connections.close(
            on,
            caller(),
            which=_text(arguments, "id"),
            user=_text(arguments, "user"),
            vhost=_text(arguments, "vhost"),
            everything=arguments.get("all") is True,
            reason=_text(arguments, "reason"),
        )
        return {"closed": closed}

    async def set_alarm(arguments: Arguments) -> dict[str, Any]:
        return {"new": alarms.put(on, caller(), _text(arguments, "name") or "")}

    async def clear_alarm(arguments: Arguments) -> dict[str, Any]:
        return dict(alarms.clear(on, caller(), _text(arguments, "name") or ""))

    async def trace(arguments: Arguments) -> dict[str, Any]:
        return {"new": traces.begin(on, caller(), _text(arguments, "vhost") or "/")}

    async def end_trace(arguments: Arguments) -> dict[str, Any]:
        return {"was_on": traces.end(on, caller(), _text(arguments, "vhost") or "/")}

    async def change_transients(arguments: Arguments) -> dict[str, Any]:
        return {"changed": await transients.change(on, _changes(arguments))}

    async def why(arguments: Arguments) -> dict[str, Any]:
        return {"why": await explained(on, _vhost(arguments), _required(arguments, "name"))}

    async def delete_queue(arguments: Arguments) -> dict[str, Any]:
        count = await queues.delete(
            on,
            caller(),
            _vhost(arguments),
            _required(arguments, "name"),
            if_unused=arguments.get("if_unused") is True,
            if_empty=arguments.get("if_empty") is True,
        )
        return {"messages": count}

    async def purge_queue(arguments: Arguments) -> dict[str, Any]:
        return {"messages": await queues.purge(on, caller(), _vhost(arguments), _required(arguments, "name"))}

    return {
        "queue why": why,
        "queue delete": delete_queue,
        "queue purge": purge_queue,
        "connection close": close_connections,
        "alarm set": set_alarm,
        "alarm clear": clear_alarm,
        "trace on": trace,
        "trace off": end_trace,
        "transients change": change_transients,
    }


def listings(on: Running) -> Mapping[str, Listing]:
    return {
        "connection list": partial(connections.listed, on),
        "alarm list": lambda _: map(dict, alarms.listed(on)),
        "trace list": lambda _: map(dict, traces.listed(on)),
        "transients list": lambda _: _records(on),
        **{command: partial(listing, on.node) for command, listing in inventory.LISTINGS.items()},
    }


def message_streams(messages: MessageOperations) -> Mapping[str, Stream]:
    return {
        "message list": lambda arguments: messages.list(Wish.of_listing(arguments), caller()),
        "message delete": lambda arguments: messages.delete(Wish.of_act(arguments), caller()),
        "message move": lambda arguments: messages.move(Wish.of_act(arguments), caller()),
    }


def damage_streams(damaged: DamagedRows) -> Mapping[str, Stream]:
    def which(arguments: Arguments) -> Which:
        vhost, queue = _required(arguments, "vhost"), _required(arguments, "queue")
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
        yield [orphans.give_back(_id(arguments), _vhost(arguments), caller())]

    def adopt(arguments: Arguments) -> AsyncGenerator[Rows, None]:
        if arguments.get("delayed") is True:
            return give_back(arguments)
        return orphans.adopt(_id(arguments), _vhost(arguments), _text(arguments, "queue"), caller())

    return {
        "orphans list": lambda _: orphans.listed(),
        "orphans adopt": adopt,
        "orphans export": lambda arguments: orphans.export(_id(arguments), caller()),
        "orphans delete": delete,
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


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def _required(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def _id(arguments: Arguments) -> str:
    return str(arguments.get("id", ""))


def _vhost(arguments: Arguments) -> str:
    return _required({"vhost": "/", **arguments}, "vhost")
