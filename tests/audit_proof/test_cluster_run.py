"""Three nodes whose leaders are killed under load: `conservation` finds nothing missing in their logs together, and
names the message that is taken out of them then.

The seed and the number of rounds are those of `tests/faults/test_cluster_kill.py`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster
from tests.faults.epoch_books import account_of, rows_of
from tests.faults.test_cluster_audit import cluster, end_in_order
from tests.faults.test_cluster_kill import run_rounds
from tests.faults.test_kill import fault_seed

from . import jobs, plant

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

__all__ = ["cluster"]

ROUNDS = 6


def together(folders: list[Path], events: Path) -> Path:
    """One folder with the files of all nodes, which have their names in them."""
    for folder in folders:
        shutil.copytree(folder, events, dirs_exist_ok=True)
    return events


def test_the_logs_of_three_nodes_reconcile_and_a_planted_loss_is_named(cluster: Cluster, tmp_path: Path) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS))
    folders, left = end_in_order(cluster)
    account = account_of(rows_of(folders))
    print(account)
    events = together(folders, tmp_path / "events")
    done = jobs.run("conservation", "--input", events, "--output", tmp_path / "books", "--strict")
    assert done.returncode == 0, done.stdout
    books = jobs.table(tmp_path / "books" / "books")
    sums = {name: sum(row[name] for row in books) for name in ("acked", "standing", "unconfirmed", "missing")}
    assert sums["missing"] == 0
    assert (sums["standing"], sums["unconfirmed"]) == (left, account.unknown)
    assert sums["acked"] == account.ended

    lost = plant.lose(events)
    done = jobs.run("conservation", "--input", events, "--output", tmp_path / "faults")
    assert done.returncode == 1, done.stdout
    found = jobs.table(tmp_path / "faults" / "findings")
    assert [(row["kind"], row["queue_id"], row["epoch"], row["first"]) for row in found] == [("missing", *lost)]
    assert found[0]["node"].startswith("source ")
