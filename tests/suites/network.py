"""A network with nothing but loopback, for one run: fixed ports are free, and no host outside can be reached.

What comes in: a command, and which loopback address `localhost` shall be.
What goes out: the same command, to be run in namespaces of its own (Linux; unshare, ip, mount and nsenter).
Rules: 1. /etc/hosts is replaced for the suite alone: RabbitMQ's own tools look `localhost` up too, and their node is
on IPv4.
Not here: what runs in it (`__main__.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

LOOPBACK_UP = 'ip link set lo up && exec "$@"'
HOSTS_MOUNTED = 'mount --bind "$0" /etc/hosts && exec "$@"'
IPV4, IPV6 = "127.0.0.1", "::1"


def isolated(command: Sequence[str]) -> list[str]:
    """Raises RuntimeError where there are no network namespaces."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        raise RuntimeError("network namespaces are needed: unshare (util-linux) and ip (iproute2)")
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", *as_root, "sh", "-c", LOOPBACK_UP, "sh", *command]


def with_localhost(host: str, command: Sequence[str], scratch: Path) -> list[str]:
    """For the command, `localhost` is this address and no other. Writes the hosts file into `scratch`."""
    hosts = scratch / "hosts"
    hosts.write_text(f"{host} localhost\n")
    return ["unshare", "--mount", "sh", "-c", HOSTS_MOUNTED, str(hosts), *command]


def with_hosts_of(process: int, folder: Path, command: Sequence[str]) -> list[str]:
    """From within such a command: sees the files, and so the hosts, that another process sees."""
    return ["nsenter", f"--mount=/proc/{process}/ns/mnt", f"--wd={folder}", *command]
