"""READY=1 and STOPPING=1 for a service supervisor (systemd's Type=notify), after sd_notify(3).

What comes in: NOTIFY_SOCKET from the environment, when a supervisor set it. What goes out: one datagram for
each state.
Rules: 1. Without NOTIFY_SOCKET nothing happens. 2. A supervisor that does not listen is logged, and does not
stop the broker.
The READY line in the log stands beside it.
Not here: when that is (`broker.py`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import structlog

from amqpd import KERNEL, KERNEL_REASON, __version__

log = structlog.get_logger(component="notify")


def announce_ready(
    node: str, listening: Iterable[str], tls: Iterable[str], http: Iterable[str], data_dirs: Iterable[Path]
) -> None:
    """Clients are accepted from now on: the log's READY line, and `notify_ready`. `listening` has all addresses of
    AMQP, `tls` those of them that want TLS. `http`, `tls`: nothing when it is off."""
    structlog.get_logger(component="broker").info(
        "READY",
        node=node,
        version=__version__,
        kernel=KERNEL,
        kernel_reason=KERNEL_REASON or "compiled",
        listening=",".join(listening),
        tls=",".join(tls) or "off",
        http=",".join(http) or "off",
        data_dir=",".join(map(str, data_dirs)),
    )
    notify_ready()


def notify_ready(status: str = "") -> bool:
    """Clients are accepted from now on. True when a supervisor was told."""
    return _notify(f"READY=1\nSTATUS={status}" if status else "READY=1")


def notify_stopping() -> bool:
    """The drain has begun."""
    return _notify("STOPPING=1")


def _notify(state: str) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # "@" stands for the NUL byte that begins the name of an abstract socket.
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        # A supervisor that is stuck must not hold the broker.
        sender.setblocking(False)
        try:
            sender.sendto(state.encode(), target)
        except OSError as error:
            log.warning("supervisor not told", notify_socket=address, reason=str(error))
            return False
    return True
