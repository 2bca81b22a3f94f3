"""Numbers in a node's journal that follow from names: those of delayed messages.

What comes in: a node's id, names of virtual hosts, numbers of recorded deletions. What goes out: numbers of 63 bits,
as the ids of queues are.
Rules: 1. Nothing has to be remembered: the same id and name give the same number. 2. Two nodes have different numbers
for the same virtual host. 3. From a number and the node's id follows that of the virtual host, so that a deletion is
recognised though the name is gone. 4. What versions without ids of nodes wrote is found.
Not here: which of the numbers a journal uses (`node/queue_registry.py`), the list of deletions
(`topology/metadata/tombstones.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256


def vhost_number(vhost: str) -> int:
    """What stands for the virtual host in the list of deletions, on every node. Until nodes had ids, it was also the
    number of its delayed messages."""
    return _number(b"delayed messages of ", vhost)


def node_number(node_id: str) -> int:
    """What stands for the node (`Identity.id`)."""
    return _number(b"node ", node_id)


def delayed_id(node_id: str, vhost: str) -> int:
    """The number in the node's journal of the virtual host's delayed messages."""
    return vhost_number(vhost) ^ node_number(node_id)


def delayed_numbers(node_id: str, vhost: str) -> tuple[int, int]:
    """Under which the node's journal may have the virtual host's delayed messages: what is given today, and what was
    given before nodes had ids."""
    return delayed_id(node_id, vhost), vhost_number(vhost)


def dropped_on(node_id: str, dropped: Collection[int], numbers: Iterable[int]) -> set[int]:
    """The recorded deletions `dropped`, and those of the journal's `numbers` that they mean on this node: its delayed
    messages of deleted virtual hosts."""
    own = node_number(node_id)
    known = dropped if isinstance(dropped, frozenset | set) else frozenset(dropped)
    return {*known, *(number for number in numbers if number ^ own in known)}


def tombstones_of(node_id: str, numbers: Iterable[int]) -> set[int]:
    """What the recorded deletions of the journal's `numbers` may look like."""
    own, found = node_number(node_id), set(numbers)
    return found | {number ^ own for number in found}


def _number(kind: bytes, name: str) -> int:
    return int.from_bytes(sha256(kind + name.encode("utf-8", "surrogatepass")).digest()[:8]) >> 1
