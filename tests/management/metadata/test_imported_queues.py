"""Sources for the quorum queues of a definitions file, in a cluster that has none yet."""

from __future__ import annotations

import pytest
import trio

from amqpd.management.errors import Unavailable
from amqpd.management.metadata.imported_queues import MADE_FOR_MAX, make_sources, placed_in_cluster, sourceless
from amqpd.node.cluster import Answer, Cluster, WantedSource
from amqpd.vocabulary.records import Key, QueueRecord
from tests.harness.cluster import ClusterByHand


def quorum(name: str, **arguments: object) -> QueueRecord:
    return QueueRecord("/", name, 0, arguments={"x-queue-type": "quorum", **arguments})


def none(key: Key, wanted: WantedSource) -> int | None:
    return None


def test_sources_are_asked_for_where_the_first_queues_would_be_led() -> None:
    records = [QueueRecord("/", "plain", 0), quorum("a"), quorum("b", **{"x-quorum-initial-group-size": 5})]
    assert sourceless(records, none) == [WantedSource(0, "//a"), WantedSource(5, "//b")]
    assert sourceless(records, lambda key, wanted: 7) == []
    assert len(sourceless((quorum(f"{i}") for i in range(1000)), none)) == MADE_FOR_MAX


@pytest.mark.trio
async def test_all_that_are_asked_for_are_waited_for_also_where_there_can_be_none() -> None:
    cluster, asked, answers = ClusterByHand(), list[WantedSource](), list[Answer]()

    def want(wanted: WantedSource, answer: Answer) -> None:
        asked.append(wanted)
        answers.append(answer)

    cluster.want = want
    await make_sources(cluster, [])
    done = False

    async def make() -> None:
        nonlocal done
        await make_sources(cluster, [WantedSource(0, "//a"), WantedSource(0, "//b")])
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make)
        await trio.testing.wait_all_tasks_blocked()
        assert asked == [WantedSource(0, "//a"), WantedSource(0, "//b")]
        answers[0](True)
        await trio.testing.wait_all_tasks_blocked()
        assert not done
        answers[1](False)
    assert done
    # A node without a cluster refuses at once.
    await make_sources(Cluster(), [WantedSource(0, "//a")])


def test_where_there_is_none_even_so_the_sentence_says_what_to_do() -> None:
    with pytest.raises(Unavailable) as refused:
        placed_in_cluster(none, lambda _: "a@x")(quorum("orders"))
    assert "'orders' in '/' is a quorum queue" in str(refused.value)
    assert "POST /api/definitions" in str(refused.value)


def test_a_classic_queue_is_of_a_node_and_a_quorum_queue_of_a_source() -> None:
    place = placed_in_cluster(lambda key, wanted: 7, lambda record: f"{record.name}@x")
    placed = [place(each) for each in (QueueRecord("/", "plain", 1), quorum("orders"))]
    assert [(each.source, each.node) for each in placed] == [(0, "plain@x"), (7, "")]
