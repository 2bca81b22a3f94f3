"""TLS for clients: the context from the settings.

What comes in: `TlsSettings`. What goes out: an `ssl.SSLContext` for a server, or StartupError with the file that is
wrong.
Rules: 1. Files are read once, at start: a certificate that cannot be used stops the start, not a client. 2. Nothing
asks for a passphrase: a broker has no terminal. 3. A key that others can read is used, as RabbitMQ does, and told.
Not here: the handshake and the bytes (`tls_stream.py`), the user in a client certificate (`security/external.py`).
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from amqpd.errors import StartupError
from amqpd.setting_tables import TlsSettings
from amqpd.storage.private_files import exposed

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
