"""The listening sockets: bound before anything else happens, listening when the broker is ready.

What comes in: `Settings`. What goes out: `Listener`s with raw non-blocking sockets, which the pump accepts
from; StartupError for a port that is in use, not allowed, or an address that is not of this machine.
Rules: 1. Bind first (nothing in the data directory is touched when a port is taken), `start_listening` last
(a client that gets through is served). 2. Every address is bound on its own, IPv6 sockets for IPv6 only: then
0.0.0.0 and :: do not clash and the list says exactly what is open. 3. What was opened is closed when another
address fails.
Not here: accepting (`acceptor.py`), TLS on the accepted bytes (`tls.py`).
"""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from amqpd.config import DEFAULT_BIND, Settings
from amqpd.errors import StartupError
from amqpd.transport.link import unmapped

# After a restart every client comes back at once, and a full backlog costs a client a second (its SYN is
# dropped and sent again). So as much as the kernel lets: it cuts the number to net.core.somaxconn, 4096 on
# Linux. More than 16 bits would wrap around on some systems.
BACKLOG = 0xFFFF
# Port 0 means: one port of the system's choice, the same on all addresses. The second address may have it in
# use already.
FREE_PORT_ATTEMPTS = 16
# Descriptors that are not client connections: journal, metadata store, control socket, logs, links to come.
DESCRIPTORS_RESERVED = 256
# Of the management API beside its connections: listening sockets, a copy of each, and a connection that is one more
# than it may have.
DESCRIPTORS_OF_HTTP = 48

_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)

log = structlog.get_logger(component="listeners")


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound, non-blocking socket. `host` and `port` are the actual ones, also when port 0 was asked for."""

    socket: socket.socket
    host: str
    port: int
    tls: bool
    setting: str
    """which one says the port"""

    @property
    def address(self) -> str:
        """As in a URI: 127.0.0.1:5672, [::1]:5672."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def open_listeners(settings: Settings) -> list[Listener]:
    """Binds every address for the plain and the TLS listener. Raises StartupError; then nothing stays
    open."""
    listeners: list[Listener] = []
    try:
        if settings.plain_listener:
            listeners += _bind_all(settings.bind, settings.port, "port", tls=False)
        if settings.tls.enabled:
            listeners += _bind_all(settings.bind, settings.tls.port, "tls.port", tls=True)
    except BaseException:
        close_listeners(listeners)
        raise
    return listeners


def open_http_listeners(settings: Settings) -> list[Listener]:
    """The same for the management API: nothing, when it is off."""
    http = settings.http
    if not http.enabled:
        return []
    return _bind_all(http.bind or settings.bind, http.port, "http.port", tls=http.tls)


def start_listening(listeners: Iterable[Listener]) -> None:
    """From here on the kernel accepts connections.

    Raises StartupError: with SO_REUSEADDR two processes may bind a port, and the second to listen is told."""
    for listener in listeners:
        try:
            listener.socket.listen(BACKLOG)
        except OSError as error:
            raise _refused(listener.host, listener.port, listener.setting, error) from None


def close_listeners(listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        listener.socket.close()


def connections_possible(settings: Settings) -> int:
    """How many clients at a time: `connections_max`, or what the limit of open files leaves.

    Raises the soft limit of open files to the hard one first: the soft one (often 1024) is for programs that
    use select(2), which the broker does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = DESCRIPTORS_RESERVED
    if settings.http.enabled:
        reserved += DESCRIPTORS_OF_HTTP + settings.http.connections_max
    wanted = settings.connections_max + reserved
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings.connections_max
    possible = max(1, soft - reserved)
    # The default was not asked for: then it is only worth knowing.
    tell = log.warning if "connections_max" in settings.model_fields_set else log.info
    tell("limit of open files bounds the connections", open_files=soft, connections=possible)
    return possible


def _bind_all(hosts: tuple[str, ...], port: int, setting: str, *, tls: bool) -> list[Listener]:
    for attempt in range(FREE_PORT_ATTEMPTS):
        listeners: list[Listener] = []
        try:
            for family, host in _addresses(hosts, port):
                chosen = listeners[0].port if listeners and port == 0 else port
                listener = _bind(family, host, chosen, setting, tls=tls, needed=hosts != DEFAULT_BIND)
                if listener is not None:
                    listeners.append(listener)
        except _PortInUse as error:
            close_listeners(listeners)
            if port != 0 or attempt == FREE_PORT_ATTEMPTS - 1:
                raise error.sentence from None
        except BaseException:
            close_listeners(listeners)
            raise
        else:
            return listeners
    raise AssertionError("the last attempt returns or raises")


def _addresses(hosts: tuple[str, ...], port: int) -> list[tuple[socket.AddressFamily, str]]:
    """(family, numeric host) for each bind address, in order, each once ("localhost" and "127.0.0.1"
    overlap)."""
    found: dict[tuple[socket.AddressFamily, str], None] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (socket.gaierror, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a host name"
            raise StartupError(
                f"bind address {host!r} is not known ({reason}): give an address of this machine with --bind"
            ) from None
        for family, _, _, _, address in answers:
            # A link-local IPv6 address is complete only with its zone.
            zone = host.partition("%")[2]
            numeric = str(address[0])
            found[family, f"{numeric}%{zone}" if zone and "%" not in numeric else numeric] = None
    return list(found)


class _PortInUse(Exception):
    """A port is in use; port 0 tries again."""

    def __init__(self, sentence: StartupError) -> None:
        self.sentence = sentence


def _bind(
    family: socket.AddressFamily, host: str, port: int, setting: str, *, tls: bool, needed: bool
) -> Listener | None:
    """None when this machine has no IPv6 and it was not asked for (`needed` is False)."""
    listening: socket.socket | None = None
    try:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setblocking(False)
        # Connections of a broker that just stopped are in TIME_WAIT; they must not keep the port for a
        # minute.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # An IPv4-mapped address is IPv4 traffic, which a socket for IPv6 only refuses.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, unmapped(host) == host)
        listening.bind(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4])
    except OSError as error:
        if listening is not None:
            listening.close()
        if family == socket.AF_INET6 and not needed and error.errno in _NO_SUCH_FAMILY:
            log.info("no IPv6 on this machine", host=host)
            return None
        sentence = _refused(host, port, setting, error)
        if error.errno == errno.EADDRINUSE:
            raise _PortInUse(sentence) from None
        raise sentence from None
    return Listener(listening, host, listening.getsockname()[1], tls, setting)


def _refused(host: str, port: int, setting: str, error: OSError) -> StartupError:
    where = f"cannot listen on {host} port {port}"
    if error.errno == errno.EADDRINUSE:
        return StartupError(f"{where}: another program does; stop it, or choose another {setting}")
    if error.errno in (errno.EACCES, errno.EPERM):
        return StartupError(
            f"{where}: not permitted for this user; choose a {setting} from 1024 on, or start with the right"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return StartupError(f"{where}: no interface of this machine has that address; give another one with --bind")
    return StartupError(
        f"{where}: {error.strerror or error}; choose another address with --bind, or another {setting}"
    )
