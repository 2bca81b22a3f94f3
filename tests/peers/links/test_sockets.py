"""Ports and files that cannot be used stop the start with one sentence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from amqpd.errors import StartupError
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import bind, connect
from amqpd.peers.links.stream import Broken, NotListening
from amqpd.peers.links.tls import link_tls
from tests.peers.links.forwarders import OPEN, Certificates, Heard, hello, nobodys_address


def test_a_port_that_another_process_has_is_told() -> None:
    [first] = bind([("127.0.0.1", 0)])
    port = first.getsockname()[1]
    first.listen()
    with pytest.raises(
        StartupError, match=rf"cluster_listen: cannot listen on 127\.0\.0\.1 port {port}: Address already"
    ):
        bind([("127.0.0.1", port)])
    first.close()


def test_a_port_that_two_processes_have_bound_is_told_to_the_second() -> None:
    [first] = bind([("127.0.0.1", 0)])
    second = bind([("127.0.0.1", first.getsockname()[1])])
    first.listen()
    with pytest.raises(StartupError, match="cluster_listen: cannot listen on"):
        trio.run(Links(hello("a"), Heard(), second, OPEN).run)
    assert second[0].fileno() == -1
    first.close()


def test_a_port_may_be_bound_for_both_families() -> None:
    [first] = bind([("0.0.0.0", 0)])
    [second] = bind([("::", first.getsockname()[1])])
    first.listen()
    second.listen()
    first.close()
    second.close()


class Refusing(trio.abc.HostnameResolver):
    """Of two addresses nobody listens on the first, and the second one is no address to connect to."""

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        found = [("127.0.0.1", nobodys_address()[1]), ("255.255.255.255", 1)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in found]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


@pytest.mark.trio
async def test_it_is_a_refusal_only_if_every_address_refuses() -> None:
    trio.socket.set_custom_hostname_resolver(Refusing())
    with pytest.raises(Broken, match="Connection refused; ") as raised:
        await connect(("localhost", 1), loopback_only=False)
    assert not isinstance(raised.value, NotListening)


def test_an_address_that_is_not_of_this_machine_is_told() -> None:
    with pytest.raises(StartupError, match=r"cluster_listen: cannot listen on 192\.0\.2\.1 port 1"):
        bind([("127.0.0.1", 0), ("192.0.2.1", 1)])
    with pytest.raises(StartupError, match="cluster_listen: 'no host' is no address"):
        bind([("no host", 1)])


@pytest.mark.parametrize("wrong", ["ca", "certificate"])
def test_files_that_hold_no_certificates_are_told(wrong: str, certificates: Certificates, tmp_path: Path) -> None:
    nonsense, none = tmp_path / "nonsense.pem", tmp_path / "none.pem"
    nonsense.write_text("nothing here")
    for path in (nonsense, none):
        with pytest.raises(StartupError, match=f"cluster_tls_{wrong}: cannot use {path}"):
            link_tls(path if wrong == "ca" else certificates.ca, path)


def test_a_key_of_another_certificate_is_told(certificates: Certificates, tmp_path: Path) -> None:
    certificates.authority.issue_cert("a").cert_chain_pems[0].write_to_path(tmp_path / "a.pem")
    certificates.authority.issue_cert("b").private_key_pem.write_to_path(tmp_path / "b.key")
    with pytest.raises(StartupError, match="KEY_VALUES_MISMATCH"):
        link_tls(certificates.ca, tmp_path / "a.pem", tmp_path / "b.key")
