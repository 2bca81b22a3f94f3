"""Several forwarders of amqpd in place of one: what each of them answers has to be the same.

What comes in: a directory, how many. What goes out: a `Broker` for each; stopped at the end, in good order.
Rules: 1. If the queues are to be quorum queues, that is the virtual host's default queue type at each of them, before
anybody is asked: what can be a quorum queue is one, and is replicated. 2. A file of tests asks one forwarder, drawn
from the seed (`conftest.py`), and its queues are led by that one; or each connection asks another one. 3. Nothing may
be left of a queue at any of them.
Not here: what quorum queues answer otherwise (`quorum_default.py`), what becomes of them when forwarders are lost
(`tests/faults/test_cluster_*.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from conformance.admin import AmqpdAdmin, RabbitMQAdmin, admin_of
from conformance.broker import QUORUM, Broker, broker_of, stopped
from tests.faults.cluster import Cluster

NAMES = "abcdefg"
REMOTE_QUEUES = {"AMQPD_CLUSTER_REMOTE_QUEUES": "true"}
VHOST = {"vhosts": [{"name": "/", "metadata": {"default_queue_type": QUORUM}}]}


@contextlib.contextmanager
def running_cluster(
    directory: Path, forwarders: int, queue_type: str, *, any_node: bool = False
) -> Iterator[list[Broker]]:
    """`queue_type`: of queues whose declarations name none. `any_node`: clients use all queues at all of them."""
    cluster = Cluster(directory, NAMES[:forwarders], REMOTE_QUEUES if any_node else None)
    try:
        cluster.start()
        brokers = [replace(broker_of(process), forwarder=name) for name, process in cluster.brokers.items()]
        yield [quorum_by_default(broker, directory) if queue_type == QUORUM else broker for broker in brokers]
        for broker in brokers:
            assert_no_queues(broker)
        for process in cluster.brokers.values():
            stopped(process)
    finally:
        cluster.close()


def assert_no_queues(broker: Broker) -> None:
    """Every test deletes its queues: whose connections were at another forwarder, at this one too."""
    admin = admin_of(broker)
    assert isinstance(admin, AmqpdAdmin)
    left = [row for row in json.loads(admin.command("queue", "list", "--json")) if not row["exclusive"]]
    assert left == [], f"forwarder {broker.forwarder} still has queues of tests: {[row['name'] for row in left]}"


def quorum_by_default(broker: Broker, directory: Path) -> Broker:
    """The same, where a queue whose declaration names no type is a quorum queue, if it can be one. `directory`: for
    files."""
    admin = admin_of(broker)
    if isinstance(admin, AmqpdAdmin):
        definitions = directory / "default_queue_type.json"
        definitions.write_text(json.dumps(VHOST))
        admin.command("definitions", "import", str(definitions))
    else:
        assert isinstance(admin, RabbitMQAdmin), "only of a broker that was started for the run"
        admin.command("delete_vhost", broker.vhost)  # of one that is there it cannot be changed
        admin.command("add_vhost", broker.vhost, "--default-queue-type", QUORUM)
        admin.command("set_permissions", "-p", broker.vhost, broker.user, ".*", ".*", ".*")
    return replace(broker, queue_type=QUORUM)
