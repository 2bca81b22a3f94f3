"""A few confirms are acknowledged one by one; many with one `multiple`; each publish once."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from pamqp import commands

from amqpd.session.confirms import SINGLE_ACKS_MAX
from tests.harness.harness import Client, Harness, publish_bytes

Basic, Confirm, Queue = commands.Basic, commands.Confirm, commands.Queue


@pytest.fixture
def client() -> Client:
    client = Harness().client()
    client.declare("q", durable=True)
    client.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.call(Confirm.Select(), Confirm.SelectOk)
    return client


def told(client: Client) -> list[tuple[str, int, bool]]:
    return [(type(each).__name__, each.delivery_tag, each.multiple) for each in client.take((Basic.Ack, Basic.Nack))]


def test_one_that_waits_for_the_disk_and_one_without_a_queue_are_acknowledged_each(client: Client) -> None:
    client.harness.automatic = False
    client.publish(b"1", "q", delivery_mode=2)
    client.publish(b"2", "nowhere")
    client.harness.automatic = True
    client.harness.step()
    assert told(client) == [("Ack", 1, False), ("Ack", 2, False)]


def test_two_in_one_segment_are_acknowledged_each(client: Client) -> None:
    client.raw(publish_bytes(b"1", "q", delivery_mode=2) + publish_bytes(b"2", "q", delivery_mode=2))
    assert told(client) == [("Ack", 1, False), ("Ack", 2, False)]


def test_many_are_acknowledged_together(client: Client) -> None:
    client.raw(publish_bytes(b"x", "q") * (SINGLE_ACKS_MAX + 1))
    assert told(client) == [("Ack", SINGLE_ACKS_MAX + 1, True)]


def test_what_was_refused_is_not_acknowledged_behind_that(client: Client) -> None:
    client.harness.automatic = False
    client.publish(b"1", "q", delivery_mode=2)
    client.publish(b"2", "full")
    client.publish(b"3", "nowhere")
    client.harness.automatic = True
    client.harness.step()
    assert told(client) == [("Nack", 2, False), ("Ack", 1, False), ("Ack", 3, False)]


@pytest.mark.parametrize("seed", range(30))
def test_each_publish_is_answered_once_whatever_becomes_of_it(seed: int, client: Client) -> None:
    chance, harness = Random(seed), client.harness
    harness.automatic = False
    published = 0
    answers: list[tuple[str, int, bool]] = []
    for _ in range(60):
        for _ in range(chance.choice((1, 2, 3, 9))):
            client.publish(b"x", chance.choice(("q", "full", "full", "nowhere")), delivery_mode=2)
            published += 1
        if chance.random() < 0.4 and harness.node.journal.pending:
            harness.commit()
        answers += told(client)
    harness.automatic = True
    harness.step()
    answers += told(client)
    done: set[int] = set()
    for kind, tag, multiple in answers:
        tags = {each for each in range(1, tag + 1) if each not in done} if multiple else {tag}
        assert not tags & done, (kind, tag)
        assert tags
        done |= tags
    assert done == set(range(1, published + 1))
    acks = [tag for kind, tag, _ in answers if kind == "Ack"]
    assert all(before < after for before, after in pairwise(acks))
