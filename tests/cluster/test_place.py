"""Where a node listens, and what proves who nodes are: what cannot be safe stops the start with one sentence.

What is verified: which addresses are open without a proof; where the secret comes from, and that it is in no text; a
certificate that does not name its node. Not verified: links (`links/`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import SecretStr

from amqpd.cluster.place import Place, place_of, require_own_certificate
from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.peers.links.sockets import connect
from amqpd.peers.links.stream import Broken
from tests.peers.links.forwarders import Certificates, nobodys_address

SECRET = "0123456789abcdef"


@contextmanager
def placed(**settings: Any) -> Iterator[Place]:
    given = {"node_name": "a@x", "cluster_store": "etcd://127.0.0.1/test", "cluster_listen": "127.0.0.1:0"}
    told = Settings(**{**given, **settings})
    place = place_of(told)
    assert place is not None
    try:
        require_own_certificate(place, told)
        yield place
    finally:
        for each in place.listeners:
            each.close()


def refused(**settings: Any) -> str:
    with pytest.raises(StartupError) as raised, placed(**settings):
        pass
    return str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "127.9.9.9"])
def test_without_a_proof_loopback_is_listened_on_and_the_log_says_so(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with placed(cluster_listen=f"{host}:0") as place:
        assert place.trust.is_loopback_only
    assert "links between nodes prove nothing" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_without_a_proof_nothing_else_is_listened_on(host: str) -> None:
    text = refused(cluster_listen=f"{host}:0", cluster_advertise="10.0.0.1:5680")
    assert "everybody could pretend to be a node" in text
    assert "set cluster_tls_ca and cluster_tls_certificate, or cluster_secret_file" in text
    with placed(cluster_listen=f"{host}:0", cluster_advertise="10.0.0.1:5680", cluster_secret=SECRET) as place:
        assert not place.trust.is_loopback_only


def test_without_a_proof_other_machines_are_not_dialed() -> None:
    with pytest.raises(Broken, match=r"10\.255\.255\.1 is not this machine, and links prove nothing"):
        trio.run(lambda: connect(("10.255.255.1", 1), loopback_only=True))
    with pytest.raises(Broken, match="refused"):
        trio.run(lambda: connect(nobodys_address(), loopback_only=True))


@pytest.mark.parametrize("behind", ["", "\n", "\r\n"])
def test_the_secret_is_what_the_file_has(behind: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET + behind)
    path.chmod(0o600)
    with placed(cluster_secret_file=path) as place, placed(cluster_secret=SECRET) as other:
        assert place.trust == other.trust
        assert place.trust.secret == SECRET.encode()
        assert SECRET not in repr(place)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o622, 0o660])
def test_a_secret_that_others_can_read_is_none(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(mode)
    text = refused(cluster_secret_file=path)
    assert f"others can read or change {path} (mode {mode:o})" in text
    assert "chmod 600" in text
    path.chmod(0o640)  # of root's, and a group's to read
    with placed(cluster_secret_file=path):
        pass


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o622, 0o660])
@pytest.mark.parametrize("apart", [True, False])
def test_so_is_a_key_of_links_in_a_file_of_its_own_or_beside_its_certificate(
    mode: int, apart: bool, certificates: Certificates, tmp_path: Path
) -> None:
    certificate = certificates.file_of("a@x")
    key = tmp_path / "key.pem" if apart else certificate
    key.write_bytes(certificate.read_bytes())
    files = {"cluster_tls_ca": certificates.ca, "cluster_tls_certificate": certificate}
    if apart:
        certificate.chmod(0o644)
        files["cluster_tls_key"] = key
    key.chmod(mode)
    text = refused(**files)
    assert f"others can read or change {key} (mode {mode:o}): chmod 600 it" in text
    assert text.startswith("cluster_tls_key: " if apart else "cluster_tls_certificate, which has the key: ")
    key.chmod(0o640)
    with placed(**files):
        pass


@pytest.mark.parametrize("secret", ["", "tiny one", "fifteen bytes..", "x" * 4097])
def test_a_secret_is_neither_short_nor_endless(secret: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(secret)
    path.chmod(0o600)
    texts = [refused(cluster_secret_file=path)]
    if secret:
        texts.append(refused(cluster_secret=secret))
    for text in texts:
        assert "openssl rand -base64 32" in text
        assert not secret or secret not in text


def test_a_secret_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "cannot read" in refused(cluster_secret_file=tmp_path / "none")


def test_both_secrets_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cluster_secret and cluster_secret_file are both set") as raised:
        Settings(
            cluster_store="etcd://127.0.0.1/test",
            cluster_listen="127.0.0.1:0",
            cluster_secret=SecretStr(SECRET),
            cluster_secret_file=tmp_path / "x",
        )
    assert "another" not in str(raised.value)


def test_a_certificate_has_to_name_its_node(certificates: Certificates) -> None:
    files = {"cluster_tls_ca": certificates.ca}
    wrong = certificates.file_of("b@x")
    text = refused(**files, cluster_tls_certificate=wrong)
    assert f"{wrong} does not name this node: it needs the alternative name URI:amqpd:a@x" in text
    with placed(**files, cluster_tls_certificate=certificates.file_of("b@x", "a@x")) as place:
        assert place.trust.tls is not None
        assert not place.trust.is_loopback_only


def test_a_certificate_that_the_authority_does_not_know_is_told(certificates: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path)
    text = refused(cluster_tls_ca=certificates.ca, cluster_tls_certificate=other.file_of("a@x"))
    assert "peers will refuse this node's own certificate" in text
    assert "have it signed by the authority in cluster_tls_ca, or put the certificate of its authority" in text
