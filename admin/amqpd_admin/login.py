"""Who asks, and what for: a user with a password, its tags, and the virtual hosts that it may see.

What comes in: a request. What goes out: `Who`, or a refusal as RabbitMQ's.
Rules: 1. A password is checked as AMQP's are, with the same bounds and the same places for addresses
(`amqpd/security/authentication/`). 2. The tags decide what may be seen and which kinds of things may be changed;
permissions on the virtual host decide the rest, where a use case asks for them. 3. FastAPI runs what is
not `async` in threads, where the node must not be touched: here everything is. 4. A refusal never says whether the
user exists; the log does. 5. A request of the pages (`PAGES`) is its session's, whatever password the browser
remembers, and a refusal of it does not make the browser ask for one. 6. A session is as good as its user: with
another password, or from where the user may not log in, it is none. 7. Who asks is known before anything of a body
is read: log-in is what the router depends on, and bodies are read inside of the routes (`bodies.py`). A body with
which somebody logs in may have 16 KiB.
Not here: what a use case allows; how a session begins (`routes/session.py`).

Source: https://www.rabbitmq.com/docs/management#permissions (tags), RFC 7617 (Basic).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated

import structlog
import trio
from fastapi import Depends, Request

from amqpd.management.face import BrokerParts
from amqpd.management.operators import Operator
from amqpd.process.services import address_of
from amqpd.security.authentication.attempt_counts import HTTP
from amqpd.security.authentication.logins import Accepted
from amqpd.transport.link import is_loopback
from amqpd_admin.answers import Refusal
from amqpd_admin.cookies import token_of
from amqpd_admin.paths import decoded
from amqpd_admin.places import STATE
from amqpd_admin.sessions import Sessions
from amqpd_admin.shield import SAFE, is_own

ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT = "administrator", "monitoring", "policymaker", "management"
TAGS = frozenset((ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT))
REALM = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}
# RFC 9110 section 11.6.1 wants a challenge in each 401: for one of a scheme that it does not know, a browser does not
# ask for a password.
SESSION_REALM = {"www-authenticate": 'amqpd-session realm="amqpd"'}
PAGES = "x-amqpd-pages"
"""the header of requests that the pages make"""

TRAIL = "amqpd.trail"
"""in the scope of a request that is to change something: who asks (`trail.py`)"""

log = structlog.get_logger(component="http")


@dataclass(frozen=True)
class Who:
    """A user that has logged in, and may use the API."""

    user: str
    tags: tuple[str, ...]
    parts: BrokerParts

    @property
    def operator(self) -> Operator:
        """For use cases: its permissions count."""
        return Operator(user=self.user)

    @property
    def administers(self) -> bool:
        return ADMINISTRATOR in self.tags

    @property
    def monitors(self) -> bool:
        return self.administers or MONITORING in self.tags

    @property
    def makes_policies(self) -> bool:
        return self.administers or POLICYMAKER in self.tags

    def enters(self, vhost: str) -> bool:
        """It has permissions there."""
        return self.parts.access.may_enter(self.user, vhost)

    def sees(self, vhost: str) -> bool:
        return self.monitors or self.enters(vhost)

    def sees_connection(self, user: str) -> bool:
        """One of that user, with its channels and consumers."""
        return self.monitors or user == self.user

    def require(self, holds: bool, reason: str) -> None:
        """Raises Refusal."""
        if not holds:
            log.warning("http access denied", user=self.user, reason=reason)
            raise Refusal(401, "not_authorised", reason)


async def log_in(request: Request) -> Who:
    """Raises Refusal."""
    who = await _logged_in(request)
    if (place := request.scope.get("state", {}).get(STATE)) is not None:
        place.logged_in()
    if (said := request.scope.get(TRAIL)) is None:
        return who
    said["who"], said["request"] = who, request
    # What it changes in the metadata is told as its doing.
    metadata = who.parts.metadata.asked_by(who.user, _place(request)[0])
    return replace(who, parts=replace(who.parts, metadata=metadata))


async def _logged_in(request: Request) -> Who:
    pages = PAGES in request.headers
    if pages or "authorization" not in request.headers:
        who = by_session(request)
        if who is not None:
            return who
    given = None if pages else _basic(request.headers.get("authorization", ""))
    if given is None:
        raise Refusal(401, "not_authorized", "Not_Authorized", SESSION_REALM if pages else REALM)
    return await by_password(request, *given)


async def by_password(request: Request, user: str, password: bytes, challenge: dict[str, str] = REALM) -> Who:
    """Raises Refusal."""
    parts: BrokerParts = request.app.state.parts
    host, loopback = _place(request)
    verdict = parts.logins.verdict_without_hash(user, password, loopback)
    if verdict is None:
        verdict = await parts.logins.verify(user, password, loopback, address_of(f"[{host}]:0"))
    parts.logins.attempt_counts.count(HTTP, host, user, isinstance(verdict, Accepted))
    if not isinstance(verdict, Accepted):
        log.warning("http access denied", reason=verdict.reason, address=host)
        raise Refusal(401, "not_authorized", "Not_Authorized", challenge)
    return _with_tag(verdict, parts)


def by_session(request: Request) -> Who | None:
    """None without a session. Raises Refusal."""
    parts: BrokerParts = request.app.state.parts
    sessions: Sessions = request.app.state.sessions
    token = token_of(request)
    session = sessions.find(token, trio.current_time()) if token else None
    if session is None:
        return None
    record = parts.on.node.topology.users.get(session.user)
    # As for a name that a certificate proves: without its password, with all else.
    verdict = parts.logins.verify_certificate(session.user, _place(request)[1])
    if record is None or record.password_hash != session.stored or not isinstance(verdict, Accepted):
        return None
    if request.method not in SAFE and not is_own(request.headers):
        raise Refusal(403, "forbidden", "a change with a session's cookie has to come from the broker's own pages")
    return _with_tag(verdict, parts)


def _place(request: Request) -> tuple[str, bool]:
    """The client's address, and whether it is on this machine."""
    host = request.client.host if request.client is not None else ""
    return host, is_loopback(host)


