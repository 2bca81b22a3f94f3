"""What a broker has and its metadata store does not keep: transient exchanges, queues, and their bindings.

What comes in: changes of such records. What goes out: such records; such records made and removed.
Rules: 1. What is durable is refused: it goes through the store, where no running broker is needed. 2. The changes of
one call are one transaction. 3. An exclusive queue of another node's connection is left to that node.
Not here: what is listed for people (`figures/inventory.py`), who makes such changes (`definitions.py`), records as
text (`control/commands.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from amqpd.management.asking import refusals
from amqpd.management.errors import BadArgument, Conflict
from amqpd.management.running import NodeAnswer, Running
from amqpd.vocabulary.records import BindingRecord, Change, Delete, ExchangeRecord, Key, Put, QueueRecord, Record

_KINDS = (ExchangeRecord, QueueRecord, BindingRecord)
_ONLY = "only transient exchanges, queues and bindings are changed here"


def listed(on: Running) -> Iterator[Record]:
    """All of them; exchanges and queues of a virtual host before its bindings."""
    for vhost in list(on.node.topology.vhosts.values()):
        exchanges: list[Record] = [state.record for state in vhost.exchanges.values()]
        for record in [*exchanges, *vhost.queues.values(), *vhost.bindings()]:
            if not record.durable:
                yield record


async def change(on: Running, changes: Sequence[Change]) -> int:
    """How many changes there were: deleting what is not there is none. Raises BadArgument, Conflict, NotPermitted."""
    puts = [_of_this_node(on, each.record) for each in changes if isinstance(each, Put)]
    known = {each.key: _found(on, each.key) for each in changes if isinstance(each, Delete)}
    gone = {key: record for key, record in known.items() if record is not None}
    for record in [*puts, *gone.values()]:
        if not isinstance(record, _KINDS) or record.durable:
            raise BadArgument(_ONLY)
        if isinstance(record, QueueRecord) and record.exclusive and record.node != on.node.sources.node:
            raise Conflict(
                f"queue '{record.name}' in virtual host '{record.vhost}' is exclusive to a connection of another "
                "node, which alone may change it"
            )
    wanted: list[Change] = [*(Put(record, create=True) for record in puts), *map(Delete, gone)]
    if wanted:
        made_here = {record.key for record in puts}
        ends = {key for record in puts if isinstance(record, BindingRecord) for key in _ends(record)} - made_here
        answer: NodeAnswer[bool] = NodeAnswer()
        with refusals():
            on.node.changes.submit(wanted, answer.give, ends)
        if not await answer.wait():
            raise Conflict("somebody else changed the same things meanwhile: try again")
    return len(wanted)


def _of_this_node(on: Running, record: Record) -> Record:
    """A transient queue is made by the node that has it. Whose an exclusive one is its record says."""
    if not isinstance(record, QueueRecord) or record.exclusive:
        return record
    return replace(record, node=on.node.sources.node)


def _found(on: Running, key: Key) -> Record | None:
    vhost = on.node.topology.vhosts.get(key[1])
    if vhost is None:
        return None
    match key:
        case ("exchange", _, name):
            return vhost.exchanges[name].record if name in vhost.exchanges else None
        case ("queue", _, name):
            return vhost.queues.get(name)
        case ("binding", _, source, kind, destination, routing_key, arguments_key):
            return vhost.find_binding(source, kind, destination, routing_key, arguments_key)
    raise BadArgument(_ONLY)


def _ends(record: BindingRecord) -> tuple[Key, Key]:
    return ("exchange", record.vhost, record.source), (record.destination_type, record.vhost, record.destination)
