"""Password hashes as RabbitMQ's definition files have them, kept as they came.

What comes in: `hashing_algorithm` and `password_hash` of a user in such a file. What goes out: one text for the
user's record, both members again for the next file, and whether a password fits.
Rules: 1. Nothing is upgraded: what was imported is exported again letter by letter, and works in RabbitMQ as before.
2. Comparing takes the same time whatever differs. 3. MD5 is taken as RabbitMQ takes it, or users of an old cluster
would be locked out by the move; an import says so (`definitions/document.py`).
Not here: our own hashes (`authentication/passwords.py`), how often may be tried (`authentication/logins.py`).

Source: https://www.rabbitmq.com/docs/passwords: base64 of four bytes of salt and the digest of salt and password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

SALT_BYTES = 4
# hashing_algorithm: hashlib's name
ALGORITHMS = {
    "rabbit_password_hashing_md5": "md5",
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
}
WEAK_ALGORITHM = "rabbit_password_hashing_md5"
# What our own hashes are called in a file; RabbitMQ takes such a file, but cannot check these passwords.
ARGON2_ALGORITHM = "amqpd_password_hashing_argon2id"
# RabbitMQ's default, also written for users without a password.
DEFAULT_ALGORITHM = "rabbit_password_hashing_sha256"
_ARGON2_PREFIX = "$argon2"


def stored_hash(algorithm: str | None, password_hash: str) -> str:
    """What a user's record holds for these two; empty for the empty hash (no password is accepted). Without a named
    algorithm it is that one of RabbitMQ's whose hashes have this length.

    Raises ValueError when the algorithm is not known, or the text is not such a hash."""
    if not password_hash:
        return ""
    try:
        binary = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the password_hash is not base64") from None
    algorithm = algorithm or _by_length(len(binary))
    if algorithm == ARGON2_ALGORITHM:
        text = binary.decode("ascii", "replace")
        if not text.startswith(_ARGON2_PREFIX):
            raise ValueError("the password_hash is not an argon2 hash")
        return text
    if algorithm not in ALGORITHMS:
        raise ValueError(f"the hashing_algorithm '{algorithm}' is not known")
    expected = _bytes_of(algorithm)
    if len(binary) != expected:
        raise ValueError(f"the password_hash has {len(binary)} bytes, one of {algorithm} has {expected}")
    return f"{algorithm}${password_hash}"


def _bytes_of(algorithm: str) -> int:
    return SALT_BYTES + hashlib.new(ALGORITHMS[algorithm], usedforsecurity=False).digest_size


def _by_length(nbytes: int) -> str:
    """The default for a length that no algorithm has: the refusal names it. RabbitMQ's weak one is to be named."""
    strong = (each for each in ALGORITHMS if each != WEAK_ALGORITHM and _bytes_of(each) == nbytes)
    return next(strong, DEFAULT_ALGORITHM)


def rabbitmq_hash(algorithm: str, password: bytes, salt: bytes) -> str:
    """What a user's record holds for a new password that RabbitMQ is to be able to check, too. It is quicker to guess
    than our own hashes. `salt`: `SALT_BYTES` at random. Raises ValueError."""
    if algorithm not in ALGORITHMS or algorithm == WEAK_ALGORITHM:
        known = " or ".join(each for each in ALGORITHMS if each != WEAK_ALGORITHM)
        raise ValueError(f"the hashing_algorithm of a new password is {known}, not '{algorithm}'")
    digest = hashlib.new(ALGORITHMS[algorithm], salt + password, usedforsecurity=False).digest()
    return stored_hash(algorithm, base64.b64encode(salt + digest).decode())


def exported_hash(stored: str) -> tuple[str, str]:
    """`hashing_algorithm` and `password_hash` for a definition file."""
    if not stored:
        return DEFAULT_ALGORITHM, ""
    if is_rabbitmq_hash(stored):
        algorithm, _, password_hash = stored.partition("$")
        return algorithm, password_hash
    return ARGON2_ALGORITHM, base64.b64encode(stored.encode()).decode()


def is_rabbitmq_hash(stored: str) -> bool:
    return stored.partition("$")[0] in ALGORITHMS


def password_matches(stored: str, password: bytes) -> bool:
    """Whether the password is the one of a hash for which `is_rabbitmq_hash`; microseconds."""
    algorithm, _, password_hash = stored.partition("$")
    binary = base64.b64decode(password_hash)
    salt, digest = binary[:SALT_BYTES], binary[SALT_BYTES:]
    made = hashlib.new(ALGORITHMS[algorithm], salt + password, usedforsecurity=False).digest()
    return hmac.compare_digest(digest, made)
