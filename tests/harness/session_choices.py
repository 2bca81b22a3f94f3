"""What the fuzz tests' sessions choose from: types and arguments, headers and properties that are wrong, keys.

What comes in: nothing. What goes out: tuples; a session takes one value of each at random.
Rules: 1. Each value of the arguments is valid for what it is named after. 2. The broker reads
what is hostile and goes on; what is wrong closes the channel.
Not here: which of them are taken when (`sessions.py` and what it builds on).
"""

from __future__ import annotations

from typing import Any

EXCHANGE_TYPES = (
    *("direct", "fanout", "topic", "headers", "x-random", "x-modulus-hash", "x-recent-history"),
    *("x-consistent-hash", "x-delayed-message"),
)
EXCHANGE_ARGUMENTS: dict[str, tuple[dict[str, Any], ...]] = {
    "x-consistent-hash": ({}, {"hash-header": "h"}, {"hash-property": "message_id"}),
    "x-delayed-message": tuple({"x-delayed-type": kind} for kind in ("direct", "topic", "headers", "x-random")),
    "x-recent-history": ({}, {"x-recent-history-length": 2}),
}
# What a queue may ask for beside its dead letters. Times are short: the fuzzed node's clock moves by milliseconds.
QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": 0},
    {"x-message-ttl": 20},
    {"x-max-length": 0},
    {"x-max-length": 3},
    {"x-max-length-bytes": 500},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-single-active-consumer": True},
)
CLASSIC_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-max-priority": 5},
    {"x-max-length": 2, "x-overflow": "reject-publish-dlx"},
)
QUORUM_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-delivery-limit": 0},
    {"x-delivery-limit": 2},
    {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
)
# What a hostile client puts into headers that the broker reads; what cannot be so closes the channel.
HOSTILE_HEADERS: tuple[dict[str, Any], ...] = (
    {"x-death": "never"},
    {"x-death": [1, "a", {}, {"queue": 1, "reason": None, "count": "x"}]},
    {"x-death": [{"queue": "q", "reason": "expired", "count": 2**62}], "x-first-death-queue": {}},
    {"x-delay": {"a": 1}},
    {"x-delay": -5},
    {"x-delay": 2**62},
    {"x-delivery-count": "many"},
    {"x-recent-history-no-store": 7},
    {"CC": [{}, 1, None, "a" * 255]},
    {"h": [[[{}]]]},
)
WRONG_PROPERTIES: tuple[dict[str, Any], ...] = (
    *({"headers": headers} for headers in ({"CC": {}}, {"CC": ["a" * 256]}, {"BCC": "a"}, {"CC": None})),
    *({"expiration": text} for text in (" 5", "\u0663", "-1", "9" * 200)),
    {"user_id": "somebody"},
)
REPLY_TO = "amq.rabbitmq.reply-to"
WORDS = ("a", "b", "a.b", "a.b.c", "a..c", "", "*.b", "#.c", "a.#")
