"""What a node of a real cluster says of itself: lines of its log, numbers of `amqpd status`.

Not verified here: each event and each number (`tests/cluster/test_observed.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .test_cluster_operators import BETWEEN_QUESTIONS_S, SEEN_DEADLINE_S, Operated

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Operated]:
    cluster = Operated(tmp_path, environment={"AMQPD_FAST_TAKEOVER": "true"})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def facts(cluster: Operated, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The cluster's numbers there, once they are so."""
    deadline = time.monotonic() + SEEN_DEADLINE_S
    found: dict[str, Any] = {}
    while time.monotonic() < deadline:
        found = json.loads(cluster.ok(name, "status", "--json"))["cluster"]
        if holds(found):
            return found
        time.sleep(BETWEEN_QUESTIONS_S)  # only the broker knows how far its peers are
    raise AssertionError(f"{found}\n{cluster.log}")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lost_leader_is_seen_in_log_and_status_of_the_next_one(cluster: Operated) -> None:
    cluster.declare_one("a", "orders")
    cluster.publish("a", "orders", [b"one"])
    whole = facts(cluster, "a", lambda found: found["sources_led"] > 0 and not found["sources_under_replicated"])
    assert (whole["sources_without_majority"], whole["take_overs_total"]) == (0, whole["sources_led"])
    assert "sources_led 1" in cluster.ok("a", "status")

    cluster.brokers["a"].kill()
    leader = cluster.leader_of(["orders"])
    (other,) = {"b", "c"} - {leader}
    found = facts(cluster, leader, lambda found: found["sources_under_replicated"] == found["sources_led"] > 0)
    assert found["take_overs_total"] > 0
    connected = {peer["peer"].partition("@")[0]: peer["connected"] for peer in found["peers"]}
    assert connected == {"a": False, other: True}
    log = cluster.brokers[leader]
    for event in ("source_taken_over", "source_served"):
        assert " epoch=" in log.wait_log(f".*{event}.*")
    assert "missing=" in log.wait_log(".*copies_missing.*")

    cluster.brokers["a"].start()
    facts(cluster, leader, lambda found: not found["sources_under_replicated"])
    log.wait_log("copies_complete")
    assert cluster.brokers[leader].terminate() == 0
    log.wait_log("source_handed_over")
