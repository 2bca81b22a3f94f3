"""Why a connection is held up, and why alarms are on, in words."""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.flow.alarms import Alarm
from amqpd.management import alarms
from amqpd.management.figures.conditions import Consuming
from amqpd.management.why.connections import JOURNAL, NODE_NOT_CURRENT, Connected, Full, sentences


def connected(**given: Any) -> Connected:
    free: dict[str, Any] = {
        "alarms": (), "not_current": False, "over_rate": False, "commit_waits": False, "leader_waits": False,
        "journal": None, "slowed_by": (), "held_bytes": 0, "unread_bytes": 0, "choked": False, "consumers": 0,
        "full": (),
    }  # fmt: skip
    return Connected(**{**free, **given})


def full(tag: str, channel: int = 1) -> Full:
    return Full(channel, tag, Consuming("prefetch", 10, 10))


FULL = "has as many unacknowledged messages as its prefetch allows (10 of 10)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing holds it up"),
        ({"alarms": ["memory"]}, "it may not publish: the memory alarm is on"),
        ({"alarms": ["disk", "memory"]}, "it may not publish: the disk and memory alarms are on"),
        ({"not_current": True}, NODE_NOT_CURRENT),
        (
            {"over_rate": True},
            "it publishes faster than a limit of its user or its virtual host lets it, and is slowed down",
        ),
        (
            {"commit_waits": True},
            "its tx.commit waits until the transaction in front of it is carried out and written, and nothing "
            "behind it is read before",
        ),
        ({"slowed_by": ["a"]}, "it publishes to queue 'a' faster than it drains"),
        ({"slowed_by": list("abcde")}, "it publishes to queues 'a', 'b', 'c' and 2 more faster than they drain"),
        ({"journal": "disk"}, JOURNAL["disk"]),
        (
            {"journal": "majorities"},
            JOURNAL["majorities"],
        ),
        ({"journal": "numbers"}, JOURNAL["numbers"]),
        ({"held_bytes": 1200}, "1,200 bytes of it wait until what a channel has asked for before is done"),
        (
            {"unread_bytes": 5000},
            "its client does not read fast enough: 5,000 bytes wait for it, and no more is sent",
        ),
        (
            {"unread_bytes": 5000, "choked": True},
            "its client does not read: 5,000 bytes wait for it, and nothing it sends is taken",
        ),
        ({"consumers": 1, "full": [full("c", 7)]}, f"its only consumer, 'c' of channel 7, {FULL}"),
        ({"consumers": 3, "full": [full("c")]}, f"1 of its 3 consumers get no more: 'c' of channel 1 {FULL}"),
    ],
)
def test_one_cause(given: dict[str, Any], said: str) -> None:
    assert sentences(connected(**given)) == [said]


def test_several_causes_and_publishing_first() -> None:
    found = sentences(connected(over_rate=True, journal="disk", consumers=1, full=[full("c")]))
    assert ["faster than a limit" in found[0], "waits for the disk" in found[1], FULL in found[2]] == [True] * 3
    many = sentences(connected(consumers=9, full=[full(tag) for tag in "abcde"]))
    assert many[0].startswith("5 of its 9 consumers get no more: 'a'")
    assert many[0].endswith(" and 2 more")


FIGURES = {"resident_bytes_max": 512 << 20, "disk_free_bytes": 10 << 20, "disk_free_bytes_min": 50 << 20}


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        ("memory", "watch", "the broker has 600 MiB of memory, and begins to block publishers at 512 MiB"),
        ("disk", "watch", "10 MiB are free where the data directory is, and 50 MiB have to be"),
        ("disk", "journal", "a commit found no space on the disk"),
        ("audit", "audit log", "the audit log cannot be written"),
        ("maintenance", "operator", "an operator has set it, and `amqpd alarm clear maintenance` ends it"),
        ("memory", "operator", "an operator has set it, and `amqpd alarm clear memory` ends it"),
    ],
)
def test_an_alarm_says_who_and_what_ends_it(kind: str, source: str, said: str) -> None:
    [found] = alarms.sentences([Alarm(kind, source, 0.0)], FIGURES, 600 << 20)
    assert found.startswith(f"the {kind} alarm is on since 1970-01-01T00:00:00")
    assert said in found


def test_no_alarm() -> None:
    assert alarms.sentences([], FIGURES, 0) == ["no alarm is on: nobody waits because of one"]
