"""What a consumer of dead letters may see twice after a crash, and what it says of itself
(docs/decisions/dead-letters-twice.md).

A dead letter and the end of the message that died are in one transaction of the journal. The dead letter is handed
out before that is on the disk, as every message is; only confirms wait for it.
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.harness.harness import Client, Harness

# Where the message dies, and how.
DEATHS: dict[str, dict[str, Any]] = {
    "expired": {"x-message-ttl": 1000},
    "maxlen": {"x-max-length": 1},
    "rejected": {},
}


def prepared(why: str) -> tuple[Harness, Client]:
    """A message that is on the disk, in a queue where it is going to die, and a consumer of its dead letter."""
    harness = Harness()
    client = harness.client()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters", **DEATHS[why]}
    client.declare("letters", durable=True)
    client.declare("q", durable=True, arguments=arguments)
    client.consume("letters", no_ack=False)
    client.publish(b"x", "q", delivery_mode=2)
    return harness, client


def die(harness: Harness, client: Client, why: str) -> None:
    if why == "expired":
        harness.node.now_ms += 2000
    elif why == "maxlen":
        client.publish(b"y", "q", delivery_mode=2)
    else:
        client.send(commands.Basic.Get(queue="q"))
        client.collect()
        (message,) = client.messages()
        client.send(commands.Basic.Reject(delivery_tag=message.tag, requeue=False))
    harness.step()


def after_the_crash(harness: Harness) -> list[tuple[bytes, bool]]:
    """A new consumer of dead letters, and what it gets, with the flag `redelivered`."""
    harness.automatic = True
    now_ms = harness.node.now_ms
    harness.restart()
    harness.node.now_ms = now_ms
    harness.step()
    client = harness.client()
    client.consume("letters", no_ack=False)
    return [(message.body, message.redelivered) for message in client.messages()]


@pytest.mark.parametrize("acked", [False, True])
def test_a_dead_letter_that_was_handed_out_before_its_commit_is_made_again_and_is_new(acked: bool) -> None:
    """The disk has the message that died, and nothing of the dead letter. What is made of it again is another
    message: its number is above all that the queue may have handed out, so it is not called redelivered."""
    harness, client = prepared("expired")
    harness.automatic = False
    die(harness, client, "expired")
    harness.tick()
    (dead_letter,) = client.messages()
    assert (dead_letter.body, dead_letter.redelivered) == (b"x", False)
    if acked:
        client.send(commands.Basic.Ack(delivery_tag=dead_letter.tag))
        harness.tick()
    again = after_the_crash(harness)
    assert again == [(b"x", False)], "once, whatever became of the first one"


@pytest.mark.parametrize("why", ["expired", "maxlen", "rejected"])
def test_a_dead_letter_whose_commit_is_on_the_disk_comes_back_redelivered_and_is_not_made_again(why: str) -> None:
    harness, client = prepared(why)
    die(harness, client, why)
    dead_letters = [message for message in client.messages() if message.body == b"x"]
    assert [dead_letter.redelivered for dead_letter in dead_letters] == [False]
    again = after_the_crash(harness)
    assert again == [(b"x", True)]


def test_a_dead_letter_that_was_settled_on_the_disk_does_not_come_back() -> None:
    harness, client = prepared("expired")
    die(harness, client, "expired")
    (dead_letter,) = client.messages()
    client.send(commands.Basic.Ack(delivery_tag=dead_letter.tag))
    harness.step()
    again = after_the_crash(harness)
    assert again == []