def _with_tag(verdict: Accepted, parts: BrokerParts) -> Who:
    """Raises Refusal."""
    who = Who(verdict.user, verdict.tags, parts)
    who.require(not TAGS.isdisjoint(verdict.tags), "Not management user")
    return who


def _basic(header: str) -> tuple[str, bytes] | None:
    scheme, _, said = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(said, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None


Asking = Annotated[Who, Depends(log_in)]
"""Any user of the API."""


def _who_must(holds: Callable[[Who], bool], reason: str) -> Callable[..., Awaitable[Who]]:
    async def check(who: Asking) -> Who:
        who.require(holds(who), reason)
        return who

    return check


async def _enters_named(request: Request, who: Asking) -> Who:
    """May see what is in the virtual host of the path, if it exists: that it does not is the next answer."""
    vhost = decoded(request.path_params["vhost"])
    known = vhost in who.parts.on.node.topology.vhosts
    who.require(who.administers or not known or who.sees(vhost), "User not authorised to access virtual host")
    return who


async def _makes_policies_there(request: Request, who: Asking) -> Who:
    vhost = request.path_params.get("vhost")
    allowed = who.administers or (who.makes_policies and (vhost is None or who.enters(decoded(vhost))))
    who.require(allowed, "User not authorised to access object")
    return who


Administrator = Annotated[Who, Depends(_who_must(lambda who: who.administers, "Not administrator user"))]
Monitor = Annotated[Who, Depends(_who_must(lambda who: who.monitors, "Not monitor user"))]
Entering = Annotated[Who, Depends(_enters_named)]
PolicyMaker = Annotated[Who, Depends(_makes_policies_there)]
