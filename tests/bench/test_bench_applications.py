"""Messages as applications send them: what they are, their stamps from lap to lap, and the ledger of several
publishers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from bench.applications import AREAS, KEYS, MARKER, ApplicationRecipe
from bench.errors import BenchError
from bench.mixed import Deliveries, MixedCounter, MixedRing
from bench.mixed_ledger import MixedLedger

RECIPES = [ApplicationRecipe(publisher) for publisher in range(AREAS)]
RECIPE = RECIPES[0]
AREA = 2
DELIVERIES = Deliveries("x", "c0000")


def ring_in_lap(lap: int) -> MixedRing:
    """As a publisher has it that has sent all laps before."""
    ring = MixedRing("x", RECIPE)
    for each in range(1, lap + 1):
        ring.stamp_lap(each)
    return ring


def parts(ring: MixedRing, position: int) -> tuple[commands.Basic.Publish, bytes, bytes]:
    """The method, the payload of the content header, the body."""
    data = bytes(ring.data[ring.offset(position) : ring.offset(position + 1)])
    taken, _, method = frame.unmarshal(data)
    more, _, head = frame.unmarshal(data[taken:])
    last, _, body = frame.unmarshal(data[taken + more :])
    assert taken + more + last == len(data)
    assert isinstance(method, commands.Basic.Publish)
    assert isinstance(head, header.ContentHeader)
    assert isinstance(body, ContentBody)
    assert body.value is not None
    assert head.body_size == len(body.value)
    return method, data[taken + 7 : taken + more - 1], body.value


def test_messages_are_what_the_scenario_promises() -> None:
    keys, sizes, ids, times = set(), set(), set(), set()
    positions = range(0, RECIPE.messages, 7)
    for lap in (0, 1, 2):
        for position in positions:
            payload = RECIPE.header(position, lap)
            head = frame.unmarshal(b"\2\0\1" + len(payload).to_bytes(4) + payload + b"\xce")[2]
            assert isinstance(head, header.ContentHeader)
            assert head.properties.headers is not None
            assert head.properties.headers.keys() == {"tenant", "trace", "attempt"}
            assert head.properties.delivery_mode is None
            keys.add(RECIPE.key(position))
            sizes.add(len(RECIPE.body(position, lap)))
            ids.add(head.properties.message_id)
            times.add(head.properties.timestamp)
    assert len(keys) == KEYS
    assert (min(sizes), max(sizes)) == (40, 600)
    assert len(ids) == len(times) == 3 * len(positions), "no id and no time comes twice"


def test_publishers_send_different_messages() -> None:
    assert all(one.header(5, 0) != other.header(5, 0) for one, other in pairwise(RECIPES))
    assert all(one.body(5, 0) != other.body(5, 0) for one, other in pairwise(RECIPES))


def test_persistent_ones_say_so() -> None:
    payload = ApplicationRecipe(persistent=True).header(3, 0)
    head = frame.unmarshal(b"\2\0\1" + len(payload).to_bytes(4) + payload + b"\xce")[2]
    assert isinstance(head, header.ContentHeader)
    assert head.properties.delivery_mode == 2


@pytest.mark.parametrize("lap", [0, 1, 17])
def test_a_lap_is_stamped_into_all_of_the_ring(lap: int) -> None:
    ring = ring_in_lap(lap)
    for position in range(RECIPE.messages):
        method, head, body = parts(ring, position)
        assert method.routing_key == RECIPE.key(position)
        assert head == RECIPE.header(position, lap)
        assert body == RECIPE.body(position, lap)
        assert body.startswith(MARKER)


def test_areas_share_the_ring() -> None:
    assert sum(RECIPE.in_lap(area) for area in range(AREAS)) == RECIPE.messages
    for published in (0, 1, 1000, 5000, RECIPE.messages, 3 * RECIPE.messages + 17):
        whole, left = divmod(published, RECIPE.messages)
        for area in range(AREAS):
            counted = sum(RECIPE.key(position).startswith(f"area{area}.") for position in range(left))
            assert RECIPE.of_area(area, published) == whole * RECIPE.in_lap(area) + counted


def stream(turns: list[int], *, lost: int | None = None, begin: int = 0) -> bytes:
    """What area AREA's consumer gets when publishers send in these turns; message `lost` never came."""
    sent = [begin] * AREAS
    deliveries: list[bytes] = []
    for number, publisher in enumerate(turns):
        lap, at = divmod(sent[publisher], RECIPE.in_lap(AREA))
        sent[publisher] += 1
        if number != lost:
            recipe = RECIPES[publisher]
            deliveries.append(DELIVERIES.encode(recipe, recipe.position(AREA, at), lap, len(deliveries) + 1))
    return b"".join(deliveries)


def feed(ledger: MixedLedger | MixedCounter, data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        ledger.feed(bytearray(data[start:stop]) + b"\xce" * 9, stop - start)


turns = st.lists(st.integers(0, AREAS - 1), min_size=1, max_size=40)
cuts = st.lists(st.integers(0, 1 << 20), max_size=20)


@given(turns=turns, cuts=cuts)
def test_any_cut_gives_the_same_counts(turns: list[int], cuts: list[int]) -> None:
    ledger = MixedLedger("x", RECIPES, AREA, "c0000")
    feed(ledger, stream(turns), cuts)
    assert ledger.count == len(turns)
    assert ledger.next_of == {publisher: turns.count(publisher) for publisher in range(AREAS)}


@given(turns=st.lists(st.integers(0, AREAS - 1), min_size=2, max_size=20), cuts=cuts, data=st.data())
def test_a_lost_message_is_seen(turns: list[int], cuts: list[int], data: st.DataObject) -> None:
    # The last message of a publisher is missed by the total only.
    later = [number for number, publisher in enumerate(turns) if publisher in turns[number + 1 :]]
    if later:
        with pytest.raises(BenchError, match="due was"):
            feed(
                MixedLedger("x", RECIPES, AREA, "c0000"), stream(turns, lost=data.draw(st.sampled_from(later))), cuts
            )


def test_a_whole_lap_and_the_next() -> None:
    count = RECIPE.in_lap(AREA) + 3
    ledger = MixedLedger("x", RECIPES, AREA, "c0000")
    feed(ledger, stream([1] * count), list(range(0, 1 << 24, 70_001)))
    assert ledger.next_of == {0: 0, 1: count, 2: 0, 3: 0}


@pytest.mark.parametrize("changed", ["body", "header", "key", "delivery tag"])
def test_a_changed_delivery_is_seen(changed: str) -> None:
    data = bytearray(stream([0]))
    payload = RECIPE.header(RECIPE.position(AREA, 0), 0)
    at = {
        "body": len(data) - 2,
        "header": data.index(payload) + 30,
        "key": data.index(b"area") + 8,
        "delivery tag": 24,
    }
    data[at[changed]] ^= 1
    with pytest.raises(BenchError, match="is not the one due"):
        feed(MixedLedger("x", RECIPES, AREA, "c0000"), bytes(data), [])


def test_an_area_of_another_queue_is_seen() -> None:
    with pytest.raises(BenchError, match="stamp of nobody"):
        feed(MixedLedger("x", RECIPES, 1, "c0000"), stream([0]), [])


@given(cuts=cuts)
def test_one_publishers_stream_is_counted_over_a_lap(cuts: list[int]) -> None:
    count = 40
    counter = MixedCounter("x", RECIPE, "c0000")
    feed(counter, b"".join(DELIVERIES.encode(RECIPE, position, 0, position + 1) for position in range(count)), cuts)
    assert counter.count == count
