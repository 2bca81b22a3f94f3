"""Whether a password, or a certificate's name, logs a user in.

What comes in: a user's name, a password, where the peer is. What goes out: `Accepted` or `LoginRefused`; the
reason is for the log, clients get one answer for everything.
Rules: 1. argon2 runs in threads, few at a time; addresses take turns, and at each of them names do: a flood
of wrong passwords cannot stall clients elsewhere, nor eat the machine. 2. A verified log-in is remembered,
as a keyed digest of password and stored hash; so a client that reconnects a thousand times costs one argon2,
and a changed or deleted user is forgotten by itself. 3. An unknown user waits in the same way, costs the same
hashes and takes as long as a wrong password, whichever hash the user has. 4. Users of `loopback_users` come
from this machine only.
Not here: reading SASL responses (`security/sasl.py`), the answer to the client and its delay (`connection.py`),
permissions (`security/access.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from amqpd.security.authentication.attempt_counts import LoginAttemptCounts
from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.security.rabbitmq_hashes import is_rabbitmq_hash
from amqpd.topology.state import Topology

# argon2 takes 19 MiB and a core for some 20 ms: two at once leave the pump its core on the smallest machine.
VERIFICATIONS_AT_ONCE = 2
# From one address, 10 s of waiting at the worst: as long as a handshake may take anyway.
WAITING_AN_ADDRESS_MAX = 500
# A client that waits this long has no connection any more by default: it ends after 10 s. A few log-ins of each
# address are not given up then (`attempts.py`), because a client that tries again with the same password gets the
# answer to its first try. Later they are: what a flood from many addresses leaves would be computed for minutes, and
# new log-ins would wait for it.
WAIT_MAX_S = 30.0
# Remembered log-ins; 200 bytes each.
REMEMBERED_MAX = 10_000
# Longer passwords are refused unread: hashing them would be work for nothing.
PASSWORD_BYTES_MAX = 4_096

_BLANK = "user '{}' attempted to log in with a blank password"
_INVALID = "user '{}' - invalid credentials"
_LOOPBACK = "user '{}' can only connect via localhost"
_BUSY = "user '{}' - too many log-ins are waiting"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The log-in succeeded, as this user."""

    user: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The log-in failed; the reason is for the log, the client does not learn it."""

    reason: str


class Logins:
    """Verifies log-ins against the topology's users; hashes run in threads, and addresses take turns."""

    def __init__(
        self, topology: Topology, loopback_users: Collection[str] = ("guest",), wait_max_s: float = WAIT_MAX_S
    ) -> None:
        """`wait_max_s`: of a log-in for its hash, whatever became of its connection."""
        self._topology = topology
        self._loopback_users = frozenset(loopback_users)
        self._places = FairSemaphore(VERIFICATIONS_AT_ONCE, WAITING_AN_ADDRESS_MAX)
        self._wait_max_s = wait_max_s
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[str, bytes] = OrderedDict()
        # Verifications under way, by digest: the same question meanwhile shares the answer.
        self._running: dict[bytes, _Verification] = {}
        self._nobody_s_hash = ""
        self.attempt_counts = LoginAttemptCounts()
        """attempts; those who ask count them"""

    def verdict_without_hash(
        self, user: str, password: bytes, peer_is_loopback: bool
    ) -> Accepted | LoginRefused | None:
        """The verdict where it costs no hash; None: `verify` must find it out."""
        if not password:
            return LoginRefused(_BLANK.format(user))
        if len(password) > PASSWORD_BYTES_MAX:
            return LoginRefused(_INVALID.format(user))
        if not peer_is_loopback and user in self._loopback_users:
            return LoginRefused(_LOOPBACK.format(user))
        record = self._topology.users.get(user)
        # Of an unknown user too, so that the time that it takes tells nothing.
        digest = self._digest(user, password, record.password_hash if record else "")
        if record is None or not hmac.compare_digest(self._remembered.get(user, b""), digest):
            return None
        self._remembered.move_to_end(user)
        return Accepted(user, record.tags)

    async def verify(
        self, user: str, password: bytes, peer_is_loopback: bool, address: str = ""
    ) -> Accepted | LoginRefused:
        """`address`: where the client is, as far as clients of one place share their turns."""
        verdict = self.verdict_without_hash(user, password, peer_is_loopback)
        if verdict is not None:
            return verdict
        record = self._topology.users.get(user)
        stored = record.password_hash if record else ""
        digest = self._digest(user, password, stored)
        try:
            # A hash that has begun comes to its end.
            with trio.fail_after(self._wait_max_s):
                right = await self._verify_slowly(user, address, digest, password, stored)
        except (TooManyWaiting, trio.TooSlowError):
            return LoginRefused(_BUSY.format(user))
        # The user may have been changed or deleted meanwhile.
        now = self._topology.users.get(user)
        if not right or now is None or now.password_hash != stored:
            return LoginRefused(_INVALID.format(user))
        self._remember(user, digest)
        return Accepted(user, now.tags)

    def verify_certificate(self, user: str, peer_is_loopback: bool) -> Accepted | LoginRefused:
        """For EXTERNAL: the name was proved by a certificate; no password is needed, nor has to be set."""
        record = self._topology.users.get(user)
        if record is None:
            return LoginRefused(_INVALID.format(user))
        if not peer_is_loopback and user in self._loopback_users:
            return LoginRefused(_LOOPBACK.format(user))
        return Accepted(user, record.tags)

    async def _verify_slowly(self, user: str, address: str, digest: bytes, password: bytes, stored: str) -> bool:
        while (running := self._running.get(digest)) is not None:
            await running.done.wait()
            if running.right is not None:
                return running.right
            # Its task was cancelled or found no place; this one tries for itself.
        running = self._running[digest] = _Verification()
        try:
            async with self._places.take(user, address):
                right = await trio.to_thread.run_sync(self._verify_blocking, password, stored)
                running.right = right
        finally:
            del self._running[digest]
            running.done.set()
        return right

    def _verify_blocking(self, password: bytes, stored: str) -> bool:
        if not self._nobody_s_hash:
            # The first log-in pays for it, of a known user or not.
            self._nobody_s_hash = hash_password(secrets.token_bytes(16))
        right = bool(stored) and verify_password(stored, password)
        if not stored or is_rabbitmq_hash(stored):
            # Rule 3: neither an unknown user nor one with a quick hash may be told by the time that it takes.
            verify_password(self._nobody_s_hash, password)
        return right

    def _remember(self, user: str, digest: bytes) -> None:
        self._remembered[user] = digest
        self._remembered.move_to_end(user)
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _digest(self, user: str, password: bytes, stored: str) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (
            user.encode("utf-8", "surrogatepass"),
            stored.encode("utf-8", "surrogatepass"),
            password,
        ):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()


