"""SASL responses: the right ones, and any other bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode

from amqpd.security.sasl import (
    MECHANISMS,
    USER_BYTES_MAX,
    CertificateIdentity,
    Credentials,
    Malformed,
    parse_response,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
USERS = NAMES.filter(lambda name: len(name.encode()) <= USER_BYTES_MAX)
PASSWORDS = st.binary().map(lambda password: password.replace(b"\0", b""))


def amqplain(**fields: object) -> bytes:
    return encode.field_table(fields)[4:]  # type: ignore[arg-type]


@given(USERS, PASSWORDS, st.booleans())
def test_plain(user: str, password: bytes, with_authzid: bool) -> None:
    authzid = user.encode() if with_authzid else b""
    response = authzid + b"\0" + user.encode() + b"\0" + password
    assert parse_response("PLAIN", response) == Credentials(user, password)


@given(USERS, NAMES)
def test_amqplain(user: str, password: str) -> None:
    response = amqplain(LOGIN=user, PASSWORD=password)
    assert parse_response("AMQPLAIN", response) == Credentials(user, password.encode())


def test_amqplain_with_a_password_that_is_not_utf8() -> None:
    response = b"\x05LOGINS\x00\x00\x00\x01u" + b"\x08PASSWORDS\x00\x00\x00\x02\xff\xfe"
    assert parse_response("AMQPLAIN", response) == Credentials("u", b"\xff\xfe")


def test_external() -> None:
    assert parse_response("EXTERNAL", b"") == CertificateIdentity()
    assert parse_response("EXTERNAL", b"client") == CertificateIdentity("client")
    assert isinstance(parse_response("EXTERNAL", b"\xff"), Malformed)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\0u\0" + b"p" * 9_000,
        b"user",
        b"\0user",
        b"\0user\0pass\0more",
        b"other\0user\0pass",
        b"\0\xff\0pass",
    ],
)
def test_malformed_plain(response: bytes) -> None:
    assert isinstance(parse_response("PLAIN", response), Malformed)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\x05LOGIN",
        amqplain(LOGIN="u"),
        amqplain(PASSWORD="p"),
        amqplain(LOGIN=1, PASSWORD="p"),
        amqplain(LOGIN="u", PASSWORD=[1]),
        amqplain(LOGIN="u", PASSWORD="p") + b"\x01",
        amqplain(LOGIN="u", PASSWORD="p")[:-1],
        b"\x01aF\x00\x00\x00\x01" * 1_000,
        b"\x01aA\xff\xff\xff\xff",
        b"\x01aT\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_malformed_amqplain(response: bytes) -> None:
    assert isinstance(parse_response("AMQPLAIN", response), Malformed)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_name_that_no_user_can_have_comes_to_no_log(mechanism: str) -> None:
    """8 kB of it, from anybody and as often as they like."""
    name = "u" * 256
    response = {"PLAIN": f"\0{name}\0p".encode(), "AMQPLAIN": amqplain(LOGIN=name, PASSWORD="p")}
    refused = parse_response(mechanism, response.get(mechanism, name.encode()))
    assert isinstance(refused, Malformed)
    assert "uu" not in refused.reason
    assert parse_response("PLAIN", f"\0{name[1:]}\0p".encode()) == Credentials(name[1:], b"p")


def test_deeply_nested_amqplain() -> None:
    response = b""
    for _ in range(1_000):
        response = b"\x01aF" + len(response).to_bytes(4, "big") + response
    assert isinstance(parse_response("AMQPLAIN", response), Malformed)


@given(st.sampled_from(MECHANISMS), st.binary())
def test_any_bytes(mechanism: str, response: bytes) -> None:
    assert parse_response(mechanism, response) is not None


TYPES = "tbBsuIilLfdDSAFTVx"


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.binary(max_size=20)), max_size=5))
def test_any_fields(fields: list[tuple[str, bytes]]) -> None:
    response = b"".join(b"\x01a" + kind.encode() + data for kind, data in fields)
    assert isinstance(parse_response("AMQPLAIN", response), Malformed)


def test_an_unknown_mechanism_and_secrets_in_texts() -> None:
    assert parse_response("SCRAM-SHA-256", b"") is None
    assert "secret" not in repr(Credentials("u", b"secret"))
