"""TLS for clients: the context from the settings, and what is known of a connection and its client's certificate.

What comes in: `TlsSettings`; OpenSSL's names of a protocol and a cipher, a certificate as `ssl.SSLSocket.getpeercert`
has it. What goes out: an `ssl.SSLContext` for a server, or StartupError with the file that is wrong; texts by
RabbitMQ's names.
Rules: 1. Files are read once, at start: a certificate that cannot be used stops the start, not a client. 2. Nothing
asks for a passphrase: a broker has no terminal. 3. A key that others can read is used, as RabbitMQ does, and told. 4.
A certificate of an odd form is described as far as it can be, and raises nothing.
Not here: the handshake and the bytes (`tls_stream.py`), the user in a client certificate (`security/sasl.py`).
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from amqpd.errors import StartupError
from amqpd.setting_tables import TlsSettings
from amqpd.storage.files import exposed
from amqpd.vocabulary.states import TLS_FIELDS

_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

log = structlog.get_logger(component="tls")


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context for the TLS listener; `settings.enabled` must be true. Raises StartupError."""
    certificate = settings.certificate
    if certificate is None:
        raise ValueError("TLS is off: no certificate in the settings")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    # A client of TLS 1.2 could ask for handshake after handshake on one connection (CVE-2011-1473), and what is
    # compressed tells its length (CRIME). Both are off by default in OpenSSL 3; older ones have to be told.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _must_be_readable(certificate, "tls.certificate")
    key = settings.key or certificate
    _must_be_readable(key, "tls.key")
    _load_chain(context, certificate, key)
    if settings.ca is not None:
        _must_be_readable(settings.ca, "tls.ca")
        try:
            context.load_verify_locations(cafile=settings.ca)
        except ssl.SSLError as error:
            raise StartupError(
                f"tls.ca {settings.ca} holds no certificate in PEM form ({_reason(error)}): name a file that does"
            ) from None
    context.verify_mode = _VERIFY[settings.verify_peer]
    return context


def tell_exposed_key(setting: str, path: Path | None) -> None:
    """Once, at the start of a broker."""
    if path is not None and (who := exposed(path)):
        log.warning(
            "a private key is not private", setting=setting, reason=who, hint="chmod 600 it, and make a new one"
        )


def _must_be_readable(path: Path, setting: str) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise StartupError(
            f"cannot read {setting} {path}: {error.strerror}; name a file that this user can read"
        ) from None


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    asked = False

    def no_passphrase() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password=no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        reason = _reason(error)
        if asked:
            sentence = f"tls.key {key} is encrypted: remove its passphrase (openssl pkey -in OLD -out NEW)"
        elif "MISMATCH" in reason.upper():
            sentence = f"tls.key {key} does not belong to tls.certificate {certificate}: name its own key"
        else:
            sentence = (
                f"tls.certificate {certificate} and tls.key {key} hold no certificate and key in PEM form "
                f"({reason}): check both files"
            )
        raise StartupError(sentence) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


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
