"""What a policy would apply to if it were stored, with the others there."""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.metadata.policy_previews import NAMES_MAX, preview
from amqpd.vocabulary.records import PolicyRecord, Put
from tests.management.rig import running

pytestmark = pytest.mark.trio


def policy(name: str, pattern: str = "^orders", apply_to: str = "queues", **more: Any) -> PolicyRecord:
    return PolicyRecord("/", name, pattern, apply_to, {"max-length": 5}, **more)


async def found(record: PolicyRecord, *others: PolicyRecord, queues: tuple[str, ...] = ("orders", "orders-2", "x")):
    harness, on = running()
    client = harness.client()
    for name in queues:
        client.declare(name)
    changes = [Put(each) for each in others]
    on.node.topology.apply(changes)
    on.node.applied(changes)
    return await preview(on, record)


async def test_alone_it_applies_to_what_it_matches() -> None:
    assert await found(policy("new")) == {
        "queues": 2, "exchanges": 0, "applies": 2, "names": ["orders", "orders-2"], "winners": [],
    }  # fmt: skip
    both = await found(policy("new", r"^(orders|amq\.topic)$", "all"))
    assert (both["queues"], both["exchanges"], both["names"]) == (1, 1, ["amq.topic", "orders"])
    assert (await found(policy("new", "")))["queues"] == 3
    assert (await found(policy("new", "", "quorum_queues")))["queues"] == 0


@pytest.mark.parametrize(
    ("others", "applies", "winners"),
    [
        ([policy("orders-dlx", priority=1)], 0, [{"policy": "orders-dlx", "count": 2}]),
        ([policy("aaa")], 0, [{"policy": "aaa", "count": 2}]),
        ([policy("zzz")], 2, []),
        ([policy("orders-dlx", "^orders$", priority=1)], 1, [{"policy": "orders-dlx", "count": 1}]),
        ([policy("orders-dlx", priority=-1)], 2, []),
        ([policy("orders-dlx", "^x", priority=1)], 2, []),
        ([policy("new", priority=9)], 2, []),
        ([policy("operators", priority=9, operator=True)], 2, []),
    ],
    ids=["higher", "first by name", "last by name", "some", "lower", "others", "itself", "operator's"],
)
async def test_those_that_go_first_win(others, applies: int, winners: list[dict[str, Any]]) -> None:
    said = await found(policy("new"), *others)
    assert (said["queues"], said["applies"], said["winners"]) == (2, applies, winners)


async def test_operator_policies_are_among_themselves() -> None:
    said = await found(policy("new", operator=True), policy("a", operator=True), policy("b", priority=9))
    assert said["winners"] == [{"policy": "a", "count": 2}]


async def test_few_of_many_names_are_told() -> None:
    said = await found(policy("new", ""), queues=tuple(f"q{number:02}" for number in range(40)))
    assert said["names"] == [f"q{number:02}" for number in range(NAMES_MAX)]
    assert said["applies"] == 40


async def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(BadArgument, match="no regular expression"):
        await found(policy("new", "("))
    with pytest.raises(BadArgument, match="apply-to is one of"):
        await found(policy("new", apply_to="planets"))
    with pytest.raises(NotFound):
        await preview(running()[1], PolicyRecord("nowhere", "new", "", "all", {}))
