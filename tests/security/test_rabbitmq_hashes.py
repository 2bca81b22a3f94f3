"""Password hashes that came from RabbitMQ."""

from __future__ import annotations

import base64
import hashlib

import pytest

from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.security.rabbitmq_hashes import (
    ALGORITHMS,
    ARGON2_ALGORITHM,
    DEFAULT_ALGORITHM,
    exported_hash,
    is_rabbitmq_hash,
    stored_hash,
)

# Exported by RabbitMQ 3.10.8 for the password "secret".
FROM_RABBITMQ = "1F1YL4Q4EVjd3klskFoktOzWqo4qA0IyJYeHmXgYoP1NP+l9"


def made(algorithm: str, password: bytes) -> str:
    salt = b"\x00\xff\x10\x80"
    return base64.b64encode(salt + hashlib.new(ALGORITHMS[algorithm], salt + password).digest()).decode()


def test_a_password_of_a_user_from_rabbitmq_fits() -> None:
    stored = stored_hash("rabbit_password_hashing_sha256", FROM_RABBITMQ)
    assert is_rabbitmq_hash(stored)
    assert verify_password(stored, b"secret")
    assert not verify_password(stored, b"Secret")
    assert not verify_password(stored, b"")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_verifies_and_goes_out_as_it_came_in(algorithm: str) -> None:
    password_hash = made(algorithm, "pässword".encode())
    stored = stored_hash(algorithm, password_hash)
    assert verify_password(stored, "pässword".encode())
    assert not verify_password(stored, b"password")
    assert exported_hash(stored) == (algorithm, password_hash)


def test_our_own_hashes_go_out_and_come_back() -> None:
    own = hash_password(b"mine")
    algorithm, text = exported_hash(own)
    assert algorithm == ARGON2_ALGORITHM
    assert stored_hash(algorithm, text) == own
    assert exported_hash("") == (DEFAULT_ALGORITHM, "")
    assert stored_hash(DEFAULT_ALGORITHM, "") == ""


@pytest.mark.parametrize(
    ("algorithm", "text", "reason"),
    [
        ("rabbit_password_hashing_sha256", "***", "is not base64"),
        ("rabbit_password_hashing_sha256", "AAAA", "has 3 bytes, one of rabbit_password_hashing_sha256 has 36"),
        ("rabbit_password_hashing_sha512", FROM_RABBITMQ, "has 36 bytes"),
        ("rot13", FROM_RABBITMQ, "the hashing_algorithm 'rot13' is not known"),
        (ARGON2_ALGORITHM, FROM_RABBITMQ, "is not an argon2 hash"),
    ],
)
def test_what_is_no_such_hash_is_refused(algorithm: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        stored_hash(algorithm, text)
