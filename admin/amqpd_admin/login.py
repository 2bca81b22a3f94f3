"""Who asks, and what for: a user with a password, its tags, and the virtual hosts that it may see.

What comes in: a request. What goes out: `Who`, or a refusal as RabbitMQ's.
Rules: 1. A password is checked as AMQP's are, with the same bounds and the same places for addresses
(`amqpd/security/authentication/`). 2. The tags decide what may be seen and which kinds of things may be changed;
permissions on the virtual host decide the rest, where a use case asks for them. 3. FastAPI runs what is
not `async` in threads, where the node must not be touched: here everything is. 4. A refusal never says whether the
user exists; the log does.
Not here: what a use case allows.

Source: https://www.rabbitmq.com/docs/management#permissions (tags), RFC 7617 (Basic).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

import structlog
from fastapi import Depends, Request

from amqpd.management.face import Behind
from amqpd.management.operators import Operator
from amqpd.process.services import address_of
from amqpd.security.authentication.logins import Accepted
from amqpd_admin.answers import Refusal
from amqpd_admin.paths import decoded

ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT = "administrator", "monitoring", "policymaker", "management"
TAGS = frozenset((ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT))
REALM = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}

log = structlog.get_logger(component="http")


@dataclass(frozen=True)
class Who:
    """A user that has logged in, and may use the API."""

    user: str
    tags: tuple[str, ...]
    behind: Behind

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
        return self.behind.access.may_enter(self.user, vhost)

    def sees(self, vhost: str) -> bool:
        return self.monitors or self.enters(vhost)

    def require(self, holds: bool, reason: str) -> None:
        """Raises Refusal."""
        if not holds:
            log.warning("http access denied", user=self.user, reason=reason)
            raise Refusal(401, "not_authorised", reason)


async def log_in(request: Request) -> Who:
    """Raises Refusal."""
    given = _basic(request.headers.get("authorization", ""))
    if given is None:
        raise Refusal(401, "not_authorized", "Not_Authorized", REALM)
    return await log_in_as(request, *given)


async def log_in_as(request: Request, user: str, password: bytes) -> Who:
    """Raises Refusal."""
    behind: Behind = request.app.state.behind
    host = request.client.host if request.client is not None else ""
    loopback = ip_address(host).is_loopback if host else False
    verdict = behind.logins.known(user, password, loopback)
    if verdict is None:
        verdict = await behind.logins.verify(user, password, loopback, address_of(f"[{host}]:0"))
    if not isinstance(verdict, Accepted):
        log.warning("http access denied", reason=verdict.reason, address=host)
        raise Refusal(401, "not_authorized", "Not_Authorized", REALM)
    who = Who(verdict.user, verdict.tags, behind)
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
    known = vhost in who.behind.on.node.topology.vhosts
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
