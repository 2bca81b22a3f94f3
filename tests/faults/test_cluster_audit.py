"""The leader of quorum queues is killed under load, with every message in the audit logs of three nodes: they add up.

What is verified: what was confirmed at some leader is settled once in the end, or stands, as the logs of all nodes
together say; a message whose end is taken out of the logs is found missing.
`AMQPD_FAULT_SEED=... AMQPD_FAULT_ROUNDS=... pytest tests/faults/test_cluster_audit.py` repeats one. The same with the
pipeline, and longer: `tests/audit_proof/test_cluster_run.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from ..audit.reading import finish_spool
from .cluster import Cluster
from .epoch_books import ENDS, Message, Row, account_of, rows_of
from .test_cluster_kill import ALL, run_rounds
from .test_kill import fault_seed

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

ROUNDS = 2
RECORDED = {"AMQPD_FAST_TAKEOVER": "true", "AMQPD_AUDIT_LEVEL": "full"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, environment=RECORDED)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def end_in_order(cluster: Cluster) -> tuple[list[Path], int]:
    """The present leader first, so that the next one says what it was left. The folders of the logs, and how many
    messages that one has."""
    leader = cluster.leader_of(ALL)
    assert cluster.brokers[leader].terminate() == 0
    url = cluster.brokers[cluster.leader_of(ALL)].url
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        left = sum(channel.queue_declare(queue, passive=True).method.message_count for queue in ALL)
    for broker in cluster.brokers.values():
        if broker.running:
            assert broker.terminate() == 0
        finish_spool(broker.data_dir / "audit")
    return [broker.data_dir / "audit" / "events" for broker in cluster.brokers.values()], left


def without_its_end(rows: list[Row], lost: Message) -> list[Row]:
    """The logs without anything that says how the message left its queue."""
    queue_id, epoch, number = lost
    kept = []
    for row in rows:
        same = (row["queue_id"], row["epoch"]) == (queue_id, epoch) and row["event"] in ENDS
        if not same or not row["first"] <= number < row["first"] + row["count"]:
            kept.append(row)
            continue
        for first, last in ((row["first"], number - 1), (number + 1, row["first"] + row["count"] - 1)):
            if first <= last:
                kept.append({**row, "first": first, "count": last - first + 1})
    return kept


def one_that_is_followed(rows: list[Row]) -> Message:
    """A message that was confirmed and acknowledged by one leader, before another one began."""
    last = max(row["source_epoch"] for row in rows if row["event"] == "source_begins")
    told = {(row["node"], row["incarnation"], row["publication"]) for row in rows if row["event"] == "confirmed"}
    acked = {(row["queue_id"], row["epoch"], row["first"]) for row in rows if row["event"] == "acked"}
    stood = [row for row in rows if row["event"] == "standing" and row["count"]]
    for row in rows:
        message = row["queue_id"], row["epoch"], row["first"]
        if (
            row["event"] == "routed"
            and 0 < row["source_epoch"] < last
            and (row["node"], row["incarnation"], row["publication"]) in told
            and message in acked
            and not any(
                (each["queue_id"], each["epoch"]) == message[:2]
                and each["first"] <= message[2] < each["first"] + each["count"]
                for each in stood
            )
        ):
            return message
    raise AssertionError("no message was acknowledged by the leader that took it in")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_logs_of_all_leaders_add_up(cluster: Cluster) -> None:
    run_rounds(cluster, fault_seed(), int(os.environ.get("AMQPD_FAULT_ROUNDS") or ROUNDS))
    folders, left = end_in_order(cluster)
    rows = rows_of(folders)
    account = account_of(rows)
    print(account)
    assert (account.lost, account.twice, account.strange) == ([], [], [])
    assert account.standing == left
    assert account.confirmed > 0
    assert account.epochs > ROUNDS
    assert len({row["node"] for row in rows if row["event"] == "source_begins"}) > 1
    lost = one_that_is_followed(rows)
    assert account_of(without_its_end(rows, lost)).lost == [lost]
