"""Transactions that wait together are few requests, and each has its own outcome all the same.

Not verified: one at a time (`test_store.py`, `test_store_etcd.py`), random ones (`test_store_properties.py`).
"""

from __future__ import annotations

import pytest

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.topology.metadata.etcd import gateway
from amqpd.topology.metadata.etcd.gateway import Gateway
from amqpd.topology.metadata.etcd.messages import Message
from amqpd.topology.metadata.etcd.transactions import (
    COMPARES_MAX,
    PART_CHARACTERS_MAX,
    PART_OPERATIONS_MAX,
    groups_of,
    joined,
)
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    MetadataTransaction,
    PutKey,
)
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.test_store import queue_put, values


def creates(*keys: str) -> MetadataTransaction:
    return MetadataTransaction(tuple(Compare(key) for key in keys), tuple(PutKey(key, "1") for key in keys))


def sizes(*transactions: MetadataTransaction) -> list[int]:
    groups = list(groups_of(transactions))
    assert [each for group in groups for each in group] == list(transactions)
    return list(map(len, groups))


def test_what_names_other_keys_is_joined_up_to_what_etcd_takes() -> None:
    assert sizes() == []
    assert sizes(*(creates(f"k{at}") for at in range(128))) == [60, 60, 8]
    assert sizes(creates("a"), creates("b"), creates("a"), creates("c")) == [2, 2]


def test_what_several_compare_in_the_same_way_is_compared_once() -> None:
    """Each declaration requires its virtual host to be there."""
    made = [MetadataTransaction((Compare("v", None), Compare(f"b{at}")), (PutKey(f"b{at}", ""),)) for at in range(60)]
    assert sizes(*made) == [COMPARES_MAX // 2 - 1, 1]
    assert len(joined(made[:3]).compares) == 4
    assert sizes(made[0], MetadataTransaction((Compare("v", 7),), (PutKey("c", ""),))) == [1, 1]
    # One that puts what another one compares is not joined with it, in either order.
    put = MetadataTransaction((), (PutKey("v", ""),))
    assert sizes(made[0], put, made[1]) == [1, 1, 1]


def test_what_deletes_is_alone() -> None:
    deleted = MetadataTransaction((), (DeleteKey("d"),))
    assert sizes(creates("a"), deleted, creates("b"), creates("c"), deleted) == [1, 1, 2, 1]


def test_a_group_is_bounded() -> None:
    large = MetadataTransaction((), tuple(PutKey(f"k{at}", "") for at in range(PART_OPERATIONS_MAX + 1)))
    assert sizes(creates("a"), large, creates("b")) == [1, 1, 1]
    compared = [
        MetadataTransaction(tuple(Compare(f"{at}-{of}") for of in range(40)), (PutKey(f"p{at}", ""),))
        for at in range(4)
    ]
    assert sizes(*compared) == [2, 2]
    heavy = [MetadataTransaction((), (PutKey(f"k{at}", "x" * (PART_CHARACTERS_MAX // 2)),)) for at in range(3)]
    assert sizes(*heavy) == [1, 1, 1]


def test_joined_is_all_of_them() -> None:
    together = joined([creates("a"), creates("b")])
    assert together == creates("a", "b")


@pytest.mark.trio
async def test_declarations_that_wait_together_take_few_requests(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, requests = Gateway._post, list[str]()

    async def counted(self: Gateway, path: str, message: Message, headers: object) -> Message:
        if "request_put" in str(message):
            requests.append(path)
        return await post(self, path, message, headers)  # type: ignore[arg-type]

    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        store = await open_one()
        await store.transact((), [PutKey("there", "")])
        monkeypatch.setattr(Gateway, "_post", counted)
        puts = [queue_put(f"q{number}", number + 1) for number in range(120)]
        outcomes = await store.transact_all(
            [MetadataTransaction((Compare(put.key), Compare("there", None)), (put,)) for put in puts]
        )
        assert len(await values(store)) == 121
        assert await store.dropped_queues() == frozenset()
    assert all(isinstance(each, Committed) for each in outcomes)
    revisions = [each.revision for each in outcomes]
    assert revisions == sorted(revisions)
    assert requests.count(gateway.TXN) <= 4


@pytest.mark.trio
async def test_one_that_is_refused_refuses_no_other(shared_etcd: EtcdProcess) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        store = await open_one()
        await store.transact((), [PutKey("b", "0")])
        outcomes = await store.transact_all([creates("a"), creates("b"), creates("c")])
        assert [type(each) for each in outcomes] == [Committed, CompareFailed, Committed]
        assert await values(store) == {"a": "1", "b": "0", "c": "1"}
