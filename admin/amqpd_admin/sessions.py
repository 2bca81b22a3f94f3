"""Sessions of the pages: who has logged in with a browser, and until when.

What comes in: random tokens, users, the time. What goes out: the session of a token, while it lasts.
Rules: 1. A session ends `LIFETIME_S` after it began, whatever is done with it. 2. They are bounded: one more of a
user ends that user's oldest, one more of all ends the oldest of all. 3. Only a digest of a token is kept: who reads
the memory cannot log in. 4. Here are no clock and no chance: both are arguments.
Not here: the cookie (`cookies.py`), whether the user is still who it was (`login.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# A working day, as RabbitMQ's `login_session_timeout`.
LIFETIME_S = 8 * 3600.0
# Some 300 bytes each. A browser has one; what begins more is a script without a cookie jar.
SESSIONS_MAX = 1_000
SESSIONS_OF_A_USER_MAX = 50


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a user of the pages. `stored` is the user's password hash when it logged in: with another one
    the session is no longer good."""

    user: str
    stored: str
    ends_s: float


class Sessions:
    """All sessions of the pages, the oldest first: since all last equally long, that is the first to end."""

    def __init__(self, *, at_most: int = SESSIONS_MAX, of_a_user: int = SESSIONS_OF_A_USER_MAX) -> None:
        self._at_most = at_most
        self._of_a_user = of_a_user
        self._held: dict[bytes, Session] = {}

    def __len__(self) -> int:
        """Those that have ended count until somebody asks for any."""
        return len(self._held)

    def begin(self, token: str, user: str, stored: str, now_s: float) -> None:
        """`token`: random, of at least 128 bits; nobody else has it."""
        self._expire(now_s)
        theirs = [key for key, session in self._held.items() if session.user == user]
        if len(theirs) >= self._of_a_user:
            del self._held[theirs[0]]
        elif len(self._held) >= self._at_most:
            del self._held[next(iter(self._held))]
        self._held[_digest(token)] = Session(user, stored, now_s + LIFETIME_S)

    def find(self, token: str, now_s: float) -> Session | None:
        self._expire(now_s)
        return self._held.get(_digest(token))

    def end(self, token: str) -> None:
        """Also of a token that is of no session."""
        self._held.pop(_digest(token), None)

    def _expire(self, now_s: float) -> None:
        while self._held and self._held[first := next(iter(self._held))].ends_s <= now_s:
            del self._held[first]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