class _Verification:
    """One argon2 under way; `right` stays None when it came to nothing."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.right: bool | None = None


class TooManyWaiting(Exception):
    """The number of those that wait under one name has reached its bound."""


class FairSemaphore:
    """A number of places for concurrent work. Those that wait get them in turns, in order within a name, round and
    round among the names of an address, and among addresses: one that floods delays only itself. At most `places`
    have a turn at once, and `waiting_max` wait from one address; no place is free while somebody waits."""

    def __init__(self, places: int, waiting_max: int) -> None:
        self._free = places
        self._waiting_max = waiting_max
        # The next address to get a turn is the first, and so is the next of its names.
        self._waiting: OrderedDict[str, OrderedDict[str, deque[trio.Event]]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        """how many wait, by address"""

    @asynccontextmanager
    async def take(self, name: str, address: str = "") -> AsyncIterator[None]:
        """Raises TooManyWaiting at once."""
        await self._wait_turn(name, address)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait_turn(self, name: str, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        if self._counts[address] >= self._waiting_max:
            raise TooManyWaiting
        names = self._waiting.setdefault(address, OrderedDict())
        queue = names.setdefault(name, deque())
        mine = trio.Event()
        queue.append(mine)
        self._counts[address] += 1
        try:
            await mine.wait()
        except trio.Cancelled:
            if mine.is_set():
                self._pass_on()
            else:
                queue.remove(mine)
                if not queue:
                    del names[name]
                self._left(address, names)
            raise

    def _pass_on(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        address, names = self._waiting.popitem(last=False)
        name, queue = names.popitem(last=False)
        queue.popleft().set()
        if queue:
            names[name] = queue
        self._waiting[address] = names  # behind the others
        self._left(address, names)

    def _left(self, address: str, names: OrderedDict[str, deque[trio.Event]]) -> None:
        """One that waited from there does so no longer."""
        self._counts[address] -= 1
        if not names:
            del self._waiting[address], self._counts[address]
