"""The user name that a client certificate stands for (the EXTERNAL mechanism).

What comes in: the certificate as `ssl.SSLSocket.getpeercert()` gives it, which is empty unless the
certificate was verified. What goes out: a name, or None.
Rules: 1. The same names as RabbitMQ's `ssl_cert_login_from`, so its users move over unchanged.
Not here: verifying certificates (the TLS context), whether such a user exists (`authentication/logins.py`).

Written after RFC 4514 (the text form of a distinguished name) and RabbitMQ's documentation of the setting;
where RabbitMQ's text differs from the RFC (types beyond the RFC's table, escaped bytes), as RabbitMQ has
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
    """common_name: the common names, joined by commas. distinguished_name: the whole subject, last part
    first, as `CN=client,O=Example`. subject_alternative_name: the first DNS name. None when there is no
    such thing."""
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
