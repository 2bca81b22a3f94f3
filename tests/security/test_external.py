"""Names of client certificates, from certificates that OpenSSL has really read."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme

from amqpd.security.sasl import certificate_user


@pytest.fixture(scope="module")
def certificate() -> dict[str, Any]:
    """What a server sees of a client's certificate, after a handshake in memory."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    for context in (server, client):
        authority.configure_trust(context)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("server.example").configure_cert(server)
    authority.issue_cert(
        "host.example",
        "second.example",
        common_name="client, one",
        organization_name="Grün + Söhne",
        organization_unit_name="#1 ",
    ).configure_cert(client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="server.example"),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    found = ends[0].getpeercert()
    assert found
    return dict(found)


def test_names_of_a_certificate(certificate: dict[str, Any]) -> None:
    assert certificate_user(certificate, "common_name") == "client, one"
    assert (
        certificate_user(certificate, "distinguished_name")
        == "CN=client\\, one,OU=\\#1\\ ,O=Gr\\C3\\BCn \\+ S\\C3\\B6hne"
    )
    assert certificate_user(certificate, "subject_alternative_name") == "host.example"


@pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}, {"subject": ((("organizationName", ""),),)}])
def test_no_name(certificate: dict[str, Any] | None) -> None:
    assert certificate_user(certificate, "common_name") is None
    assert certificate_user(certificate, "subject_alternative_name") is None


def test_no_distinguished_name() -> None:
    assert certificate_user({}, "distinguished_name") is None
    assert certificate_user({"subject": ()}, "distinguished_name") is None


def test_several_values_and_unknown_types() -> None:
    subject = (
        (("domainComponent", "org"),),
        (("commonName", "a"), ("userId", "7")),
        (("commonName", " b~\n"),),
        (("1.2.3.4", "x"),),
    )
    assert certificate_user({"subject": subject}, "common_name") == "a, b~\n"
    assert (
        certificate_user({"subject": subject}, "distinguished_name") == "1.2.3.4=x,CN=\\ b\\7E\\0A,CN=a+UID=7,DC=org"
    )
