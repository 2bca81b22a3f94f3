"""What a member says that is not true: it loses its link, or is passed over, and nobody ends.

What is verified: each number of each message, one after the other, as large as a message can have it and as small;
nothing is written that nobody could go on from, and what is honest goes on. Not verified here: bytes that are no
message (`tests/peers/test_encoding.py`), payloads (`tests/journal`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from amqpd.cluster.followed_sources import READS_MAX, REPLICA_SETS_MAX
from amqpd.peers.entry import EPOCH_MAX, EPOCH_STEP_MAX, NUMBER_MAX, SOURCES_MAX, START, Vote
from amqpd.peers.messages import (
    FROM_ACCEPTOR,
    Ballot,
    FetchEntries,
    FetchParts,
    Heartbeat,
    Message,
    OpenedSource,
    Opening,
    OpenReplicaSet,
    RequestPreVote,
    RequestVote,
    Voted,
    Would,
)
from amqpd.replication.replica import Appended
from tests.replication.lies import ANSWERS, FROM_LEADER, SOURCE, lies_in

from .forwarders import World

HIGHEST = 8 + EPOCH_STEP_MAX
"""An epoch that an honest node would go on from."""


class Lied(World):
    """b says to a what a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[str] = []
        for link in self._links.values():
            link.close = self.closed.append
        self.new_source(SOURCE, "a")

    def say(self, messages: Iterable[Message]) -> None:
        """Until the link is closed."""
        a = self["a"].forwarder
        for message in messages:
            link = self._links.get(("b", "a"))
            if type(message) in FROM_ACCEPTOR:
                a.answered("b", message)
            elif link is not None:
                a.asked(link, message)
            if self.closed:
                self.disconnect("a", "b")
            self.move()

    def judge(self) -> None:
        """All live, what they know is honest, and what is published is committed."""
        self.connect("b")
        for link in self._links.values():
            link.close = self.closed.append
        self.wait(3.0)
        epochs = [record.leader.epoch for record in self.records.values()]
        for machine in self.machines.values():
            epochs += [vote.epoch for vote in machine.votes.values()]
            epochs += [entry.position[0] for log in machine.entries.values() for entry in log]
        assert max(epochs) <= HIGHEST
        leader = self.records[SOURCE].leader.forwarder
        index = self[leader].publish(SOURCE, b"after it")
        self.wait(0.5)
        assert self[leader].reports[-1] >= index


def extremes(name: str) -> list[int]:
    return {"epoch": [0, EPOCH_MAX], "source": [1, SOURCES_MAX], "replica_set": [0, 2**32 - 1]}.get(
        name, [0, NUMBER_MAX]
    )


@pytest.mark.parametrize("message", [*FROM_LEADER[:-1], *ANSWERS[:-1]], ids=lambda message: type(message).__name__)
def test_nobody_ends_whatever_a_member_says(message: Message) -> None:
    for path, lie in lies_in(message, extremes):
        world = Lied()
        world.say([*FROM_LEADER[:1], lie])
        try:
            world.judge()
        except AssertionError as error:
            raise AssertionError(path) from error


def test_the_epochs_are_not_used_up_by_one_who_asks_for_the_last() -> None:
    """60 bytes, and no node of the cluster started any more."""
    for epoch in (EPOCH_MAX, EPOCH_STEP_MAX + 2):
        world = Lied()
        world.wait(3.0)
        world.say([RequestVote(1, SOURCE, Vote(epoch, "b", 1))])
        assert world.closed == [f"it names epoch {epoch} of source {SOURCE}, and 1 is the highest one heard of"]
        assert world["a"].votes[SOURCE].epoch == 1
        world.judge()


def test_a_leader_that_nobody_made_one_is_not_followed() -> None:
    world = Lied()
    world.say([OpenReplicaSet(1, 1, Opening(8, (OpenedSource(SOURCE, EPOCH_MAX, START, None),), 6))])
    assert "names epoch" in world.closed[0]
    assert world["a"].votes[SOURCE].epoch == 1
    world.judge()


