"""What RabbitMQ says of arguments of queues: declarations and texts, for tests of the pure machines and of a broker.

Each was printed by RabbitMQ 3.10.8, but those of `SINCE_4`, which are from the code of 4.2. BIG is a number that all
client libraries send as the same type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

INTEGER = '"expected integer, got {}"'
BIG = 100_000
TEN_YEARS_MS = 315_360_000_000
QUORUM = {"x-queue-type": "quorum"}
STREAM = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")

# (arguments, the refused one, the reason)
VALUES: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({name: value}, name, INTEGER.format(kind))
        for name in ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority")
        for value, kind in (("1000", "longstr"), (True, "bool"))
    ),
    ({"x-message-ttl": None}, "x-message-ttl", INTEGER.format("void")),
    ({"x-message-ttl": [1]}, "x-message-ttl", INTEGER.format("array")),
    ({"x-message-ttl": {"a": 1}}, "x-message-ttl", INTEGER.format("table")),
    ({"x-message-ttl": 1.5}, "x-message-ttl", INTEGER.format("float")),
    (
        {"x-message-ttl": datetime(2020, 1, 1, tzinfo=UTC)},
        "x-message-ttl",
        INTEGER.format("timestamp"),
    ),
    *(
        ({name: -1}, name, "{value_negative,-1}")
        for name in ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority")
    ),
    ({"x-expires": 0}, "x-expires", "{value_zero,0}"),
    ({"x-expires": TEN_YEARS_MS + 1}, "x-expires", "{value_too_large,315360000001}"),
    ({"x-message-ttl": TEN_YEARS_MS + 1}, "x-message-ttl", "{value_too_large,315360000001}"),
    ({"x-dead-letter-routing-key": "k"}, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"),
    (
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": BIG},
        "x-dead-letter-routing-key",
        "{unacceptable_type,signedint}",
    ),
    ({"x-max-priority": 256}, "x-max-priority", "{max_value_exceeded,256}"),
    ({"x-overflow": BIG}, "x-overflow", "{unacceptable_type,signedint}"),
    ({"x-overflow": "bogus"}, "x-overflow", "invalid_overflow"),
    ({"x-queue-mode": BIG}, "x-queue-mode", "{unacceptable_type,signedint}"),
    ({"x-queue-mode": "bogus"}, "x-queue-mode", "\"unsupported queue mode 'bogus'\""),
    ({"x-queue-version": "1"}, "x-queue-version", INTEGER.format("longstr")),
    ({"x-queue-version": -1}, "x-queue-version", "{value_negative,-1}"),
    ({"x-queue-version": 3}, "x-queue-version", "\"unsupported queue version '3'\""),
    ({"x-single-active-consumer": "true"}, "x-single-active-consumer", "{unacceptable_type,longstr}"),
    ({"x-single-active-consumer": BIG}, "x-single-active-consumer", "{unacceptable_type,signedint}"),
    ({"x-queue-type": BIG}, "x-queue-type", "{unacceptable_type,signedint}"),
    ({"x-queue-type": "bogus"}, "x-queue-type", "\"unsupported queue type 'bogus'\""),
    ({"x-queue-type": "Quorum"}, "x-queue-type", "\"unsupported queue type 'Quorum'\""),
    ({"x-queue-type": 'a"\\\nü'}, "x-queue-type", '"unsupported queue type \'a\\"\\\\\\nü\'"'),
    ({**QUORUM, "x-dead-letter-strategy": BIG}, "x-dead-letter-strategy", "{unacceptable_type,signedint}"),
    ({**QUORUM, "x-dead-letter-strategy": "bogus"}, "x-dead-letter-strategy", "invalid_dlx_strategy"),
    ({**QUORUM, "x-max-length": "5"}, "x-max-length", INTEGER.format("longstr")),
    ({**QUORUM, "x-max-in-memory-length": -1}, "x-max-in-memory-length", "{value_negative,-1}"),
    ({**QUORUM, "x-quorum-initial-group-size": 0}, "x-quorum-initial-group-size", "{value_zero,0}"),
    # The order of the checks, where two are wrong.
    ({"x-queue-type": "bogus", "x-expires": 0}, "x-queue-type", "\"unsupported queue type 'bogus'\""),
    ({"x-max-length": -1, "x-expires": 0}, "x-expires", "{value_zero,0}"),
    ({"x-overflow": "bogus", "x-max-priority": 256}, "x-max-priority", "{max_value_exceeded,256}"),
    ({"x-delivery-limit": 1, "x-overflow": "bogus"}, "x-overflow", "invalid_overflow"),
]
SINCE_4: list[tuple[dict[str, Any], str, str]] = [
    ({"x-consumer-timeout": "1000"}, "x-consumer-timeout", INTEGER.format("longstr")),
    ({**QUORUM, "x-consumer-timeout": -1}, "x-consumer-timeout", "{value_negative,-1}"),
    ({"x-queue-leader-locator": "bogus"}, "x-queue-leader-locator", "invalid_queue_locator_arg"),
    ({"x-queue-leader-locator": BIG}, "x-queue-leader-locator", "{unacceptable_type,signedint}"),
]

# (arguments, the refused one, the Erlang module of the queue's type)
OTHER_TYPES: list[tuple[dict[str, Any], str, str]] = [
    *(
        ({name: 1}, name, "rabbit_classic_queue")
        for name in (
            "x-delivery-limit",
            "x-dead-letter-strategy",
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-quorum-initial-group-size",
            *STREAM,
        )
    ),
    *(
        ({**QUORUM, name: value}, name, "rabbit_quorum_queue")
        for name, value in (
            ("x-max-priority", 5),
            ("x-queue-mode", "lazy"),
            ("x-queue-version", 2),
            ("x-queue-master-locator", "min-masters"),
            *((name, 1) for name in STREAM),
        )
    ),
]

ACCEPTED: list[dict[str, Any]] = [
    {"x-message-ttl": 0},
    {"x-message-ttl": TEN_YEARS_MS, "x-expires": TEN_YEARS_MS},
    {"x-max-length": 0, "x-max-length-bytes": 2**63 - 1},
    {"x-max-priority": 0},
    {"x-max-priority": 255},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""},
    {"x-dead-letter-exchange": "not-there"},
    {"x-overflow": "reject-publish-dlx"},
    {"x-queue-mode": "lazy"},
    {"x-queue-version": 1},
    {"x-queue-version": 2},
    {"x-single-active-consumer": True},
    {"x-queue-type": "classic"},
    {"x-queue-master-locator": "min-masters"},
    {"x-unknown": "whatever", "alternate-exchange": 1},
    {
        **QUORUM,
        "x-max-length": 1,
        "x-max-length-bytes": 1,
        "x-message-ttl": 1,
        "x-expires": 100_000,
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
        "x-dead-letter-exchange": "d",
        "x-dead-letter-routing-key": "k",
        "x-dead-letter-strategy": "at-least-once",
        "x-delivery-limit": 3,
        "x-max-in-memory-length": 1,
        "x-max-in-memory-bytes": 1,
        "x-quorum-initial-group-size": 1,
        "x-queue-leader-locator": "client-local",
    },
]

# (of the queue that is there, of the redeclaration, what comes behind "inequivalent arg ")
REDECLARED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"x-message-ttl": 1000},
        {"x-message-ttl": 2000},
        "'x-message-ttl' for {}: received '2000' but current is '1000'",
    ),
    # Not checked, only compared.
    (
        {"x-message-ttl": 1000},
        {"x-message-ttl": "1000"},
        "'x-message-ttl' for {}: received '1000' but current is '1000'",
    ),
    ({"x-max-length": 1}, {"x-max-length": True}, "'x-max-length' for {}: received 'true' but current is '1'"),
    (
        {"x-message-ttl": BIG},
        {},
        "'x-message-ttl' for {}: received none but current is the value '100000' of type 'signedint'",
    ),
    (
        {},
        {"x-expires": 10_000_000_000},
        "'x-expires' for {}: received the value '10000000000' of type 'long' but current is none",
    ),
    (
        {},
        {"x-overflow": "drop-head"},
        "'x-overflow' for {}: received the value 'drop-head' of type 'longstr' but current is none",
    ),
    (
        {},
        {"x-single-active-consumer": True},
        "'x-single-active-consumer' for {}: received the value 'true' of type 'bool' but current is none",
    ),
    (
        {"x-queue-mode": "lazy"},
        {},
        "'x-queue-mode' for {}: received none but current is the value 'lazy' of type 'longstr'",
    ),
    (
        {**QUORUM, "x-delivery-limit": 3},
        {**QUORUM, "x-delivery-limit": 4},
        "'x-delivery-limit' for {}: received '4' but current is '3'",
    ),
    (
        {"x-queue-type": "classic"},
        QUORUM,
        "'x-queue-type' for {}: received 'quorum' but current is 'classic'",
    ),
]
EQUIVALENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"x-queue-type": "classic"}, {}),
    ({}, {"x-queue-type": "classic"}),
    # What the type of the queue that is there does not know is not compared.
    ({}, {"x-delivery-limit": 1}),
    (QUORUM, {**QUORUM, "x-max-priority": 1}),
    ({"x-unknown": 1}, {"x-unknown": 2}),
]
