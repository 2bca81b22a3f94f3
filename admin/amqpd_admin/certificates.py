"""Until when a certificate is good.

What comes in: a file in PEM. What goes out: a moment.
Rules: the first certificate of the file counts, which is the server's own.

Source: RFC 5280 section 4.1 (the order of a certificate's fields), X.690 (DER).
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

_VERSION, _UTC_TIME = 0xA0, 0x17
# Behind the serial number: signature, issuer, and then validity.
_BEFORE_VALIDITY = 3


def expiry_s(path: Path | str) -> float:
    """Seconds since the epoch. Raises OSError, ValueError."""
    pem = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", Path(path).read_text(), re.DOTALL)
    if pem is None:
        raise ValueError(f"there is no certificate in {path}")
    der = ssl.PEM_cert_to_DER_cert(pem[0])
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


def _inside(der: bytes, at: int) -> tuple[int, int]:
    """Where the value that begins at `at` has its contents, and where it ends."""
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + octets], "big"), begin + octets
    return begin, begin + length
