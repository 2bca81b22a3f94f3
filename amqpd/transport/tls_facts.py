"""What is known of a TLS connection and of its client's certificate, as RabbitMQ writes it.

What comes in: OpenSSL's names of a protocol and a cipher; a certificate as `ssl.SSLSocket.getpeercert` has it. What
goes out: texts by RabbitMQ's names; None where there is nothing to say.
Rules: nothing here raises: a certificate of an odd form is described as far as it can be.

Source: rabbit_reader.erl (`ssl_*`, `peer_cert_*`), rabbit_cert_info.erl of RabbitMQ 4.2; RFC 4514 for names.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from amqpd.vocabulary.states import TLS_FIELDS

TEXT_LENGTH_MAX = 2_000
"""of a name in a certificate, which is kept as long as the connection"""

# RFC 4514, section 3, and the usual one for mail addresses.
_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
    "emailAddress": "EMAIL",
}
_ESCAPED = '\\",+;<>'

Facts = dict[str, str | None]


def tls_facts(protocol: str | None, cipher: str | None, certificate: Mapping[str, Any] | None) -> Facts:
    """By the names in `TLS_FIELDS`. `protocol` is OpenSSL's ("TLSv1.3"), `cipher` one of its suites."""
    facts: Facts = dict.fromkeys(TLS_FIELDS)
    facts["ssl_protocol"] = protocol and protocol.lower()
    facts |= dict(zip(TLS_FIELDS[1:4], _parts_of(cipher or ""), strict=True))
    if certificate:
        serial = str(certificate.get("serialNumber", "")).lstrip("0")
        facts |= {
            "peer_cert_subject": _name(certificate.get("subject", ())),
            "peer_cert_issuer": _name(certificate.get("issuer", ())),
            "peer_cert_serial_number": serial or "0",
            "peer_cert_validity": " - ".join(_time(certificate.get(end, "")) for end in ("notBefore", "notAfter")),
        }
    return facts


@functools.lru_cache(maxsize=256)
def _parts_of(cipher: str) -> tuple[str | None, str | None, str | None]:
    """Key exchange, cipher, hash."""
    known = {str(each["name"]): each for each in _ciphers()}
    if cipher not in known:
        return None, None, None
    found = known[cipher]
    exchange, signature = (str(found[part]).partition("-")[2].replace("-", "_") for part in ("kea", "auth"))
    agreed = "any" if exchange == "any" else exchange if signature in ("any", exchange) else f"{exchange}_{signature}"
    digest = "aead" if found["aead"] else str(found["digest"]).replace("sha1", "sha")
    return agreed, str(found["symmetric"]).replace("-", "_"), digest


@functools.cache
def _ciphers() -> list[dict[str, Any]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return [dict(each) for each in context.get_ciphers()]


def _name(parts: Any) -> str:
    """As RFC 4514 writes it: the most particular part first."""
    found = []
    for group in reversed(tuple(parts)):
        found.append("+".join(f"{_SHORT.get(str(kind), kind)}={_escaped(str(value))}" for kind, value in group))
    return ",".join(found)[:TEXT_LENGTH_MAX]


def _escaped(value: str) -> str:
    text = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    return f"\\{text}" if text[:1] in (" ", "#") else text


def _time(text: str) -> str:
    try:
        at = datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
