"""What a client's SASL response says, for the mechanisms that we offer.

What comes in: the mechanism's name and the response in `connection.start-ok`.
What goes out: `Credentials`, `CertificateIdentity`, or `Malformed`.
Rules: 1. Pure; any bytes give one of the three. 2. No text that goes out holds a password.
Not here: whether the credentials are right (`authentication/logins.py`), whose certificate it is (`external.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
