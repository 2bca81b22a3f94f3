"""`amqpd definitions import` into a cluster: quorum queues get a source, by which they are copied, others a node.

What is verified: against a real etcd, whose records a test writes; no node runs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from click.testing import CliRunner, Result

from amqpd.commands.definitions import definitions
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import shared_etcd as shared_etcd

from .test_quorum_commands import Store

QUEUES = 12


@pytest.fixture
def store(shared_etcd: EtcdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three nodes."""
    store = Store(shared_etcd.endpoint, tmp_path)
    monkeypatch.setenv("AMQPD_CLUSTER_STORE", store.settings.cluster_store)
    store.nodes("abc")
    return store


def imported(tmp_path: Path, **arguments: Any) -> Result:
    queues = [
        {"vhost": "v", "name": f"q{number}", "durable": True, "arguments": {"x-queue-type": "quorum", **arguments}}
        for number in range(QUEUES)
    ]
    queues += [{"vhost": "v", "name": f"c{number}", "durable": True, "arguments": {}} for number in range(QUEUES)]
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"vhosts": [{"name": "v"}], "queues": queues}))
    words = ["import", str(file), "--data-dir", str(tmp_path / "nowhere")]
    return CliRunner().invoke(definitions, words, obj=None)


def test_quorum_queues_are_spread_over_the_sources_of_all_nodes(store: Store, tmp_path: Path) -> None:
    store.sources("abc", "bca", "cab", "a")
    result = imported(tmp_path)
    assert result.exit_code == 0, (result.output, result.exception)
    counts = Counter(store.queue_sources("v").values())
    assert counts.pop(0) == QUEUES  # the classic ones
    assert set(counts) == {1, 2, 3}
    assert max(counts.values()) <= 5
    # Again: what is there stays where it is.
    before = store.queue_sources("v")
    assert imported(tmp_path).exit_code == 0
    assert store.queue_sources("v") == before


def test_classic_queues_are_spread_over_the_nodes_that_live(store: Store, tmp_path: Path) -> None:
    store.sources("abc")
    store.gone("c")
    assert imported(tmp_path).exit_code == 0
    nodes = {name: record.node for name, record in store.queues("v").items()}
    assert {nodes[f"q{number}"] for number in range(QUEUES)} == {""}, "quorum queues are of their sources"
    assert {nodes[f"c{number}"] for number in range(QUEUES)} == {"a@x", "b@x"}
    store.gone("a")
    assert imported(tmp_path).exit_code == 0
    assert {name: record.node for name, record in store.queues("v").items()} == nodes, "what is there stays"


def test_a_number_of_copies_is_met(store: Store, tmp_path: Path) -> None:
    store.sources("abc", "b")
    assert imported(tmp_path, **{"x-quorum-initial-group-size": 1}).exit_code == 0
    assert Counter(store.queue_sources("v").values()) == {2: QUEUES, 0: QUEUES}


def test_without_a_source_nothing_is_imported(store: Store, tmp_path: Path) -> None:
    store.sources("a")
    result = imported(tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: 'q0' in 'v' is a quorum queue, and no node leads a source with as many copies as it asks for: import "
        "at a running node (POST /api/definitions), which makes one while a majority of the nodes lives\n"
    )
    assert store.queue_sources("v") == {}


def test_nodes_that_keep_no_copies_for_each_other_import_as_one_does(store: Store, tmp_path: Path) -> None:
    for name in "abc":
        store.gone(name)
    assert imported(tmp_path).exit_code == 0
    assert {(record.source, record.node) for record in store.queues("v").values()} == {(0, "")}, "whoever starts"
