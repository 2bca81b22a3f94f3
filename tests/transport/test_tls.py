"""TLS: real handshakes in memory with certificates made here, refusals in one sentence, names in
certificates."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
from cryptography.hazmat.primitives import serialization

from amqpd.errors import StartupError
from amqpd.setting_tables import TlsSettings
from amqpd.transport.tls import TEXT_LENGTH_MAX, server_context, tell_exposed_key, tls_facts
from amqpd.vocabulary.states import TLS_FIELDS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    server = authority.issue_cert("broker.example", "localhost")
    server.cert_chain_pems[0].write_to_path(directory / "server.pem")
    server.private_key_pem.write_to_path(directory / "server.key")
    server.private_key_and_cert_chain_pem.write_to_path(directory / "both.pem")
    authority.issue_cert("other.example").private_key_pem.write_to_path(directory / "other.key")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    (directory / "nonsense.pem").write_text("nothing here")
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    )
    (directory / "encrypted.key").write_bytes(encrypted)
    return directory


def settings(files: Path, **changes: Any) -> TlsSettings:
    values = {"certificate": files / "server.pem", "key": files / "server.key"} | changes
    return TlsSettings(**values)


def client_context(authority: trustme.CA, identity: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if identity:
        authority.issue_cert(identity).configure_cert(context)
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Runs both ends against each other; returns the server's. Raises the ssl.SSLError of the end that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="broker.example"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # TLS 1.3 ends the client's handshake before the server has seen its certificate: the server decides.
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return ends[1]
    raise AssertionError("no end of the handshake")


def test_a_client_that_trusts_the_authority_gets_through(files: Path, authority: trustme.CA) -> None:
    server = handshake(server_context(settings(files)), client_context(authority))
    assert server.version() == "TLSv1.3"
    assert not server.getpeercert()


def test_key_and_certificate_may_be_one_file(files: Path, authority: trustme.CA) -> None:
    handshake(server_context(TlsSettings(certificate=files / "both.pem")), client_context(authority))


def test_the_lowest_version_is_kept(files: Path, authority: trustme.CA) -> None:
    old = client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(server_context(settings(files)), old).version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        handshake(server_context(settings(files, min_version="1.3")), old)


@pytest.mark.parametrize(
    ("verify_peer", "identity", "accepted"),
    [
        ("none", None, True),
        ("optional", None, True),
        ("optional", "app.example", True),
        ("required", "app.example", True),
        ("required", None, False),
    ],
)
def test_client_certificates(
    verify_peer: str, identity: str | None, accepted: bool, files: Path, authority: trustme.CA
) -> None:
    context = server_context(settings(files, verify_peer=verify_peer, ca=files / "ca.pem"))
    if not accepted:
        with pytest.raises(ssl.SSLError):
            handshake(context, client_context(authority, identity))
        return
    certificate = handshake(context, client_context(authority, identity)).getpeercert()
    names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
    assert names == ([identity] if identity else [])


@pytest.mark.parametrize(
    ("version", "cipher", "parts"),
    [
        ("TLSv1.3", "TLS_AES_256_GCM_SHA384", ("any", "aes_256_gcm", "aead")),
        ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256", ("ecdhe_ecdsa", "aes_128_gcm", "aead")),
        ("TLSv1.2", "ECDHE-RSA-CHACHA20-POLY1305", ("ecdhe_rsa", "chacha20_poly1305", "aead")),
        ("TLSv1.2", "AES256-SHA256", ("rsa", "aes_256_cbc", "sha256")),
        ("TLSv9", "none that is known", (None, None, None)),
    ],
)
def test_what_was_agreed_is_said_as_rabbitmq_says_it(
    version: str, cipher: str, parts: tuple[str | None, ...]
) -> None:
    facts = tls_facts(version, cipher, None)
    assert facts["ssl_protocol"] == version.lower()
    assert (facts["ssl_key_exchange"], facts["ssl_cipher"], facts["ssl_hash"]) == parts
    assert {facts[name] for name in TLS_FIELDS if name.startswith("peer")} == {None}


def test_a_client_s_certificate_is_described_as_rabbitmq_does_it(files: Path, authority: trustme.CA) -> None:
    context = server_context(settings(files, verify_peer="required", ca=files / "ca.pem"))
    server = handshake(context, client_context(authority, "app.example"))
    agreed = server.cipher()
    assert agreed is not None
    facts = tls_facts(server.version(), agreed[0], server.getpeercert())
    assert facts.keys() == set(TLS_FIELDS)
    assert None not in facts.values()
    assert re.fullmatch(r"OU=Testing cert .+,O=trustme v.+", str(facts["peer_cert_subject"]))
    assert re.fullmatch(r"OU=Testing CA .+,O=trustme v.+", str(facts["peer_cert_issuer"]))
    assert re.fullmatch(r"[1-9A-F][0-9A-F]*", str(facts["peer_cert_serial_number"]))
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(f"{moment} - {moment}", str(facts["peer_cert_validity"]))


def test_a_name_in_a_certificate_is_written_as_rfc_4514_has_it_and_no_longer_than_its_bound() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "#x"), ("serial", "1")))
    assert tls_facts(None, None, {"subject": subject})["peer_cert_subject"] == "CN=\\#x+serial=1,O=A\\, B,C=DE"
    long = tls_facts(None, None, {"subject": ((("commonName", "x" * 9_999),),), "notBefore": "never"})
    assert len(str(long["peer_cert_subject"])) == TEXT_LENGTH_MAX
    assert long["peer_cert_validity"] == "never - "


@pytest.mark.parametrize("verify_peer", ["optional", "required"])
def test_a_certificate_of_a_stranger_is_refused(verify_peer: str, files: Path, authority: trustme.CA) -> None:
    context = server_context(settings(files, verify_peer=verify_peer, ca=files / "ca.pem"))
    client = client_context(authority)
    trustme.CA().issue_cert("stranger.example").configure_cert(client)
    with pytest.raises(ssl.SSLError):
        handshake(context, client)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"certificate": "missing.pem"},
            "cannot read tls.certificate {d}/missing.pem: No such file or directory; ",
        ),
        (
            {"key": "missing.key"},
            "cannot read tls.key {d}/missing.key: No such file or directory; name a file",
        ),
        ({"ca": "missing.pem"}, "cannot read tls.ca {d}/missing.pem: No such file or directory; name a file"),
        ({"certificate": ""}, "cannot read tls.certificate {d}: Is a directory; name a file"),
        (
            {"key": "other.key"},
            "tls.key {d}/other.key does not belong to tls.certificate {d}/server.pem: name its own key",
        ),
        ({"key": "encrypted.key"}, "tls.key {d}/encrypted.key is encrypted: remove its passphrase"),
        (
            {"certificate": "nonsense.pem"},
            "tls.certificate {d}/nonsense.pem and tls.key {d}/server.key hold no certificate and key in PEM",
        ),
        (
            {"key": None},
            "tls.certificate {d}/server.pem and tls.key {d}/server.pem hold no certificate and key",
        ),
        ({"ca": "nonsense.pem"}, "tls.ca {d}/nonsense.pem holds no certificate in PEM form ("),
    ],
)
def test_unusable_files_are_one_sentence(changes: dict[str, str | None], sentence: str, files: Path) -> None:
    paths = {name: None if value is None else files / value for name, value in changes.items()}
    with pytest.raises(StartupError) as caught:
        server_context(settings(files, **paths))
    assert caught.value.sentence.startswith(sentence.format(d=files))


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)])
def test_a_key_that_others_can_read_is_used_and_told(mode: int, told: bool, files: Path) -> None:
    (files / "server.key").chmod(mode)
    assert server_context(settings(files)) is not None
    with structlog.testing.capture_logs() as lines:
        tell_exposed_key("tls.key", files / "server.key")
        tell_exposed_key("tls.key", None)
    assert [line["event"] for line in lines] == ["a private key is not private"] * told
    assert all(
        f"others can read or change {files / 'server.key'} (mode {mode:o})" in line["reason"] for line in lines
    )
