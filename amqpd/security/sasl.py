"""What a client's SASL response says, for the mechanisms that we offer, and which user a client certificate names.

What comes in: the mechanism's name and the response in `connection.start-ok`; a certificate as
`ssl.SSLSocket.getpeercert()` gives it. What goes out: `Credentials`, `CertificateIdentity`, or `Malformed`; a user's
name.
Rules: 1. Pure; any bytes give one of the three. 2. No text that goes out holds a password.
Not here: whether the credentials are right (`authentication/logins.py`), verifying certificates (the TLS context).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from amqpd.wire.fieldtable import read_entries

# A user name and a password have 255 bytes each in a URI that clients take.
RESPONSE_BYTES_MAX = 8_192
# No user has a longer name (`amqpd user add` refuses it). It would come into the log, from anybody, 8 kB at a time.
USER_BYTES_MAX = 255

_TOO_LONG = f"the user name in the {{}} response is longer than {USER_BYTES_MAX} bytes"

MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL")


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, of PLAIN or AMQPLAIN."""

    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The identity of EXTERNAL: the user is the one that the client's certificate names. `authzid` is the name
    that the client asks for, or empty."""

    authzid: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The response cannot be read; `reason` is for the log."""

    reason: str


Response = Credentials | CertificateIdentity | Malformed


def parse_response(mechanism: str, response: bytes) -> Response | None:
    """None: we do not offer this mechanism."""
    if len(response) > RESPONSE_BYTES_MAX and mechanism in MECHANISMS:
        return Malformed(f"the {mechanism} response is longer than {RESPONSE_BYTES_MAX} bytes")
    if mechanism == "PLAIN":
        return parse_plain(response)
    if mechanism == "AMQPLAIN":
        return parse_amqplain(response)
    if mechanism == "EXTERNAL":
        return parse_external(response)
    return None


def parse_plain(response: bytes) -> Credentials | Malformed:
    """RFC 4616: message = [authzid] NUL authcid NUL passwd. An authzid other than the user is refused: no user
    acts for another one here."""
    parts = response.split(b"\0")
    if len(parts) != 3:
        return Malformed("the PLAIN response is not authzid NUL user NUL password")
    authzid, user, password = parts
    if authzid not in (b"", user):
        return Malformed("the PLAIN response asks to act for another user")
    if len(user) > USER_BYTES_MAX:
        return Malformed(_TOO_LONG.format("PLAIN"))
    try:
        return Credentials(user.decode(), password)
    except UnicodeDecodeError:
        return Malformed("the user name in the PLAIN response is not UTF-8")


def parse_amqplain(response: bytes) -> Credentials | Malformed:
    """A field table without its length, with the long strings LOGIN and PASSWORD (AMQP 0-8 called it
    PLAIN)."""
    try:
        table = read_entries(response)
    except ValueError:
        return Malformed("the AMQPLAIN response is not a field table")
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if isinstance(password, str):
        password = password.encode()
    if not isinstance(user, str) or not isinstance(password, bytes | bytearray):
        return Malformed("the AMQPLAIN response lacks the strings LOGIN and PASSWORD")
    if len(user.encode("utf-8", "surrogatepass")) > USER_BYTES_MAX:
        return Malformed(_TOO_LONG.format("AMQPLAIN"))
    return Credentials(user, bytes(password))


def parse_external(response: bytes) -> CertificateIdentity | Malformed:
    """RFC 4422, appendix A: an authzid, or nothing. (RabbitMQ's clients send nothing, or the user's name.)"""
    if len(response) > USER_BYTES_MAX:
        return Malformed(_TOO_LONG.format("EXTERNAL"))
    try:
        return CertificateIdentity(response.decode())
    except UnicodeDecodeError:
        return Malformed("the EXTERNAL response is not UTF-8")


LoginFrom = Literal["common_name", "distinguished_name", "subject_alternative_name"]

# OpenSSL's long names, which Python shows, to the short ones.
_SHORT_TYPES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}


def certificate_user(certificate: Mapping[str, Any] | None, login_from: LoginFrom) -> str | None:
    """The user that a verified certificate stands for (the EXTERNAL mechanism), named as by RabbitMQ's
    `ssl_cert_login_from`, so its users move over unchanged. common_name: the common names, joined by commas.
    distinguished_name: the whole subject, last part first, as `CN=client,O=Example`. subject_alternative_name: the
    first DNS name. None when there is no such thing.

    After RFC 4514 (the text form of a distinguished name) and RabbitMQ's documentation of the setting; where
    RabbitMQ's text differs from the RFC (types beyond the RFC's table, escaped bytes), as RabbitMQ has it."""
    if not certificate:
        return None
    subject = certificate.get("subject", ())
    if login_from == "common_name":
        names = [value for part in subject for name, value in part if name == "commonName"]
        return ",".join(names) or None
    if login_from == "distinguished_name":
        return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject)) or None
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            return str(value)
    return None


def _attribute(name: str, value: str) -> str:
    return f"{_SHORT_TYPES.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = ""
    last = len(value) - 1
    for at, character in enumerate(value):
        if (at == 0 and character in " #") or (at == last and character == " ") or character in '"+,;<>\\':
            escaped += "\\" + character
        elif not " " <= character < "~":
            escaped += "".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        else:
            escaped += character
    return escaped
