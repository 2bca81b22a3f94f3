"""After bind-ok, unbind-ok, declare-ok and delete-ok of one node, publishes at others, with real processes.

What is verified: some hundred tries, of which some stop the publishing node for longer than its lease, or for a
moment; none is missed. Not verified here: cut links (`python -m tests.faults.sync_point --cuts`, heavy), orders of
events that real nodes rarely have (`tests/cluster/test_sync_point.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..harness.namespaces import Machines
from .cluster import Cluster
from .sync_point import ENVIRONMENT, NAMES, Outcome, run

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

TRIES, FAULT_EVERY = 300, 149
TRIES_HEAVY, FAULT_EVERY_HEAVY = 20_000, 50


def tried(directory: Path, tries: int, fault_every: int, machines: Machines | None = None) -> Outcome:
    cluster = Cluster(directory, NAMES, ENVIRONMENT, machines)
    try:
        cluster.start()
        outcome = run(cluster, tries, fault_every, cuts=machines is not None)
        assert "Traceback" not in cluster.log
        return outcome
    finally:
        cluster.close()


def test_no_publish_misses_what_was_answered_before_it(tmp_path: Path) -> None:
    outcome = tried(tmp_path, TRIES, FAULT_EVERY)
    assert outcome.missed == []
    assert {"bound", "declared", "stopped", "stopped_for_a_moment"} == outcome.tries.keys()
    assert outcome.verdicts["returned"] >= TRIES


@pytest.mark.heavy
def test_no_publish_misses_what_was_answered_before_it_while_links_are_cut(tmp_path: Path) -> None:
    machines = Machines(NAMES)
    try:
        assert tried(tmp_path, TRIES_HEAVY, FAULT_EVERY_HEAVY, machines).missed == []
    finally:
        machines.close()
