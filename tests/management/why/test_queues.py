"""Why a queue is as it is, in words."""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.management.figures.conditions import Consuming, Held
from amqpd.management.why.queues import sentences
from amqpd.queues.facts import TOTALS


def facts(**given: Any) -> dict[str, Any]:
    totals = {**dict.fromkeys(TOTALS, 0), **given.pop("totals", {})}
    rates = {"deliver_get_details": {"rate": 120.0}, "publish_details": {"rate": 1_500.5}}
    plain = {"out_of_service": "", "fenced": None, "state": "running", "settings": {}, "message_stats": rates}
    numbers = {"messages_ready": 0, "messages_unacknowledged": 0, "messages_dlx": 0, "oldest_message_age_s": None}
    return {**plain, **numbers, **given, "totals": totals}


def full(held: Held, unacked: int = 250, prefetch: int = 250) -> Consuming:
    return Consuming(held, unacked, prefetch)


WAITING = facts(messages_ready=42, oldest_message_age_s=840.0)


def test_the_only_consumer_is_full() -> None:
    assert sentences(WAITING, [full("prefetch")], []) == [
        "42 messages wait, the oldest for 14 min: the only consumer has as many unacknowledged messages as its "
        "prefetch allows (250 of 250)"
    ]


def test_nobody_consumes() -> None:
    assert sentences(WAITING, [], []) == ["42 messages wait, the oldest for 14 min: nobody consumes"]
    one = facts(messages_ready=1, oldest_message_age_s=0.25)
    assert sentences(one, [], []) == ["1 message waits, the oldest for 0.2 s: nobody consumes"]


def test_all_consumers_are_full_for_several_reasons() -> None:
    consumers = [full("slow"), full("prefetch"), full("prefetch"), full("shared"), full("waits")]
    [said] = sentences(WAITING, consumers, [])
    assert said.startswith(
        "42 messages wait, the oldest for 14 min: no consumer can take more. 2 of them: each has as"
    )
    assert "1 of them: each does not read fast enough what it was sent" in said


def test_consumers_take_less_than_comes() -> None:
    [said] = sentences(WAITING, [full(""), full("prefetch")], [])
    assert said.endswith("1 consumer takes 120.0 a second, while 1,500.5 come")
    [said] = sentences(WAITING, [full(""), full("")], [])
    assert "2 consumers take" in said


def test_what_is_with_consumers_and_what_has_left() -> None:
    assert sentences(facts(messages_unacknowledged=1), [full("")], []) == [
        "nothing is ready: 1 message is with consumers, and not acknowledged"
    ]
    assert sentences(facts(), [], []) == ["nothing came to it since it was made, or since the broker began"]
    [said] = sentences(facts(totals={"accepted": 10, "acked": 7, "purged": 3}), [], [])
    assert said == "it is empty: 10 messages came, and left it (7 acked, 3 purged)"


def test_what_was_lost_says_where_it_went() -> None:
    totals = {"accepted": 5, "expired": 2, "dropped": 1, "delivery_limit": 1, "rejected": 1, "refused": 3}
    settings = {"message_ttl_ms": 60_000, "max_length": 9, "max_length_bytes": 1_000, "delivery_limit": 20}
    said = sentences(facts(totals=totals, settings=settings), [], [])
    gone = "there is no dead letter exchange"
    assert said[1:] == [
        f"2 messages expired (its messages live for 60 s): {gone}",
        f"1 message dropped, because the queue was full (at most 9 messages, at most 1,000 bytes): {gone}",
        f"1 message given up, having come back too often (20 deliveries): {gone}",
        f"1 message rejected by a consumer: {gone}",
        "3 messages were refused: the queue was full (at most 9 messages, at most 1,000 bytes)",
    ]
    dead_letters = facts(totals={"accepted": 1, "expired": 1}, settings={"dead_letter_exchange": "dead"})
    assert sentences(dead_letters, [], [])[1] == "1 message expired: to the dead letter exchange 'dead'"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"out_of_service": "a bug"}, "it is out of service: a bug"),
        ({"fenced": {"blocked": True}}, "some of its messages are damaged on the disk"),
    ],
)
def test_what_keeps_the_whole_queue_comes_first(given: dict[str, Any], said: str) -> None:
    assert sentences(facts(**given), [], ["disk"])[0].startswith(said)


def test_alarms_keep_publishers() -> None:
    assert sentences(facts(), [], ["disk", "memory"])[:2] == [
        "publishers wait: the disk alarm is on",
        "publishers wait: the memory alarm is on",
    ]


def test_dead_letters_that_wait_are_nobody_s_unacknowledged_messages() -> None:
    settings = {"dead_letter_exchange": "failed"}
    dying = facts(messages_unacknowledged=2, messages_dlx=2, settings=settings, totals={"accepted": 2})
    [said] = sentences(dying, [], [])
    assert said.startswith(
        "2 messages that died wait here, because no queue behind the dead letter exchange 'failed' takes them now"
    )
    both = facts(messages_unacknowledged=3, messages_dlx=1, settings=settings, totals={"accepted": 3})
    assert sentences(both, [], [])[0] == "nothing is ready: 2 messages are with consumers, and not acknowledged"


def test_the_only_consumer_is_named() -> None:
    name = "'worker' of 10.0.0.7:4242 -> 10.0.0.1:5672 (1), user 'alice'"
    [said] = sentences(WAITING, [Consuming("prefetch", 250, 250, name)], [])
    assert f"the only consumer, {name}, has as many unacknowledged messages" in said
