"""What a node says of copies: of the sources whose leader it is, and of its own."""

from __future__ import annotations

from amqpd.cluster.source_status import AWAY, COUNTS, OTHER_DISK, SILENT, replica_facts, source_facts
from tests.cluster.forwarders import LEASE_S, World

SOURCE = 5


def test_the_leader_says_which_copies_count() -> None:
    world = World()
    world.new_source(SOURCE, "a")
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert (row["source"], row["serving"], row["epoch"]) == (SOURCE, True, 1)
    assert row["copies"] == {name: {"is": COUNTS, "lacks_bytes": 0} for name in "bc"}
    assert source_facts(world["b"].forwarder.led_sources) == []


def test_the_leader_says_who_is_away_and_whose_disk_is_another_one() -> None:
    world = World()
    world.new_source(SOURCE, "a")
    world.disconnect("a", "c")
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert row["copies"]["c"] == {"is": AWAY, "lacks_bytes": None}
    world["a"].forwarder.led_sources.sources[SOURCE].replica_set.leader.peers["b"].uncounted.add(SOURCE)
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert row["copies"]["b"]["is"] == OTHER_DISK


def test_a_node_that_is_stopped_with_its_connection_open_is_not_up_to_date() -> None:
    """As after `kill -STOP`: nobody closes its connections, and while nothing is published it lacks nothing."""
    world = World()
    world.new_source(SOURCE, "a")
    world.wait(3 * LEASE_S)
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert [copy["is"] for copy in row["copies"].values()] == [COUNTS, COUNTS], "one that answers stays counted"
    world["c"].up = False
    world.wait(2 * LEASE_S)
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert {name: copy["is"] for name, copy in row["copies"].items()} == {"b": COUNTS, "c": SILENT}
    world["c"].up = True
    world.wait(LEASE_S)
    [row] = source_facts(world["a"].forwarder.led_sources)
    assert row["copies"]["c"]["is"] == COUNTS


def test_everybody_says_where_their_copies_end() -> None:
    world = World()
    world.new_source(SOURCE, "a")
    rows = {name: replica_facts(world[name].forwarder.replicas) for name in "abc"}
    [row] = rows["a"]
    assert row["source"] == SOURCE
    assert row["last"] >= row["committed"] > [0, 0]
    assert all(found[0]["last"] == row["last"] for found in rows.values())
