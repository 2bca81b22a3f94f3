"""One process on a machine for each journal's identity, wherever its data directory is: a copy is not a second node.

What comes in: the identity, and how the node is called. What goes out: a claim on it, which the system lets go with
the process, also of one that is stopped; a StartupError.
Rules: 1. It is a listening socket with an abstract name of Linux: nothing is left of it, nobody cleans up, and who
holds it can be asked. It is seen by what shares the machine's network. Elsewhere nothing is claimed, and
`claim_scope` is empty: a process of a cluster is then known by its leases alone
(`topology/metadata/etcd/opening.py`). 2. A node alone may run beside its copy under another name, to look at a
backup; in a cluster a name is no way to be another one. 3. It comes before a journal is asked whether it has what it
promised: a copy that was made while its original ran has not.
Not here: the directory's own lock (`lock.py`).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from amqpd.datadir.lock import LOCK_NAME
from amqpd.errors import StartupError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NETWORK = Path("/proc/self/ns/net")
ASKED_MAX = 128
"""copies that are told who has it: nobody takes their connections"""
_peer = struct.Struct("3i")


def claim_scope() -> str:
    """Where a claim is seen: this start of this machine, this network. Empty: claims are not seen at all."""
    try:
        return f"{BOOT_ID.read_text().strip()} {NETWORK.stat().st_ino}"
    except OSError:
        return ""


@contextmanager
def claimed(identity: str, directory: Path, name: str = "") -> Iterator[None]:
    """No other process here has it meanwhile. `name`: of a node alone. Raises StartupError."""
    if not sys.platform.startswith("linux"):
        yield
        return
    address = f"\0amqpd/{identity}/{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as claim:
        try:
            claim.bind(address)
        except OSError:
            way = (
                "give it a node_name of its own to look at it beside its original"
                if name
                else "a new node starts with an empty data directory"
            )
            raise StartupError(
                f"{directory} is a copy of the data directory of a node that runs: {_holder(address)}; this start "
                f"has changed nothing of that node. Stop that one first, or remove the copy: {way}"
            ) from None
        claim.listen(ASKED_MAX)
        yield


def _holder(address: str) -> str:
    """Who it is, for people."""
    import psutil  # only to say it

    with suppress(OSError, psutil.Error), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.setblocking(False)  # of one that is stopped nobody takes connections
        asked.connect(address)
        number, _, _ = _peer.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _peer.size))
        files = [each.path for each in psutil.Process(number).open_files()]
        held = [os.path.dirname(each) for each in files if os.path.basename(each) == LOCK_NAME]
        return f"process {number}" + (f", with {', '.join(held)}" if held else "")
    return "another process"
