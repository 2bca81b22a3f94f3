"""What a queue, an exchange or a binding takes in memory, in bytes, about.

What comes in: records, tables of arguments. What goes out: sizes.
Rules: 1. The same record has the same size whenever it is asked, so what was counted when it came is given back when
it goes. 2. Arguments count as they are decoded (a table of empty tables is thirteen times its bytes on the wire), and
twice: an exchange or a queue has them in a form of its own too.
Not here: the bound (`VhostTopology.nbytes` is compared in `amqpd/flow/client_counters.py`).

The figures are from tracemalloc, of a broker without messages: `tests/topology/test_sizes.py` holds them to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Any

from amqpd.vocabulary.records import Arguments, BindingRecord, ExchangeRecord, QueueRecord

# A queue's machine with its place in every dictionary; each priority that it may have has a backlog of its own.
QUEUE_BYTES, PRIORITY_BYTES = 7 * 1024, 4 * 1024
EXCHANGE_BYTES = 1024
BINDING_BYTES = 1024
# A word of a topic pattern with wildcards is a node of the trie.
WORD_BYTES = 320
# A value in a table beside itself: its place, and the object of a number.
VALUE_BYTES = 64

_PRIORITIES = "x-max-priority"
_PRIORITIES_MAX = 255


def record_bytes(record: QueueRecord | ExchangeRecord | BindingRecord) -> int:
    arguments = record.arguments
    nbytes = 2 * arguments_bytes(arguments) if arguments else 0
    if isinstance(record, BindingRecord):
        key = record.routing_key
        if "*" in key or "#" in key:
            nbytes += WORD_BYTES * (1 + key.count("."))
        names = len(record.source) + len(record.destination) + len(key) + len(record.arguments_key)
        return nbytes + BINDING_BYTES + names
    if isinstance(record, ExchangeRecord):
        return nbytes + EXCHANGE_BYTES + len(record.name)
    priorities = arguments.get(_PRIORITIES)
    if isinstance(priorities, int):
        nbytes += PRIORITY_BYTES * min(max(priorities, 0), _PRIORITIES_MAX)
    return nbytes + QUEUE_BYTES + len(record.name)


def arguments_bytes(arguments: Arguments) -> int:
    """Of the table as it is decoded."""
    return sum(getsizeof(name) + _value_bytes(value) for name, value in arguments.items())


def _value_bytes(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray):
        return VALUE_BYTES + getsizeof(value)
    if isinstance(value, Mapping):
        return 2 * VALUE_BYTES + arguments_bytes(value)
    if isinstance(value, list | tuple):
        return 2 * VALUE_BYTES + sum(map(_value_bytes, value))
    return VALUE_BYTES
