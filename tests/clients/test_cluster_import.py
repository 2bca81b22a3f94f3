"""A definitions file is the first thing that a cluster is given: its quorum queues have leaders all the same.

What is verified: with three real nodes, none of which ever had a quorum queue, the import succeeds, the quorum queues
are led by more than one node, and the classic ones by the node that was asked. Not verified here: which things of a
file are taken (`tests/admin/test_imports.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.test_cluster_management import Managed

pytestmark = pytest.mark.slow
QUEUES = 12


def test_the_first_import_makes_what_its_quorum_queues_need(tmp_path: Path) -> None:
    quorum = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
    names = [f"imported-{number}" for number in range(QUEUES)]
    classic = [f"classic-{number}" for number in range(QUEUES)]
    cluster = Managed(tmp_path)
    try:
        cluster.start()
        queues = [{**quorum, "name": name} for name in names]
        queues += [{**quorum, "name": name, "arguments": {}} for name in classic]
        document = {"queues": queues}
        answer = cluster.ask("a", "/definitions", "POST", json=document)
        assert answer.status_code == 204, (answer.text, cluster.log)

        def led(rows: list[dict[str, object]]) -> bool:
            return sorted(str(row["name"]) for row in rows if row["state"] == "running") == sorted(names + classic)

        rows = cluster.until("b", "/queues/%2F", led)
        replicated, of_a_node = [[row for row in rows if row["name"] in each] for each in (names, classic)]
        assert len({row["leader"] for row in replicated}) > 1, rows
        assert all(len(row["members"]) == 3 for row in replicated)
        assert {str(row["node"]).partition("@")[0] for row in of_a_node} == {"a"} == {cluster.leader_of(classic)}
    finally:
        cluster.close()
