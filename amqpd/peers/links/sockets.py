"""Sockets of links: bound, connected, and what the system is to do with them.

What comes in: addresses. What goes out: listening sockets, or StartupError; connected sockets, or `Broken`.
Rules: 1. Bound before anything else happens, as clients' listeners are (`transport/listeners.py`). 2. Every address
of a name is bound and is tried by itself; sockets for IPv6 are for that only. 3. A peer whose machine is gone is
noticed by the system: without data by keepalive, with data by the user timeout.
Not here: accepting (`accepting.py`), TLS (`tls.py`).
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable

import trio

from amqpd.errors import StartupError
from amqpd.peers.links.stream import Broken, NotListening
from amqpd.peers.links.tls import reason_of
from amqpd.peers.links.trust import BOTH_WAYS_OUT

Address = tuple[str, int]
"""host and port; a name, or an address of IPv4 or IPv6 without brackets"""

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES = 5, 2, 3
"""Of a connection over which nothing goes; where there are sources, a question goes each 50 ms."""
USER_TIMEOUT_MS = 10_000
"""How long what was sent may stay unacknowledged, or a peer without space for it (tcp(7)): several leases. The system
would try for a quarter of an hour."""


def bind(addresses: Iterable[Address]) -> list[socket.socket]:
    """They do not listen yet. Raises StartupError; then nothing stays open."""
    bound: list[socket.socket] = []
    try:
        for host, port in addresses:
            for family, found in _addresses(host, port):
                bound.append(_bind(family, host, found))
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartupError(f"cluster_listen: {host!r} is no address of this machine: {reason_of(error)}") from None
    return list({(family, address): None for family, _, _, _, address in answers})


def _bind(family: socket.AddressFamily, host: str, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # Connections of a process that just stopped are in TIME_WAIT; they must not keep the port for a minute.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise StartupError(
            f"cluster_listen: cannot listen on {host} port {address[1]}: {reason_of(error)}; choose another"
        ) from None
    return bound


def listen(bound: socket.socket, backlog: int) -> None:
    """Raises StartupError: two processes may bind a port, and the second one to listen is told."""
    try:
        bound.listen(backlog)
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise StartupError(f"cluster_listen: cannot listen on {host} port {port}: {reason_of(error)}") from None


def is_loopback(found: tuple[object, ...]) -> bool:
    """An address as the system gives it, of IPv4 or IPv6."""
    return ipaddress.ip_address(str(found[0]).partition("%")[0]).is_loopback


async def connect(address: Address, *, loopback_only: bool) -> socket.socket:
    """To the first one of the name's addresses that answers. Raises Broken; NotListening if nobody listens on any."""
    host, port = address
    try:
        answers = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Broken(f"{host!r} is not known: {reason_of(error)}") from None
    failed: list[OSError] = []
    if loopback_only and not all(is_loopback(found) for *_, found in answers):
        raise Broken(f"{host} is not this machine, and links prove nothing: {BOTH_WAYS_OUT}")
    for family, _, _, _, found in answers:
        try:
            return await _connect(socket.AddressFamily(family), found)
        except OSError as error:
            failed.append(error)
    reason = "; ".join(dict.fromkeys(map(reason_of, failed)))
    raise (NotListening if all(isinstance(each, ConnectionRefusedError) for each in failed) else Broken)(reason)


async def _connect(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        try:
            connecting.connect(address)
        except (BlockingIOError, InterruptedError):
            await trio.lowlevel.wait_writable(connecting)
            failure = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, os.strerror(failure)) from None
        prepare(connecting)
    except BaseException:
        connecting.close()
        raise
    return connecting


def prepare(connected: socket.socket) -> None:
    """What the system is to do with a connection. Raises OSError when it is gone."""
    connected.setblocking(False)
    tcp = socket.IPPROTO_TCP
    connected.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(tcp, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connected.setsockopt(tcp, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connected.setsockopt(tcp, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    connected.setsockopt(tcp, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
