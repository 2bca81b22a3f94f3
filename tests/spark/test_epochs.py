"""Conservation of a queue that several nodes keep, from the logs of all of them, over the epochs of its source.

What is verified: a message's fate in the books, and what is found wrong with it. A history is a queue named after it,
of source 5: its leader is `a`, then `b`, then `a` again in another incarnation. All histories are in one log, which
is accounted for once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.log import Log
from tests.spark.test_conservation import called, read_back

SOURCE, OTHER = 5, 6
LEADERS = {1: ("a", 1), 2: ("b", 1), 3: ("a", 2)}
"""epoch -> node, its incarnation"""
Story = Callable[["Shared"], None]
STORIES: dict[str, tuple[Story, str, str]] = {}
"""name -> what happens, the books' columns that are not 0, the kinds of findings"""


class Shared:
    """A queue of a source."""

    def __init__(self, log: Log, name: str, queue_id: int, source: int = SOURCE) -> None:
        self.log, self.name, self.queue_id, self.source = log, name, queue_id, source

    def add(self, event: str, leader_epoch: int, first: int = 0, entered: int = 0, **columns: Any) -> None:
        """In the log of the leader of the epoch `leader_epoch`; `entered`: the epoch in which the message came in."""
        node, incarnation = LEADERS[leader_epoch]
        given: dict[str, Any] = {"queue": self.name, "queue_id": self.queue_id, "first": first}
        given |= {"source": self.source, "source_epoch": leader_epoch, "epoch": entered or leader_epoch, "node": node}
        self.log.add(event, incarnation=incarnation, **(given | columns))

    def routed(self, leader_epoch: int, first: int = 0, confirmed: bool = True, **columns: Any) -> None:
        node, incarnation = LEADERS[leader_epoch]
        publication = self.queue_id * 100 + first
        given: dict[str, Any] = {"persistent": True, "connection": "c", "channel": 1, "publication": publication}
        self.add("routed", leader_epoch, first, **(given | columns))
        if confirmed:
            about: dict[str, Any] = {
                "publication": publication,
                "connection": "c",
                "node": node,
                "incarnation": incarnation,
            }
            self.log.add("published", **about)
            self.log.add("confirmed", **about)

    def anchor(self, leader_epoch: int, *stretches: tuple[int, int, int], reason: str = "recovered") -> None:
        """`stretches`: the epoch in which they came in, first, count."""
        self.add("standing", leader_epoch, count=0, reason=reason, detail=str(len(stretches)))
        for entered, first, many in stretches:
            self.add("standing", leader_epoch, first, entered, count=many, persistent=True)


def story(books: str, findings: str = "") -> Callable[[Story], Story]:
    def keep(function: Story) -> Story:
        STORIES[function.__name__] = (function, books, findings)
        return function

    return keep


@story("accepted 1, acked 1")
def published_at_one_leader_delivered_at_the_next_and_acked_at_a_third(queue: Shared) -> None:
    queue.routed(1)
    queue.anchor(2, (1, 0, 1))
    queue.add("delivered", 2, entered=1)
    queue.anchor(3, (1, 0, 1))
    queue.add("delivered", 3, entered=1, redelivered=True)
    queue.add("acked", 3, entered=1)


@story("accepted 3, standing 2, missing 1", "missing 1")
def confirmed_by_one_leader_and_not_there_at_the_next_is_missing(queue: Shared) -> None:
    queue.routed(1, 0)
    queue.routed(1, 1)
    queue.routed(1, 2)
    queue.anchor(2, (1, 0, 1), (1, 2, 1))


@story("accepted 1, missing 1", "missing 0")
def lost_two_leaders_later_is_missing(queue: Shared) -> None:
    queue.routed(1)
    queue.anchor(2, (1, 0, 1))
    queue.anchor(3)


@story("accepted 2, unconfirmed 1, standing 1")
def not_confirmed_when_its_leader_died_it_may_be_there_or_not(queue: Shared) -> None:
    queue.routed(1, 0, confirmed=False)
    queue.routed(1, 1, confirmed=False)
    queue.anchor(2, (1, 1, 1))


@story("accepted 1, acked 1")
def an_ack_that_was_not_committed_is_no_end(queue: Shared) -> None:
    queue.routed(1)
    queue.add("acked", 1)
    queue.anchor(2, (1, 0, 1))
    queue.add("acked", 2, entered=1)


@story("accepted 1, acked 1", "ended_twice 0")
def acked_at_two_leaders_and_not_there_between_is_twice(queue: Shared) -> None:
    queue.routed(1)
    queue.add("acked", 1)
    queue.anchor(2)
    queue.add("acked", 2, entered=1)


@story("accepted 1, acked 1", "ended_yet_standing 0")
def ended_and_standing_in_one_epoch(queue: Shared) -> None:
    queue.routed(2)
    queue.add("acked", 2)
    queue.anchor(2, (2, 0, 1), reason="gap")


@story("accepted 2, acked 1, unconfirmed 1")
def one_number_in_two_epochs_is_two_messages(queue: Shared) -> None:
    queue.routed(1, confirmed=False)
    queue.anchor(2)
    queue.routed(2)
    queue.add("acked", 2)


