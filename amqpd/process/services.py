"""The services that the pure modules ask for, answered: the shell's half of `session.services.Services`.

What comes in: requests of the node and its connections. What goes out: calls back into them, each followed by a
flush.
Rules: 1. Nothing here blocks; what takes time runs as a task, in a thread where it must. 2. A log-in is logged with
its reason; the client never learns it.
Not here: how passwords are checked (`security/authentication/logins.py`), how changes are stored
(`topology/metadata/sync.py`).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import structlog
import trio

from amqpd.faults import ENDS_NODE
from amqpd.security.authentication.attempt_counts import AMQP
from amqpd.security.authentication.attempts import Attempts
from amqpd.security.authentication.logins import Accepted, LoginRefused, Logins
from amqpd.security.sasl import CertificateIdentity, Credentials, Malformed, Response, parse_response
from amqpd.session.services import Resume
from amqpd.topology.metadata.sync import TopologySync
from amqpd.vocabulary.client import LoginClient
from amqpd.vocabulary.records import Change, Key

# RabbitMQ's tag of users who may publish under other users' names (https://www.rabbitmq.com/docs/validated-user-id).
IMPERSONATOR = "impersonator"
LEVELS = {
    # Messages cannot be delivered until somebody does something.
    **dict.fromkeys(("journal_damaged", "queue_fenced", "queue_quarantined"), "error"),
    # Something is lost, waits, or is refused, and nobody else says so.
    **dict.fromkeys(
        (
            "bad_protocol_header",
            "channel_error",
            "connection_error",
            "connection_timeout",
            "copies_damaged",
            "dead_letter_lost",
            "dead_letters_wait",
            "delayed_messages_wait",
            "events_dropped",
            "firehose_dropped",
            "hand_over_unreadable",
            "heartbeat_missed",
            "history_not_given",
            "login_refused",
            "messages_without_queue",
            "orphans_parked",
            "publish_to_another_node",
            "queue_given_up",
            "send_timeout",
        ),
        "warning",
    ),
    **dict.fromkeys(
        (
            "connection_lost",
            "connection_open",
            "messages_of_deleted_queues_dropped",
            "queue_expired",
            "queue_fence_cleared",
            "single_active_consumer",
        ),
        "info",
    ),
}
"""of what the core tells"""


class BrokerServices:
    """The shell's implementation of the services that the node asks for. It is made before the node; `start` gives
    it what is made after it."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self._attempts = Attempts()
        # Bound once: what `get_logger` returns is bound again for each line.
        self._log = structlog.get_logger().bind(component="node")
        self._sync: TopologySync | None = None
        self._nursery: trio.Nursery | None = None
        self._run_effects: Callable[[], None] | None = None

    def start(self, sync: TopologySync, nursery: trio.Nursery, run_effects: Callable[[], None]) -> None:
        """`run_effects` is called after each call back into the node."""
        self._sync, self._nursery, self._run_effects = sync, nursery, run_effects

    @property
    def metadata_applied(self) -> int:
        return 0 if self._sync is None else self._sync.revision

    @property
    def metadata_told(self) -> int:
        return 0 if self._sync is None else self._sync.told

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        assert self._sync is not None
        self._sync.submit_nowait(changes, lambda done: self._answer(resume, done), requires, owner)

    def authenticate(self, connection: LoginClient, mechanism: str, response: bytes) -> None:
        """What needs no hash is answered at once."""
        assert self._nursery is not None
        parsed = parse_response(mechanism, response)
        if isinstance(parsed, Credentials):
            connection.claimed_user = parsed.user
        known = self._known(connection, parsed)
        if isinstance(known, Credentials):
            self._attempts.begin(connection, address_of(connection.peer.name))
            self._nursery.start_soon(self._verify, connection, mechanism, known)
        else:
            self._conclude(connection, mechanism, known)

    def left_unauthenticated(self, connection: LoginClient) -> None:
        self._attempts.abandon(connection)

    def token(self) -> str:
        return secrets.token_urlsafe(16)

    def queue_id(self) -> int:
        return secrets.randbits(63)

    def chance(self) -> float:
        return random.random()

    def log(self, event: str, fields: Mapping[str, Any]) -> None:
        getattr(self._log, LEVELS.get(event, "warning"))(event, **fields)

    def bug(self, error: Exception) -> None:
        self._log.error("bug", exc_info=error)

    def _answer(self, resume: Callable[..., None], *results: Any) -> None:
        assert self._run_effects is not None
        try:
            resume(*results)
        except ENDS_NODE:
            raise
        except Exception as error:  # noqa: BLE001 - what waited for the answer failed; the log has it
            self.bug(error)
        self._run_effects()

    async def _verify(self, connection: LoginClient, mechanism: str, given: Credentials) -> None:
        loopback = connection.peer.loopback
        with self._attempts.under_way(connection) as address:
            try:
                verdict = await self._logins.verify(given.user, given.password, loopback, address)
            except Exception as error:  # noqa: BLE001 - this connection's; reported, or raised on
                self._answer(connection.contain, error)
            else:
                self._answer(self._conclude, connection, mechanism, verdict)

    def _known(self, connection: LoginClient, parsed: Response | None) -> Accepted | LoginRefused | Credentials:
        """The verdict; or the credentials, when they have to be verified."""
        peer = connection.peer
        if isinstance(parsed, Credentials):
            return self._logins.verdict_without_hash(parsed.user, parsed.password, peer.loopback) or parsed
        if isinstance(parsed, CertificateIdentity) and peer.certificate_user is not None:
            if parsed.authzid not in ("", peer.certificate_user):
                return LoginRefused(f"the certificate is not that of '{parsed.authzid}'")
            return self._logins.verify_certificate(peer.certificate_user, peer.loopback)
        if isinstance(parsed, Malformed):
            return LoginRefused(parsed.reason)
        return LoginRefused("no verified client certificate")

    def _conclude(self, connection: LoginClient, mechanism: str, verdict: Accepted | LoginRefused) -> None:
        accepted = isinstance(verdict, Accepted)
        user = verdict.user if isinstance(verdict, Accepted) else connection.claimed_user
        self._logins.attempt_counts.count(AMQP, address_of(connection.peer.name), user, accepted)
        if isinstance(verdict, Accepted):
            connection.authenticated(verdict.user, IMPERSONATOR in verdict.tags)
        else:
            connection.refused(mechanism, verdict.reason)


def address_of(name: str) -> str:
    """Of a peer's name: the address without the port; of IPv6 the first 64 bits, of which one client has all the
    rest (RFC 4291 section 2.5.4)."""
    host = name.partition(" -> ")[0].rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ip_address(host)
    except ValueError:
        return host
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return host
