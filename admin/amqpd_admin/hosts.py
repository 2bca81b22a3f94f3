"""Under which names browsers may ask this broker.

What comes in: settings, the certificate; the headers of a request. What goes out: whether its `Host` is one of ours.
Rules: 1. A page of another site whose name is made to mean this machine's address (DNS rebinding) is of the same
origin for a browser; only `Host` tells it apart. So what a browser sends is answered for an address, `localhost`,
this machine's name, a name of the certificate and those of `http.hosts`. 2. What no browser sent is not looked at:
it does what its user wants. Browsers leave out `Sec-Fetch-*` without TLS, and `Origin` and `Cookie` of a first GET,
but not all of what is looked for here.
Not here: on behalf of which site a page asks (`shield.py`).

Source: https://developer.mozilla.org/docs/Glossary/Forbidden_request_header; RFC 9110 section 7.2 (Host), RFC 6125
section 6.4.3 (`*.` is one label).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from ipaddress import ip_address

from amqpd.config import Settings
from amqpd.setting_types import bare_host
from amqpd_admin.certificates import names_of

OF_BROWSERS = (b"origin", b"cookie", b"referer", b"accept-language")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


class Hosts:
    """The names under which browsers may ask this broker; more may be added."""

    def __init__(self, settings: Settings) -> None:
        self._names = {"localhost"}
        self.add(socket.gethostname(), *settings.http.hosts)
        if settings.http.tls and settings.tls.certificate is not None:
            self.add(*names_of(settings.tls.certificate))

    def add(self, *names: str) -> None:
        self._names.update(bare_host(each) for each in names if each)

    def refuse(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Why a request with these headers is not answered."""
        if not is_of_browser(headers):
            return None
        given = headers.get(b"host", b"").decode("latin-1")
        match = _AUTHORITY.fullmatch(given.strip())
        if match is not None and self._is_ours(bare_host(match[1])):
            return None
        return f"no browser is answered under the name '{given[:255]}': if it is this broker's, add it to http.hosts"

    def _is_ours(self, name: str) -> bool:
        return _is_address(name) or name in self._names or f"*.{name.partition('.')[2]}" in self._names


def is_of_browser(headers: Mapping[bytes, bytes]) -> bool:
    """`headers` by their names in lower case."""
    if any(name in OF_BROWSERS or name.startswith(b"sec-fetch-") for name in headers):
        return True
    return headers.get(b"user-agent", b"").startswith(b"Mozilla/")


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1].partition("%")[0] if name.startswith("[") else name)
    except ValueError:
        return False
    return True
