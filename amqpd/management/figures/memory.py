"""What the memory of the process is used for, by RabbitMQ's names, as far as that is known.

What comes in: the node; the process, as the system sees it. What goes out: bytes for each of RabbitMQ's names.
Rules: 1. They add up to the resident memory: `other_proc` is what nobody counts, the interpreter's objects mostly.
2. What amqpd counts itself may be more than what is resident, since memory may be swapped out: a figure is cut where
the sum would be more than all. 3. What is of Erlang only, or of parts that amqpd has not, is 0. 4. The walk over
queues and connections is made in steps.
Not here: all of the process's memory and its limit (`node_facts.py`), RabbitMQ's form (`admin/`).

Source for names: rabbit_vm.erl of RabbitMQ 4.2 (`memory/0`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import psutil
import trio

from amqpd.management.pacing import WalkPace
from amqpd.node.node import Node

NAMES = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other"),
    *("queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs"),
    *("stream_queue_procs", "stream_queue_replica_reader_procs", "stream_queue_coordinator_procs"),
    *("plugins", "metadata_store", "other_proc", "metrics", "mgmt_db", "quorum_ets", "mnesia"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)
REST = "other_proc"
UNUSED = "allocated_unused"


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc (mallinfo(3)); `fordblks` are the bytes of all free blocks."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
            *("fordblks", "keepcost"),
        )
    ]


async def memory_of(node: Node) -> dict[str, int]:
    """Each of `NAMES`, in bytes; their sum is the resident memory."""
    counted = await _counted(node)
    resident, files, unused = await trio.to_thread.run_sync(_process)
    return shares({**counted, "code": files, UNUSED: unused}, resident)


def shares(counted: Mapping[str, int], resident: int) -> dict[str, int]:
    """Bytes by name, which add up to `resident`; what is in none of them is in `other_proc`."""
    left, found = resident, dict.fromkeys(NAMES, 0)
    for name, nbytes in counted.items():
        found[name] = min(max(nbytes, 0), left)
        left -= found[name]
    found[REST] += left
    return found


async def _counted(node: Node) -> dict[str, int]:
    pace = WalkPace()
    by_type = {"classic": 0, "quorum": 0}
    for queue in list(node.queues.values()):
        await pace.step()
        by_type[queue.type] += queue.memory_bytes
    for store in list(node.delayed.values()):
        await pace.step()
        by_type["classic"] += store.memory_bytes
    held = unfinished = 0
    for connection in list(node.connections.values()):
        await pace.step()
        held += connection.intake.held_bytes
        unfinished += connection.unfinished_bytes
    metadata = 0
    for vhost in list(node.topology.vhosts.values()):
        await pace.step()
        metadata += vhost.nbytes
    return {
        "queue_procs": by_type["classic"],
        "quorum_queue_procs": by_type["quorum"],
        "connection_readers": held,
        "connection_writers": node.outboxes.nbytes,
        "connection_channels": unfinished,
        "metadata_store": metadata,
    }


def _process() -> tuple[int, int, int]:
    """In a thread: what is resident, what of that are pages of programs and libraries, and what malloc keeps free."""
    said = psutil.Process().memory_info()
    return said.rss, getattr(said, "shared", 0), _unused_bytes()


def _unused_bytes() -> int:
    """0 where the C library does not say."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    mallinfo.restype = _Mallinfo
    return int(mallinfo().fordblks)
