"""Until when a certificate is good, and for which names.

What comes in: a file in PEM. What goes out: a moment; names.
Rules: the first certificate of the file counts, which is the server's own.

Source: RFC 5280 sections 4.1 (the order of a certificate's fields) and 4.2.1.6 (its names), X.690 (DER).
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

_VERSION, _UTC_TIME = 0xA0, 0x17
# Behind the serial number: signature, issuer, and then validity.
_BEFORE_VALIDITY = 3
# id-ce-subjectAltName, 2.5.29.17, as an object identifier; a flag that it is critical may follow.
_NAMES = bytes.fromhex("0603551d11")
_FLAG, _DNS_NAME = 0x01, 0x82


def expiry_s(path: Path | str) -> float:
    """Seconds since the epoch. Raises OSError, ValueError."""
    der = _der(path)
    certificate, _ = _inside(der, 0)
    at, _ = _inside(der, certificate)
    if der[at] == _VERSION:
        at = _inside(der, at)[1]
    for _ in range(_BEFORE_VALIDITY):
        at = _inside(der, at)[1]
    not_before, _ = _inside(der, at)
    not_after = _inside(der, not_before)[1]
    begin, end = _inside(der, not_after)
    form = "%y%m%d%H%M%SZ" if der[not_after] == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(der[begin:end].decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def names_of(path: Path | str) -> list[str]:
    """Those of hosts, in the order of the certificate; `*.` in front stands for any one label. Raises OSError,
    ValueError."""
    der = _der(path)
    at = der.find(_NAMES)
    if at < 0:
        return []
    at += len(_NAMES)
    if der[at] == _FLAG:
        at = _inside(der, at)[1]
    at, end = _inside(der, _inside(der, at)[0])
    found = []
    while at < end:
        begin, after = _inside(der, at)
        if der[at] == _DNS_NAME:
            found.append(der[begin:after].decode("ascii"))
        at = after
    return found


def _der(path: Path | str) -> bytes:
    pem = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", Path(path).read_text(), re.DOTALL)
    if pem is None:
        raise ValueError(f"there is no certificate in {path}")
    return ssl.PEM_cert_to_DER_cert(pem[0])


def _inside(der: bytes, at: int) -> tuple[int, int]:
    """Where the value that begins at `at` has its contents, and where it ends."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + octets], "big"), begin + octets
    return begin, begin + length
