"""Where a request ends: what two readers of the same bytes might see differently is refused.

What comes in: bytes. What goes out: h11's events; with 400 and the connection closed, what leaves open where a
request ends. A proxy in front may read it the other way: what is one request's body to it is another user's request
here.
Rules: 1. A request has one length: `Content-Length` once, digits alone, or `Transfer-Encoding` once, in HTTP/1.1;
both are refused. 2. A line ends with CR and LF; a header is one line. 3. What frames a body in chunks (sizes,
extensions, trailers) is bounded by `FRAMING_BYTES_FREE` and `FRAMING_TIMES` the body: it counts in no bound of the
body itself.
4. A version that is none of HTTP/1 and a method in small letters are refused, as RabbitMQ's server does.
Not here: what h11 refuses by itself (other encodings, several `Host`, spaces before a colon, heads over 16 KiB), how
long a body may be (`shield.py`).

Source: RFC 9112 sections 2.2, 5.2, 6.1, 6.3, 7.1.1 and 11.2.
"""

from __future__ import annotations

import json
import re
from typing import Any

import h11

FRAMING_BYTES_FREE = 1 << 18
# A chunk of one byte is six.
FRAMING_TIMES = 8
NO_ENCODING = "no Transfer-Encoding but chunked is understood"
NOT_HTTP = "the request is not HTTP/1.1 as RFC 9112 has it"

_BARE_LF = re.compile(rb"(?<!\r)\n")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTH = re.compile(rb"[0-9]+")


class StrictConnection(h11.Connection):
    """The server's end of an HTTP/1 connection by h11, which refuses requests whose end two readers might see
    differently."""

    def __init__(self, head_bytes_max: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=head_bytes_max)
        self.head_bytes_max = head_bytes_max
        self.reason = NOT_HTTP
        """why the last request was refused"""
        self._framing = self._body = 0
        """bytes of the request that is read"""
        self._carriage_return = b""
        """when the last that was taken ended with one: its line feed was yet to come"""

    def next_event(self) -> Any:
        """Raises RemoteProtocolError, once: whoever asks closes the connection then."""
        before = self.trailing_data[0]
        event = super().next_event()
        taken = before[: len(before) - len(self.trailing_data[0])]
        if isinstance(event, h11.Request):
            self._framing = self._body = 0
            self._check_head(event, taken)
        elif isinstance(event, h11.Data):
            self._count(len(taken), len(event.data))
        elif taken:
            # The last chunk and the trailers, or the size of a chunk that has not come.
            self._count(len(taken), 0)
            self._check_lines(self._carriage_return + taken)
        if taken:
            self._carriage_return = taken[-1:] if taken.endswith(b"\r") else b""
        return event

    def _check_head(self, request: h11.Request, head: bytes) -> None:
        if request.http_version not in (b"1.0", b"1.1"):
            self._refuse("HTTP/1.1 and HTTP/1.0 are all that is spoken here", 505)
        if request.method != request.method.upper():
            self._refuse("methods are written in capitals", 501)
        self._check_lines(head)
        lines = [line.lower() for line in head.split(b"\r\n")[1:]]
        lengths = [line.partition(b":")[2].strip(b" \t") for line in lines if line.startswith(b"content-length:")]
        encoded = any(line.startswith(b"transfer-encoding:") for line in lines)
        if lengths and encoded:
            self._refuse("the request has both Content-Length and Transfer-Encoding: it may have one of them")
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(each) for each in lengths):
            self._refuse("the request must have one Content-Length at most, a number")
        if encoded and request.http_version != b"1.1":
            self._refuse("Transfer-Encoding is for HTTP/1.1")

    def _check_lines(self, lines: bytes) -> None:
        if _BARE_LF.search(lines):
            self._refuse("a line of the request ends with LF alone: it must be CR and LF")
        if _FOLDED.search(lines):
            self._refuse("a header of the request goes on in the next line, which HTTP/1.1 no longer has")

    def _count(self, taken: int, data: int) -> None:
        self._body += data
        self._framing += taken - data
        if self._framing > FRAMING_BYTES_FREE + FRAMING_TIMES * self._body:
            self._refuse("the request's body has far more of chunk sizes, extensions and trailers than of a body")

    def _refuse(self, reason: str, status: int = 400) -> None:
        self.reason = reason
        raise h11.RemoteProtocolError(reason, error_status_hint=status)


def refused(connection: StrictConnection, status: int) -> tuple[h11.Response, h11.Data]:
    """The answer to what could not be read, after which the connection is closed."""
    error, reason = {
        400: ("bad_request", connection.reason),
        431: ("too_large", f"the request line and the headers together may have {connection.head_bytes_max:,} bytes"),
        501: ("not_implemented", connection.reason if connection.reason != NOT_HTTP else NO_ENCODING),
        505: ("not_supported", connection.reason),
    }.get(status, ("bad_request", connection.reason))
    text = json.dumps({"error": error, "reason": reason}).encode("ascii")
    headers = [("content-type", "application/json"), ("content-length", str(len(text))), ("connection", "close")]
    return h11.Response(status_code=status, headers=headers), h11.Data(data=text)
