"""What a broker has and its metadata store does not keep: transient exchanges, queues, and their bindings.

What comes in: commands of the control socket. What goes out: such records as text; such records made and removed.
Rules: 1. Records travel as the store writes them (`topology/metadata/codec.py`). 2. What is durable is refused: it
goes through the store, where no running broker is needed. 3. A command's changes are one transaction. 4. An exclusive
queue of another node's connection is left to that node.
Not here: what is listed for people (`inventory.py`), who sends such commands (`commands/definitions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import trio
from pamqp.exceptions import AMQPError

from amqpd.management.control import ControlError, Handler, Listing
from amqpd.node.node import Node
from amqpd.topology.metadata.codec import decode_key, decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.vocabulary.records import BindingRecord, Change, Delete, ExchangeRecord, Key, Put, QueueRecord, Record

_KINDS = (ExchangeRecord, QueueRecord, BindingRecord)


class Transients:
    """`handlers` and `listings` are for the control server."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"transients change": self._change}

    @property
    def listings(self) -> Mapping[str, Listing]:
        return {"transients list": self._list}

    def _list(self, _: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for vhost in list(self._node.topology.vhosts.values()):
            exchanges: list[Record] = [state.record for state in vhost.exchanges.values()]
            for record in [*exchanges, *vhost.queues.values(), *vhost.bindings()]:
                if not record.durable:
                    yield {"key": encode_key(record.key), "record": encode_record(record)}

    async def _change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`put`: objects with `key` and `record`; `delete`: keys."""
        try:
            records = [decode_record(each["key"], each["record"]) for each in arguments.get("put", [])]
            gone = [decode_key(key) for key in arguments.get("delete", [])]
        except (StoreDamaged, TypeError, KeyError) as error:
            raise ControlError(f"not a record: {error}") from None
        known = {key: self._find(key) for key in gone}
        for record in [*records, *(found for found in known.values() if found is not None)]:
            if not isinstance(record, _KINDS) or record.durable:
                raise ControlError("only transient exchanges, queues and bindings are changed here")
            if isinstance(record, QueueRecord) and record.is_foreign_to(self._node.identity.id):
                raise ControlError(
                    f"queue '{record.name}' in virtual host '{record.vhost}' is exclusive to a connection of another "
                    "node, which alone may change it"
                )
        changes: list[Change] = [Put(record, create=True) for record in records]
        changes += [Delete(key) for key, found in known.items() if found is not None]
        if changes and not await self._submit(changes, records):
            raise ControlError("somebody else changed the same things meanwhile: try again")
        return {"changed": len(changes)}

    async def _submit(self, changes: list[Change], records: list[Record]) -> bool:
        done = trio.Event()
        answers: list[bool] = []

        def resume(made: bool) -> None:
            answers.append(made)
            done.set()

        made_here = {record.key for record in records}
        ends = {key for record in records if isinstance(record, BindingRecord) for key in _ends(record)} - made_here
        try:
            self._node.submit(changes, resume, ends)
        except AMQPError as error:
            raise ControlError(str(error)) from None
        await done.wait()
        return answers[0]

    def _find(self, key: Key) -> Record | None:
        vhost = self._node.topology.vhosts.get(key[1])
        if vhost is None:
            return None
        match key:
            case ("exchange", _, name):
                return vhost.exchanges[name].record if name in vhost.exchanges else None
            case ("queue", _, name):
                return vhost.queues.get(name)
            case ("binding", _, source, kind, destination, routing_key, arguments_key):
                return vhost.find_binding(source, kind, destination, routing_key, arguments_key)
        raise ControlError("only transient exchanges, queues and bindings are changed here")


def _ends(record: BindingRecord) -> tuple[Key, Key]:
    return ("exchange", record.vhost, record.source), (record.destination_type, record.vhost, record.destination)