@story("accepted 2, unconfirmed 1, standing 1")
def a_leader_that_was_cut_off_goes_on_writing_after_the_next_one_began(queue: Shared) -> None:
    queue.routed(1)
    queue.anchor(2, (1, 0, 1))
    # Only its number in the log of `a` says where it belongs: b's clock is behind all this.
    queue.add("acked", 1, at=60)
    queue.routed(1, 1, confirmed=False, at=61)


@story("accepted 1, missing 1", "missing 0")
def a_confirm_of_the_same_number_at_another_node_excuses_nothing(queue: Shared) -> None:
    queue.routed(1, confirmed=False)
    queue.anchor(2, (1, 0, 1))
    queue.anchor(3)


@story("accepted 1, unconfirmed 1")
def a_confirm_of_the_same_number_at_another_node_promises_nothing(queue: Shared) -> None:
    queue.routed(1, confirmed=False)
    queue.log.add("confirmed", publication=queue.queue_id * 100, connection="c", node="b")
    queue.log.add("published", publication=queue.queue_id * 100, connection="c", node="b")
    queue.anchor(2)


@story("", "never_routed 4")
def delivered_by_a_leader_and_never_routed(queue: Shared) -> None:
    queue.add("delivered", 2, 4)


def dead_letters(log: Log) -> None:
    """From a queue of one source to one of another, both led by `a`, which is killed."""
    source, target = Shared(log, "died", 900), Shared(log, "letters", 901, OTHER)
    for first in range(4):
        # 3 came in without a confirm.
        source.routed(1, first, confirmed=first != 3)
        target.routed(1, first, confirmed=False, connection=None, channel=0)
        source.add("dead_lettered", 1, first, publication=90_100 + first, reason="rejected")
    # 0: all is there. 1: nothing is. 2: the end is, and the dead letter is not. 3: nobody was promised anything.
    source.anchor(2, (1, 1, 1))
    target.anchor(2, (1, 0, 1))
    undecided = Shared(log, "undecided", 902)
    undecided.routed(3)
    after = Shared(log, "dead letter of undecided", 903, OTHER)
    after.routed(3, confirmed=False, connection=None, publication=90_300)
    undecided.add("dead_lettered", 3, publication=90_300, reason="rejected")
    LEADERS[4] = ("c", 1)
    after.anchor(4)


def over_a_power_cut(log: Log) -> None:
    """The machine of `p` went down: the end of its incarnation's log may be lost."""
    LEADERS[11], LEADERS[12] = ("p", 1), ("q", 1)
    queue = Shared(log, "power", 950, source=7)
    queue.routed(11, 0)
    queue.routed(11, 1)
    queue.anchor(12, (11, 1, 1))
    log.add("gap", incarnation=2, node="p", reason="power", detail=json.dumps({"incarnation": 1}))
    # A source that `p` had handed over in that incarnation is not concerned.
    handed = Shared(log, "handed over", 951, source=8)
    handed.routed(11)
    log.add("source_ends", node="p", source=8, source_epoch=11)
    handed.anchor(12)


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("epochs")
    log = Log(folder / "events")
    for node, incarnation in {*LEADERS.values(), ("c", 1), ("p", 1), ("p", 2), ("q", 1)}:
        log.add("started", incarnation=incarnation, node=node)
    for source in (SOURCE, OTHER):
        for epoch, (node, incarnation) in [*LEADERS.items(), (4, ("c", 1))][: 3 if source == SOURCE else 4]:
            log.add("source_begins", incarnation=incarnation, node=node, source=source, source_epoch=epoch)
    for source in (7, 8):
        log.add("source_begins", node="p", source=source, source_epoch=11)
    for queue_id, (name, (tell, _, _)) in enumerate(STORIES.items(), 1):
        tell(Shared(log, name, queue_id))
    dead_letters(log)
    over_a_power_cut(log)
    answer = called(log.write(), folder / "out")
    assert answer.exit_code == 1, answer.output
    return read_back(folder / "out")


@pytest.mark.parametrize("name", list(STORIES))
def test_story(told: dict[str, tuple[str, str]], name: str) -> None:
    _, books, findings = STORIES[name]
    assert told[name] == (books, findings)


def test_a_dead_letter_to_another_source_is_undone_with_its_end_or_missing(told: dict[str, tuple[str, str]]) -> None:
    assert told["died"] == ("accepted 4, dead_lettered 3, standing 1", "")
    assert told["letters"] == ("accepted 4, unconfirmed 2, standing 1, missing 1", "missing 2")


def test_a_dead_letter_is_not_missing_before_the_next_leader_of_its_source_has_said_what_stands_there(
    told: dict[str, tuple[str, str]],
) -> None:
    assert told["undecided"] == ("accepted 1, dead_lettered 1", "")
    assert told["dead letter of undecided"] == ("accepted 1, unconfirmed 1", "")


def test_a_gap_of_a_node_is_one_of_the_sources_that_it_had_then(told: dict[str, tuple[str, str]]) -> None:
    assert told["power"] == ("accepted 2, standing 1, uncertain 1", "")
    assert told["handed over"] == ("accepted 1, missing 1", "missing 0")
