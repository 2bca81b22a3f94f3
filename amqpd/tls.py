"""TLS for clients: the context from the settings, and who a client certificate says it is.

What comes in: `TlsSettings`. What goes out: an `ssl.SSLContext` for a server, or StartupError with the file
that is wrong; `login_name`, the user name in a client certificate (EXTERNAL).
Rules: 1. Files are read once, at start: a certificate that cannot be used stops the start, not a client. 2.
Nothing asks for a passphrase: a broker has no one to ask.
Not here: the handshake and the bytes (`pump.py`, with `ssl.MemoryBIO`), SASL (`security/`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amqpd.config import TlsSettings
from amqpd.errors import StartupError

_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
# RFC 4514 section 3, the attribute types that have short names; others keep OpenSSL's long name.
_SHORT_NAMES = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context for the TLS listener; `settings.enabled` must be true. Raises StartupError."""
    certificate = settings.certificate
    if certificate is None:
        raise ValueError("TLS is off: no certificate in the settings")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
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


def login_name(certificate: Mapping[str, Any], login_from: str) -> str | None:
    """The user name of a verified client certificate, or None when it has no such part.

    `certificate` is what `SSLObject.getpeercert()` returns (empty when the client sent none), `login_from`
    the setting of this name. The distinguished name is written after RFC 4514, last part first
    ("CN=app,O=Example"), as RabbitMQ writes it."""
    if login_from == "subject_alternative_name":
        names = certificate.get("subjectAltName", ())
        # The kinds that name someone, the host name first.
        for kind in ("DNS", "email", "URI"):
            for found, value in names:
                if found == kind:
                    return str(value)
        return None
    subject = certificate.get("subject", ())
    if login_from == "common_name":
        common = [str(value) for part in subject for kind, value in part if kind == "commonName"]
        # With several, no order says which one is meant, and a wrong user is worse than none.
        return common[0] if len(common) == 1 else None
    parts = [
        "+".join(f"{_SHORT_NAMES.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(subject)
    ]
    return ",".join(parts) or None


def _escaped(value: str) -> str:
    """RFC 4514 section 2.4."""
    text = "".join("\\" + letter if letter in '\\,+"<>;' else letter for letter in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text


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
