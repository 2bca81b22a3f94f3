"""Commands of the control socket over HTTP, for a broker on another machine.

What comes in: an address, a command, its arguments. What goes out: the lines of the answer, as over the socket.
Rules: 1. Who looks is a user with the tag monitoring, and who acts one with the tag administrator; their permissions
count for what is in virtual hosts.
2. Only commands that need no file of the broker's machine, and none of its records. 3. To look is GET, and to act
POST: acts are in the broker's log and its audit log. 4. A password is in no error, and not asked of the command line
if it need not be.
Not here: the route (`admin/amqpd_admin/routes/control.py`), the socket (`socket.py`).
"""

from __future__ import annotations

import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from amqpd.management.errors import BadArgument, NotPermitted, Unavailable, of_kind

LOOKS = frozenset(
    (
        *("status", "vhost status", "queue list", "queue why", "connection list", "channel list", "consumer list"),
        *("exchange list", "binding list", "alarm list", "trace list", "message list", "audit status"),
    )
)
ACTS = frozenset(
    (
        *("queue purge", "queue delete", "connection close", "alarm set", "alarm clear", "trace on", "trace off"),
        *("message delete", "message move", "message publish", "scrub"),
        *("queue declare", "exchange declare", "exchange delete", "binding declare", "binding delete"),
        *("queues purge", "queues delete"),
    )
)
PATH = "/api/amqpd/control/"
PORTS = {"http": 15672, "https": 15671}
LINE_BYTES_MAX = 4 << 20
URL_VARIABLE = "AMQPD_URL"
NOT_LOGGED_IN = "not_authorized"
"""RabbitMQ's word for who is not known; one who is known, and has no such tag, is `not_authorised`"""
REMOTE = "amqpd.remote"
"""where the command line keeps the broker that is meant"""


@dataclass(frozen=True)
class RemoteBroker:
    """The address of another machine's management API, and the user who asks."""

    scheme: str
    host: str
    port: int
    prefix: str
    """of its paths, where a proxy has one"""
    user: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def remote_broker(url: str) -> RemoteBroker:
    """Of `http://user:password@host:15672`; without a user, guest. Raises BadArgument."""
    parts = urlsplit(url)
    try:
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if not parts.hostname or not port or parts.query or parts.fragment:
        raise BadArgument("an address is http://user:password@host:15672, or https://...")
    user, password = parts.username or "guest", parts.password or ("" if parts.username else "guest")
    return RemoteBroker(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        prefix=parts.path.rstrip("/"),
        user=unquote(user),
        password=unquote(password),
    )


def answers(
    broker: RemoteBroker, command: str, arguments: Mapping[str, Any], timeout_s: float
) -> Generator[dict[str, Any], None, None]:
    """The lines of the answer, the last has "result". Raises the ManagementError with which the broker refuses;
    Unavailable when it does not answer."""
    if command not in LOOKS | ACTS:
        raise BadArgument(f"'{command}' needs the machine of the broker: use it there, without --url")
    path, said = f"{broker.prefix}{PATH}{quote(command, safe='')}", json.dumps(dict(arguments))
    method, body = ("POST", said) if command in ACTS else ("GET", None)
    if body is None:
        path += "?" + urlencode({"arguments": said})
    client = _client(broker, timeout_s)
    try:
        client.request(method, path, body=body, headers=_headers(broker))
        answer = client.getresponse()
        if answer.status != http.client.OK:
            raise _refusal(broker, answer.status, answer.read(LINE_BYTES_MAX))
        while True:
            line = answer.readline(LINE_BYTES_MAX)
            if not line.endswith(b"\n"):
                raise Unavailable(f"the answer of {broker} ended too early: look at its log, and whether it was done")
            found = json.loads(line)
            if not found["ok"]:
                raise of_kind(str(found.get("kind", "")), str(found["error"]))
            yield found
            if "result" in found:
                return
    except TimeoutError:
        raise Unavailable(
            f"{broker} did not answer within {timeout_s:g} s: look at its log, and whether it was done"
        ) from None
    except http.client.BadStatusLine as error:
        raise Unavailable(_no_http(broker, error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"cannot talk to {broker}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        client.close()


def _no_http(broker: RemoteBroker, error: http.client.BadStatusLine) -> str:
    """What answered, which is not HTTP."""
    if str(error).startswith("AMQP"):
        return (
            f"{broker} is a port of AMQP, where clients connect: an address for --url has the port of the management "
            f"API, {PORTS[broker.scheme]} unless the broker's settings say otherwise"
        )
    if isinstance(error, http.client.RemoteDisconnected):
        return f"{broker} closed the connection without an answer: is it the port of a broker's management API?"
    return f"{broker} does not speak HTTP: an address for --url has the port of a broker's management API"


def _client(broker: RemoteBroker, timeout_s: float) -> http.client.HTTPConnection:
    if broker.scheme == "https":
        # SSL_CERT_FILE names the authority of a private certificate.
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(broker.host, broker.port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(broker.host, broker.port, timeout=timeout_s)


def _headers(broker: RemoteBroker) -> dict[str, str]:
    login = f"{broker.user}:{broker.password}".encode()
    return {"Authorization": f"Basic {b64encode(login).decode()}", "Content-Type": "application/json"}


def _refusal(broker: RemoteBroker, status: int, body: bytes) -> Exception:
    try:
        found = json.loads(body)
        reason, error = str(found["reason"]), found.get("error")
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, error = f"it answered {status}", None
    if error == NOT_LOGGED_IN:
        return NotPermitted(
            f"user '{broker.user}' cannot log in at {broker}: the password is wrong, there is no such user, or it "
            f"may not log in from here (guest only on the broker's machine); the broker's log says which"
        )
    if status in (401, 403):
        return NotPermitted(f"{broker} does not let user '{broker.user}' do this: {reason}")
    if status == 404:
        return Unavailable(f"{broker} has no such command: is it amqpd, and of this version?")
    return Unavailable(f"{broker}: {reason}")
