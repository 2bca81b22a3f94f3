"""Listening sockets: both families, ports of the system's choice, and refusals that leave nothing open."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.transport import listeners
from amqpd.transport.listeners import (
    DESCRIPTORS_OF_HTTP,
    DESCRIPTORS_RESERVED,
    Listener,
    close_listeners,
    connections_possible,
    open_listeners,
    start_listening,
)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@contextmanager
def opened(**settings: Any) -> Iterator[list[Listener]]:
    found = open_listeners(Settings(**{"port": 0} | settings))
    try:
        yield found
    finally:
        close_listeners(found)


@needs_ipv6
def test_the_default_is_loopback_of_both_families_on_one_port() -> None:
    with opened() as found:
        assert [listener.host for listener in found] == ["127.0.0.1", "::1"]
        assert len({listener.port for listener in found}) == 1
        assert found[0].port != 0
        assert found[1].address == f"[::1]:{found[1].port}"
        assert [listener.tls for listener in found] == [False, False]


def test_clients_get_through_only_after_start_listening() -> None:
    with opened(bind=["127.0.0.1"]) as [listener]:
        assert listener.socket.getblocking() is False
        with socket.socket() as early:
            assert early.connect_ex(("127.0.0.1", listener.port)) == errno.ECONNREFUSED
        start_listening([listener])
        with socket.create_connection(("127.0.0.1", listener.port)):
            listener.socket.accept()[0].close()


@needs_ipv6
def test_every_interface_of_both_families() -> None:
    with opened(bind=["0.0.0.0", "::"]) as found:
        start_listening(found)
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, found[0].port)).close()


def test_the_tls_listener_opens_with_a_certificate(tmp_path: Path) -> None:
    tls = {"certificate": tmp_path / "c.pem", "port": 0}
    with opened(bind=["127.0.0.1"], tls=tls) as found:
        assert [listener.tls for listener in found] == [False, True]
    with opened(bind=["127.0.0.1"], tls=tls, plain_listener=False) as found:
        assert [listener.tls for listener in found] == [True]


def test_an_address_that_is_named_twice_is_bound_once() -> None:
    with opened(bind=["127.0.0.1", "localhost", "127.0.0.1"]) as found:
        assert [listener.host for listener in found].count("127.0.0.1") == 1


def test_a_port_in_use_is_one_sentence_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    real = socket.socket

    class Recorded(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    with real() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(socket, "socket", Recorded)
        with pytest.raises(StartupError) as caught:
            open_listeners(Settings(bind=["127.0.0.2", "127.0.0.1"], port=port))
    assert caught.value.sentence == (
        f"cannot listen on 127.0.0.1 port {port}: another program does; stop it, or choose another port"
    )
    assert len(made) == 2
    assert all(each.fileno() == -1 for each in made)


def test_the_plain_listener_is_closed_when_the_tls_one_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other, socket.socket() as probe:
        other.bind(("127.0.0.1", 0))
        other.listen()
        probe.bind(("127.0.0.1", 0))
        plain, taken = probe.getsockname()[1], other.getsockname()[1]
        probe.close()
        settings = Settings(bind=["127.0.0.1"], port=plain, tls={"certificate": "c", "port": taken})
        with pytest.raises(StartupError, match=r"choose another tls\.port$"):
            open_listeners(settings)
        # Without SO_REUSEADDR: this fails while anything is bound there.
        with socket.socket() as again:
            again.bind(("127.0.0.1", plain))


def test_two_that_bound_the_same_port_cannot_both_listen() -> None:
    with opened(bind=["127.0.0.1"]) as [first], opened(bind=["127.0.0.1"], port=first.port) as [second]:
        start_listening([first])
        with pytest.raises(StartupError, match=f"port {first.port}: another program does"):
            start_listening([second])


def test_a_free_port_that_another_address_has_in_use_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[tuple[str, int]] = []
    real = listeners._bind

    def unlucky(family: Any, host: str, port: int, setting: str, **named: Any) -> Listener | None:
        attempts.append((host, port))
        if len(attempts) == 2:
            raise listeners._PortInUse(StartupError("taken"))
        return real(family, host, port, setting, **named)

    monkeypatch.setattr(listeners, "_bind", unlucky)
    with opened(bind=["127.0.0.1", "127.0.0.2"]) as found:
        assert [listener.port for listener in found] == [attempts[3][1]] * 2
    assert [port != 0 for _, port in attempts] == [False, True, False, True]


def test_an_address_of_another_machine_is_one_sentence() -> None:
    # 192.0.2.0/24 is for documentation (RFC 5737): no interface has it.
    with pytest.raises(StartupError) as caught:
        open_listeners(Settings(bind=["192.0.2.1"], port=0))
    assert caught.value.sentence == (
        "cannot listen on 192.0.2.1 port 0: no interface of this machine has that address; "
        "give another one with --bind"
    )


def test_an_unknown_name_is_one_sentence() -> None:
    with pytest.raises(StartupError, match=r"^bind address 'not an address' is not known \(.*\): give an"):
        open_listeners(Settings(bind=["not an address"], port=0))


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, family: socket.AddressFamily) -> None:

    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == family:
                raise OSError(code, "refused")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Refusing)


def test_a_privileged_port_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EACCES, socket.AF_INET)
    with pytest.raises(StartupError, match="port 80: not permitted for this user; choose a port from 1024 on"):
        open_listeners(Settings(bind=["127.0.0.1"], port=80))


def test_a_machine_without_ipv6_is_fine_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EADDRNOTAVAIL, socket.AF_INET6)
    with opened() as found:
        assert [listener.host for listener in found] == ["127.0.0.1"]


def test_a_machine_without_ipv6_is_told_when_ipv6_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EADDRNOTAVAIL, socket.AF_INET6)
    with pytest.raises(StartupError, match=r"^cannot listen on ::1 port 0: no interface"):
        open_listeners(Settings(bind=["::1"], port=0))


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "possible", "raised"),
    [
        (1024, 1024, 100, 100, None),
        (1024, 4096, 100_000, 4096 - DESCRIPTORS_RESERVED, (4096, 4096)),
        (1024, resource.RLIM_INFINITY, 10_000, 10_000, (10_256, resource.RLIM_INFINITY)),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, 10_000, None),
        (64, 64, 10_000, 1, (64, 64)),
    ],
)
def test_descriptors_bound_the_connections(
    soft: int,
    hard: int,
    wanted: int,
    possible: int,
    raised: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: done.append(limits))
    alone = Settings(connections_max=wanted, http={"enabled": False})
    assert connections_possible(alone) == possible
    assert done == ([raised] if raised else [])


@pytest.mark.parametrize(("enabled", "http"), [(True, 500 + DESCRIPTORS_OF_HTTP), (False, 0)])
def test_connections_of_http_have_descriptors_of_their_own(
    enabled: bool, http: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[int, int]] = []
    settings = Settings(connections_max=10_000, http={"enabled": enabled, "connections_max": 500})
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2048, 2048))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: done.append(limits))
    assert connections_possible(settings) == 2048 - DESCRIPTORS_RESERVED - http
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert connections_possible(settings) == 10_000
    assert done[-1] == (10_000 + DESCRIPTORS_RESERVED + http, resource.RLIM_INFINITY)
