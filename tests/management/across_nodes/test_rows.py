"""What other nodes are asked for an operator: the other nodes are functions, the clock is the test's.

What is verified: pages follow each other, many askers share an answer, a node that is silent, refuses or talks
nonsense is missing and takes no longer than its bound. Not verified here: real answers (`test_answers.py`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.management.across_nodes import rows as peer_rows
from amqpd.management.across_nodes.rows import ANSWER_S, KEPT_S, QUEUES_AT_ONCE, PeerRows
from amqpd.management.errors import BadArgument, NotFound, Unavailable

pytestmark = pytest.mark.trio

Answering = Callable[[dict[str, Any]], Awaitable[str | None]]
NEVER = None


class Others:
    """Other nodes by name: each a function of a question, or silent."""

    def __init__(self, **nodes: Answering | None) -> None:
        self.nodes = nodes
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.rows = PeerRows(self, lambda: list(self.nodes))

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        self.asked.append((peer, json.loads(text)))
        answering = self.nodes[peer]
        with trio.move_on_after(timeout_s):
            if answering is None:
                await trio.sleep_forever()
            return await answering(json.loads(text))
        return None


def says(*rows: dict[str, Any], after: Any = None) -> str:
    return json.dumps({"rows": rows, "next": after})


def vhost(name: str) -> dict[str, Any]:
    return {"vhost": name}


async def one_row(question: dict[str, Any]) -> str:
    await trio.sleep(0.1)
    return says(vhost("x"))


async def test_pages_follow_each_other() -> None:
    async def answer(question: dict[str, Any]) -> str:
        pages = {None: says(vhost("a"), vhost("b"), after=["b"]), "b": says(vhost("c"), after=["c"]), "c": says()}
        return pages[question["after"] and question["after"][0]]

    others = Others(b=answer)
    found = await others.rows.rows("totals")
    assert [(node, row["vhost"]) for node, row in found] == [("b", "a"), ("b", "b"), ("b", "c")]
    assert found.missing == set()


async def test_many_who_ask_at_once_share_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    others = Others(b=one_row, c=one_row)
    counts: list[int] = []

    async def look() -> None:
        counts.append(len([*await others.rows.rows("totals")]))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(look)
    await look()
    assert counts == [2] * 11
    assert len(others.asked) == 2


async def test_who_gives_up_does_not_take_the_answer_from_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    others = Others(b=one_row)
    with trio.move_on_after(0.05):
        await others.rows.rows("totals")
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            nursery.start_soon(others.rows.rows, "totals")
            await trio.testing.wait_all_tasks_blocked()
            first.cancel()
        assert len([*await others.rows.rows("totals")]) == 1


async def test_an_answer_is_kept_for_some_seconds_and_then_let_go(autojump_clock: trio.testing.MockClock) -> None:
    others = Others(b=one_row)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others.rows.run)
        await others.rows.rows("totals")
        await trio.sleep(KEPT_S / 2)
        await others.rows.rows("totals")
        assert len(others.asked) == 1
        await trio.sleep(2 * KEPT_S)
        kept = others.rows._kept
        assert (len(kept._young), len(kept._old)) == (0, 0)  # also when nobody asks any more
        await others.rows.rows("totals")
        assert len(others.asked) == 2
        nursery.cancel_scope.cancel()


async def test_that_a_connection_is_not_there_is_not_kept() -> None:
    there: list[dict[str, Any]] = []

    async def answer(question: dict[str, Any]) -> str:
        return says(*there)

    others = Others(b=answer)
    assert [*await others.rows.rows("connections", name="x")] == []
    there.append({"id": "c1", "name": "x", "user": "u", "vhost": "/", "connected_at_ms": 1})
    assert len([*await others.rows.rows("connections", name="x")]) == 1
    assert len([*await others.rows.rows("connections", name="x")]) == 1
    assert len(others.asked) == 2


async def test_nothing_is_asked_while_nobody_looks(autojump_clock: trio.testing.MockClock) -> None:
    others = Others(b=one_row)
    with trio.move_on_after(3600):
        await others.rows.run()
    assert others.asked == []


async def test_a_silent_node_is_missing_and_waited_for_once(autojump_clock: trio.testing.MockClock) -> None:
    others = Others(b=one_row, c=NEVER)
    begun_s = trio.current_time()
    found = await others.rows.rows("totals")
    assert (found.missing, [*found.rows]) == ({"c"}, ["b"])
    assert trio.current_time() - begun_s == pytest.approx(ANSWER_S)
    # Of another kind the other nodes only are asked meanwhile.
    assert (await others.rows.rows("node")).missing >= {"c"}
    figures, missing = await others.rows.figures({"c": [("/", "q")]})
    assert (figures, missing) == ({}, {"c"})
    assert trio.current_time() - begun_s < ANSWER_S + 0.2


async def test_what_had_come_before_a_node_fell_silent_is_there(autojump_clock: trio.testing.MockClock) -> None:
    async def answer(question: dict[str, Any]) -> str:
        if question["after"]:
            await trio.sleep_forever()
        return says(vhost("a"), after=["a"])

    found = await Others(b=answer).rows.rows("totals")
    assert ([row["vhost"] for _, row in found], found.missing) == (["a"], {"b"})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "no JSON", "{}", '{"rows":1}', '{"rows":[1]}', '{"rows":[{}]}', '{"refused":"failed","says":"no"}'],
)
async def test_what_is_no_answer_is_none(text: str) -> None:
    async def answer(question: dict[str, Any]) -> str:
        return text

    others = Others(b=answer)
    found = await others.rows.rows("totals")
    assert (found.missing, [*found]) == ({"b"}, [])
    assert await others.rows.figures({"b": [("/", "q")]}) == ({}, {"b"})


NODE = {"name": "b", "alarms": [], "amqp": [], "http": [], "churn": {}, "gone_queues": {}, "rates": {}}
MALFORMED = [
    ("totals", {"vhost": 1}),
    ("totals", {"vhost": "/", "publish": "many"}),
    ("clients", {"connections": None}),
    ("queues", {"vhost": "/", "name": ["q"], "state": "running"}),
    ("connections", {"id": "c1", "name": "x", "user": [], "vhost": "/", "connected_at_ms": 1}),
    ("channels", {"connection": "x", "number": "1", "user": "u", "vhost": "/"}),
    ("node", {**NODE, "alarms": 1}),
    ("node", {**NODE, "churn": {"a": "b"}}),
]


@pytest.mark.parametrize(("of", "row"), MALFORMED)
async def test_a_row_with_a_value_of_another_type_is_no_answer(of: str, row: dict[str, Any]) -> None:
    async def answer(question: dict[str, Any]) -> str:
        return says(row)

    others = Others(b=answer)
    found = await others.rows.rows(of)
    assert (found.missing, [*found]) == ({"b"}, [])
    if of == "queues":
        assert await others.rows.figures({"b": [("/", "q")]}) == ({}, {"b"})


@pytest.mark.parametrize("after", ["\u00e9" * 15_000, {"a": 1}, [["a"]], 1.5])
async def test_a_place_that_is_long_or_none_is_not_asked_for(after: Any) -> None:
    async def answer(question: dict[str, Any]) -> str:
        return says(vhost("a"), after=after)

    others = Others(b=answer)
    found = await others.rows.rows("totals")
    assert (found.missing, len(others.asked)) == ({"b"}, 1)


async def test_a_question_that_is_too_long_is_not_answered() -> None:
    async def answer(question: dict[str, Any]) -> str:
        raise ValueError("a text is too long")  # as `Queries.ask` does

    others = Others(b=answer)
    assert (await others.rows.rows("totals")).missing == {"b"}
    with pytest.raises(BadArgument, match="too long"):
        await others.rows.act("b", "close", user="x")


async def test_an_act_whose_answer_is_none_is_not_taken_for_done() -> None:
    async def answer(question: dict[str, Any]) -> str:
        return '{"rows":1}'

    with pytest.raises(Unavailable, match="node 'b'"):
        await Others(b=answer).rows.act("b", "purge")


@pytest.mark.parametrize("second", [["b"], ["a"], "b", [1]])
async def test_a_place_that_is_not_beyond_the_one_before_ends_the_list(second: Any) -> None:
    async def answer(question: dict[str, Any]) -> str:
        return says(vhost("a"), after=second if question["after"] else ["b"])

    others = Others(b=answer)
    assert (await others.rows.rows("totals")).missing == {"b"}
    assert len(others.asked) == 2


@pytest.mark.parametrize(("bound", "value"), [("ROWS_MAX", 10), ("ROWS_BYTES_MAX", 400)])
async def test_rows_of_all_nodes_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    async def answer(question: dict[str, Any]) -> str:
        at = question["after"][0] if question["after"] else 0
        return says(vhost("a"), vhost("b"), after=[at + 1])

    async def short(question: dict[str, Any]) -> str:
        return says(vhost("a"))

    monkeypatch.setattr(peer_rows, bound, value)
    found = await Others(b=answer, c=answer).rows.rows("totals")
    assert (found.missing, 0 < len([*found]) <= 20) == ({"b", "c"}, True)
    assert (await Others(b=short, c=short).rows.rows("totals")).missing == set()


async def test_a_queue_named_as_a_silent_node_is_a_queue(autojump_clock: trio.testing.MockClock) -> None:
    async def answer(question: dict[str, Any]) -> str:
        rows = [{"vhost": at, "name": name, "state": "running"} for at, name in question.get("names", [])]
        return says(*rows)

    others = Others(b=answer, c=NEVER)
    await others.rows.rows("totals")
    key = ("silent", "c")
    found, missing = await others.rows.figures({"b": [key, ("silent", "b")]})
    assert (found[key]["state"], missing) == ("running", set())
    # Nor does a queue silence a node.
    assert (await others.rows.rows("node")).missing == {"c"}


async def test_a_list_without_end_ends(autojump_clock: trio.testing.MockClock) -> None:
    async def answer(question: dict[str, Any]) -> str:
        await trio.sleep(1)
        return says(vhost("a"), after=["a"])

    found = await Others(b=answer).rows.rows("totals")
    assert found.missing == {"b"}


def queue(name: str) -> dict[str, Any]:
    return {"vhost": "/", "name": name, "state": "running", "messages": len(name)}


async def all_queues(question: dict[str, Any]) -> str:
    """Forty on a page; those called `gone` are not there."""
    names = question["names"]
    after = question["after"] + 40
    rows = [queue(name) for _, name in names[question["after"] : after] if name != "gone"]
    return says(*rows, after=after if after < len(names) else None)


async def test_queues_are_asked_for_by_name_a_hundred_at_a_time() -> None:
    others = Others(b=all_queues, c=all_queues)
    names = [("/", f"q{number}") for number in range(250)]
    found, missing = await others.rows.figures({"b": names, "c": [("/", "gone"), ("/", "here")]})
    assert (found.keys(), missing) == ({*names, ("/", "here")}, set())
    assert all(row["messages"] == len(name) for (_, name), row in found.items())
    assert max(len(question["names"]) for _, question in others.asked) == QUEUES_AT_ONCE
    # What is kept is not asked for again.
    before = len(others.asked)
    again, _ = await others.rows.figures({"b": [*names, ("/", "new")]})
    assert len(again) == 251
    assert [question["names"] for _, question in others.asked[before:]] == [[["/", "new"]]]


async def test_a_queue_whose_page_never_comes_is_not_waited_for_without_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def answer(question: dict[str, Any]) -> str:
        await trio.sleep(1)
        return says(after=0)

    assert await Others(b=answer).rows.figures({"b": [("/", "q")]}) == ({}, {"b"})


async def test_an_act_is_done_there_and_what_was_kept_is_not_true_any_more() -> None:
    async def answer(question: dict[str, Any]) -> str:
        return says({"vhost": "/", "messages": 3})

    others = Others(b=answer)
    await others.rows.rows("totals")
    assert (await others.rows.act("b", "purge", name="q"))["messages"] == 3
    await others.rows.rows("totals")
    assert [question["of"] for _, question in others.asked] == ["totals", "purge", "totals"]


async def test_an_act_that_is_refused_or_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    async def answer(question: dict[str, Any]) -> str:
        return json.dumps({"refused": "not_found", "says": "there is no such queue"})

    with pytest.raises(NotFound, match="node 'b': there is no such queue"):
        await Others(b=answer).rows.act("b", "purge")
    with pytest.raises(Unavailable, match="node 'b' does not answer"):
        await Others(b=NEVER).rows.act("b", "purge")