def test_nobody_asks_for_a_vote_of_another_one() -> None:
    """A bit that was flipped made it one of s@vm."""
    for vote in (Vote(2, "c", 1), Vote(2, "b", 2), Vote(2, "", 1)):
        world = Lied()
        world.say([RequestVote(1, SOURCE, vote)])
        assert world.closed == [f"it asks for a vote of {vote.forwarder!r}, incarnation {vote.incarnation}"]
        assert world["a"].votes[SOURCE] == Vote(1, "a", 1)
        world.judge()


@pytest.mark.parametrize("epoch", [EPOCH_MAX, EPOCH_STEP_MAX + 2, NUMBER_MAX])
def test_the_store_is_not_told_of_an_epoch_that_a_member_made_up(epoch: int) -> None:
    """a dies; b and c take over, and c says that it has voted for it."""
    world = Lied()
    world.kill("a")
    b = world["b"].forwarder
    ballot = Ballot(False, Vote(epoch, "c", 1), START, 7, START)
    world.tell_members()
    for number in range(1, 60):
        b.answered("c", Would(number, ballot))
        b.answered("c", Voted(number, Vote(epoch, "b", 1), ballot))
        world.wait(0.1)
    assert world.records[SOURCE].leader.epoch < 100


def test_what_one_peer_has_open_is_bounded() -> None:
    world = Lied()
    world.say(
        OpenReplicaSet(number, 1, Opening(8, (OpenedSource(SOURCE, 1, START, None),), 6))
        for number in range(REPLICA_SETS_MAX + 10)
    )
    assert world.closed == []  # each replica set takes the source from the one before
    asks: list[Message] = [FetchEntries(number, SOURCE, START) for number in range(READS_MAX)]
    link = world._links["b", "a"]
    for ask in (*asks, FetchParts(1, SOURCE, START)):
        world["a"].forwarder.asked(link, ask)
    assert world.closed == [f"{READS_MAX} of its questions wait for the disk"]
    world.closed.clear()
    world.move()
    world["a"].forwarder.asked(link, FetchParts(1, SOURCE, START))
    world["a"].forwarder.asked(link, RequestPreVote(1, SOURCE))
    world.move()
    assert world.closed == []
    world["a"].forwarder.asked(link, Heartbeat(77777, 1, 1))
    assert world.closed == ["replica set 77777 was not opened"]


def test_a_copy_that_the_disk_does_not_take_is_left_out_and_everything_else_goes_on() -> None:
    """a keeps copies of two sources of b's, and one of them cannot be written."""
    world = Lied()
    world.new_source(6, "b")
    world.new_source(7, "b")
    world["b"].publish(6, b"bad")
    world["b"].commit()
    while world.deliver():
        pass
    a = world["a"]
    index = a.journal.write([])
    sent = [write for write in a.journal.wrote if isinstance(write, Appended) and write.entry.source == 6]
    assert sent  # on its way to the disk of a, which leaves it out
    a.journal.wrote = [write for write in a.journal.wrote if write not in sent]
    a.forwarder.unusable(a._replica(6), "it is no payload")
    assert ("copy_unusable", 6) in [(event, fields.get("source")) for event, fields in a.logged]
    assert world.closed == ["what it sent of source 6 cannot be written: it is no payload"]
    world.disconnect("a", "b")
    world.closed.clear()
    world.connect("a")
    for link in world._links.values():
        link.close = world.closed.append
    world.move()
    assert a.journal.stored_index >= index
    indexes = {source: world["b"].publish(source, b"more") for source in (6, 7)}
    world.wait(0.5)
    assert world["b"].reports[-1] >= max(indexes.values())
    ends = {source: [each.payload for each in a.entries[source]][-1:] for source in (6, 7)}
    assert ends == {6: [b"reserves"], 7: [b"more"]}
    assert "replica_contradicts" in world["b"].events
    assert world.closed == []
    # What another leader sends is tried again.
    world.kill("b")
    world.wait(3.0)
    leader = world.records[6].leader.forwarder
    index = world[leader].publish(6, b"of another leader")
    world.wait(0.5)
    assert leader != "b"
    assert world[leader].reports[-1] >= index
    assert [each.payload for each in a.entries[6]][-1] == b"of another leader"
