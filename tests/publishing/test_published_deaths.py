"""The x-death of what a client publishes again: counted on by RabbitMQ until 4.0, and by who says that it is one."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp import commands

from amqpd.config import Settings
from amqpd.process.node_settings import limits_of
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness

Basic = commands.Basic


def rejecting(published_deaths: bool) -> Client:
    client = Harness(Limits(published_deaths=published_deaths)).client()
    client.declare("dead")
    client.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    return client


def dies(client: Client, **properties: Any) -> Any:
    """Publish, reject; the properties of the dead letter."""
    client.publish(b"x", "q", **properties)
    client.send(Basic.Get(queue="q"))
    (message,) = client.messages()
    client.send(Basic.Reject(message.tag, False))
    client.send(Basic.Get(queue="dead", no_ack=True))
    (dead_letter,) = client.messages()
    return dead_letter.properties


@pytest.mark.parametrize("published_deaths", [False, True])
def test_a_message_that_a_client_publishes_again_counts_on(published_deaths: bool) -> None:
    client = rejecting(published_deaths)
    headers = dies(client).headers
    counts = [headers["x-death"][0]["count"]]
    for _ in range(3):
        headers = dies(client, headers=headers).headers
        assert len(headers["x-death"]) == 1
        counts.append(headers["x-death"][0]["count"])
    assert counts == ([1, 2, 3, 4] if published_deaths else [1, 1, 1, 1])


def test_other_deaths_stay_behind_the_newest_one() -> None:
    before = [{"queue": "elsewhere", "reason": "expired", "count": 7, "time": datetime(2020, 1, 1, tzinfo=UTC)}]
    deaths = dies(rejecting(True), headers={"x-death": before}).headers["x-death"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("q", "rejected", 1),
        ("elsewhere", "expired", 7),
    ]


def test_entries_without_a_count_are_counted() -> None:
    """Early versions of RabbitMQ added an entry for each death. Where the first of them has a count, it holds."""
    without = {"queue": "elsewhere", "reason": "expired"}
    counted = {"queue": "counted", "reason": "expired", "count": 7}
    mine = {"queue": "q", "reason": "rejected"}
    before = [without, counted, mine, without, {**counted, "count": 9}, mine, {**without, "count": 5}]
    deaths = dies(rejecting(True), headers={"x-death": before}).headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("q", 3), ("elsewhere", 3), ("counted", 7)]


@pytest.mark.parametrize(
    "deaths",
    [
        "text",
        7,
        None,
        {},
        [],
        [1, "a", None, {}],
        [{"queue": 1, "reason": "rejected"}, {"queue": "q"}],
        [{"queue": "q", "reason": "rejected"}],
        [{"queue": "q", "reason": "rejected", "count": "many"}],
        [{"queue": "q", "reason": "rejected", "count": True}],
        [{"queue": "q", "reason": "rejected", "count": (1 << 63) - 1}],
        [{"queue": "q", "reason": "rejected", "count": -1, "more": [Decimal("1.5"), {"deep": [1.5]}]}],
    ],
)
def test_whatever_a_client_wrote_there_its_message_dies_and_is_delivered(deaths: Any) -> None:
    client = rejecting(True)
    newest = dies(client, headers={"x-death": deaths}).headers["x-death"][0]
    assert (newest["queue"], newest["reason"]) == ("q", "rejected")
    assert newest["count"] in (1, 2)
    assert client.harness.bugs == []


def test_no_message_is_lost_for_all_that_a_client_wrote_there() -> None:
    before = [{"queue": f"q{number}", "reason": "expired", "count": 1} for number in range(1000)]
    deaths = dies(rejecting(True), headers={"x-death": before}).headers["x-death"]
    assert deaths[0]["queue"] == "q"
    assert len(deaths) > 100
    assert [death["queue"] for death in deaths[1:]] == [death["queue"] for death in before[: len(deaths) - 1]]


@pytest.mark.parametrize(("version", "counts"), [("", False), ("3.13.7", True), ("4.0.1", False), ("30.1", False)])
def test_the_version_that_clients_are_told_decides(version: str, counts: bool) -> None:
    assert limits_of(Settings(server_version=version)).published_deaths is counts
