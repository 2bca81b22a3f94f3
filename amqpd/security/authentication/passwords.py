"""Password hashes: argon2id, salted, with their parameters written in them; and those that came from RabbitMQ.

What comes in: passwords as bytes (SASL says nothing about their encoding). What goes out: encoded hashes
("$argon2id$v=19$..."), and whether a password fits one.
Rules: 1. Everything here blocks for tens of milliseconds and 19 MiB: call it in threads, a few at a time. 2. What
came from RabbitMQ is checked as RabbitMQ does; new passwords get argon2.
Not here: RabbitMQ's hashes (`security/rabbitmq_hashes.py`), how often it may be called (`logins.py`), where hashes
are kept (the topology's UserRecord).
"""

from __future__ import annotations

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

from amqpd.security.rabbitmq_hashes import is_rabbitmq_hash, password_matches

# OWASP's "Password Storage Cheat Sheet" for argon2id: 19 MiB, two passes, one lane. RFC 9106's 64 MiB would
# let a few concurrent log-ins take as much memory as the broker itself.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)


def hash_password(password: bytes) -> str:
    return _HASHER.hash(password)


def verify_password(password_hash: str, password: bytes) -> bool:
    """False for a wrong password, and for a text that is no hash (an empty one: no password is accepted)."""
    if is_rabbitmq_hash(password_hash):
        return password_matches(password_hash, password)
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
