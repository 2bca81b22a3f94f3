"""Links that wait are looked at a few at a time, and none is forgotten."""

from __future__ import annotations

import socket
from typing import Any

from amqpd.transport.link import Link
from amqpd.transport.waiting_links import LOOKS_MAX, PausedLinks
from tests.harness.harness import Harness


def waiting(count: int) -> tuple[PausedLinks, list[Any]]:
    # Nothing of them is looked at, but compiled code takes nothing else.
    connection = Harness().client().connection
    with socket.socket() as client:
        links = [Link(client, connection, None) for _ in range(count)]
    paused = PausedLinks()
    for link in links:
        paused.add(link)
    return paused, links


def test_few_are_looked_at_in_a_tick_and_all_after_whatever_happened_last() -> None:
    paused, links = waiting(5 * LOOKS_MAX + 3)
    paused.changed()
    looked: list[Any] = list(paused.next())
    assert len(looked) == LOOKS_MAX
    paused.changed()
    again: list[Any] = []
    while paused.unlooked:
        found = paused.next()
        assert len(found) <= LOOKS_MAX
        again += found
    assert set(again) == set(links)
    assert again[: len(links) - LOOKS_MAX] == links[LOOKS_MAX:], "in turn"


def test_it_ends_when_nothing_happens_any_more() -> None:
    paused, _ = waiting(LOOKS_MAX + 1)
    paused.changed()
    paused.next()
    assert paused.unlooked
    paused.next()
    assert not paused.unlooked


def test_those_that_went_meanwhile_are_not_waited_for() -> None:
    paused, links = waiting(3 * LOOKS_MAX)
    paused.changed()
    for link in paused.next():
        paused.discard(link)
    assert all(link not in paused for link in links[:LOOKS_MAX])
    for link in links[LOOKS_MAX:]:
        paused.discard(link)
    assert not paused
    assert not paused.next()
    assert not paused.unlooked
