"""What a node is called, and what it is: its name, its id, its current incarnation, its source.

What comes in: the setting `node_name`; the journal's identity and the index at which this incarnation of it begins.
What goes out: one frozen value, which the broker makes at its start and hands to the node.
Rules: 1. The name is for people: messages, traces, `amqpd status`. Of a node alone nothing that is stored is found by
it, so it can be changed at any start; nodes that share their metadata keep it (`QueueRecord.node`). 2. The id is the
data directory's: drawn when the journal was made, kept over restarts, backups and repairs. What must be told apart
from another node's carries the id. 3. Each start has an incarnation of its own, higher than those before.
Not here: the numbers that are derived from the id (`journal_numbers.py`), the setting (`config.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A node in one of its incarnations."""

    name: str
    """by RabbitMQ's custom `name@host`"""
    id: str
    """32 hexadecimal digits"""
    incarnation: int = 1
    """the index of the journal's transaction with which this incarnation began"""
    source: int = 0
    """the number of the log in the journal that this node alone writes"""
